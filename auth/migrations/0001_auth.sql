CREATE TABLE auth_user (
	id TEXT PRIMARY KEY,
	-- Stands for a session in the tokens that were issued without one.
	token_family TEXT NOT NULL,
	created_at BIGINT NOT NULL
);

CREATE TABLE auth_session (
	id TEXT PRIMARY KEY,
	-- SHA-256 of the cookie: who reads the table cannot sign in with it.
	secret_hash BYTEA NOT NULL CONSTRAINT auth_session_secret_hash_length CHECK (length(secret_hash) = 32),
	user_id TEXT NOT NULL REFERENCES auth_user (id),
	created_at BIGINT NOT NULL,
	expires_at BIGINT NOT NULL CONSTRAINT auth_session_lasts CHECK (expires_at > created_at)
);
CREATE UNIQUE INDEX auth_session_by_secret ON auth_session (secret_hash);
CREATE INDEX auth_session_by_user ON auth_session (user_id, expires_at);

-- The private keys, sealed under the master keys. A row that does not open is
-- not trusted, so nobody adds a key by writing here.
CREATE TABLE auth_signing_key (
	id TEXT PRIMARY KEY,
	sealed BYTEA NOT NULL,
	created_at BIGINT NOT NULL
);

-- Ended sessions whose tokens may still be within their time.
CREATE TABLE auth_revocation (
	position BIGINT PRIMARY KEY,
	session_id TEXT NOT NULL,
	until BIGINT NOT NULL
);
CREATE INDEX auth_revocation_by_until ON auth_revocation (until);

-- One row whose lock makes positions appear in their order: a node that has
-- read up to one position has missed none before it.
CREATE TABLE auth_revocation_head (
	id BIGINT PRIMARY KEY CONSTRAINT auth_revocation_head_single CHECK (id = 1),
	position BIGINT NOT NULL
);
INSERT INTO auth_revocation_head (id, position) VALUES (1, 0);
