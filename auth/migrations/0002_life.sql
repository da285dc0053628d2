-- When the user last proved who they are in the session, 0: when it began; and
-- when by a second factor or a passkey, 0: never.
ALTER TABLE auth_session ADD COLUMN confirmed_at BIGINT NOT NULL DEFAULT 0;
ALTER TABLE auth_session ADD COLUMN factor_at BIGINT NOT NULL DEFAULT 0;
-- The last UTC day, counted from 1970, on which hooks were told of its use.
ALTER TABLE auth_session ADD COLUMN used_day BIGINT NOT NULL DEFAULT 0;

-- The username as its user writes it; empty: as it is compared.
ALTER TABLE auth_user ADD COLUMN display_username TEXT NOT NULL DEFAULT '';
-- JSON: the fields that the application adds to its users.
ALTER TABLE auth_user ADD COLUMN profile TEXT NOT NULL DEFAULT '{}';
