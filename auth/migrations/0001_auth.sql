CREATE TABLE auth_user (
	id TEXT PRIMARY KEY,
	-- Lower case; empty: none.
	email TEXT NOT NULL DEFAULT '',
	email_verified BOOLEAN NOT NULL DEFAULT FALSE,
	name TEXT NOT NULL DEFAULT '',
	image TEXT NOT NULL DEFAULT '',
	-- Lower case; empty: none.
	username TEXT NOT NULL DEFAULT '',
	anonymous BOOLEAN NOT NULL DEFAULT FALSE,
	-- Stands for a session in the tokens that were issued without one.
	token_family TEXT NOT NULL,
	created_at BIGINT NOT NULL,
	updated_at BIGINT NOT NULL,
	-- 0: not disabled.
	disabled_at BIGINT NOT NULL DEFAULT 0
);
CREATE UNIQUE INDEX auth_user_by_email ON auth_user (email) WHERE email <> '';
CREATE UNIQUE INDEX auth_user_by_username ON auth_user (username) WHERE username <> '';
CREATE INDEX auth_user_by_name ON auth_user (name) WHERE name <> '';

-- A browser or an installed application: it lives as long as it has a session.
CREATE TABLE auth_device (
	id TEXT PRIMARY KEY,
	user_id TEXT NOT NULL REFERENCES auth_user (id) ON DELETE CASCADE,
	name TEXT NOT NULL,
	user_agent TEXT NOT NULL,
	ip TEXT NOT NULL,
	created_at BIGINT NOT NULL,
	last_seen_at BIGINT NOT NULL
);
CREATE INDEX auth_device_by_user ON auth_device (user_id, id);

CREATE TABLE auth_session (
	id TEXT PRIMARY KEY,
	user_id TEXT NOT NULL REFERENCES auth_user (id) ON DELETE CASCADE,
	device_id TEXT NOT NULL REFERENCES auth_device (id) ON DELETE CASCADE,
	-- SHA-256 of the cookie: who reads the table cannot sign in with it.
	secret_hash BYTEA NOT NULL CONSTRAINT auth_session_secret_hash_length CHECK (length(secret_hash) = 32),
	-- The key of the refresh tokens' MAC, sealed under the master keys.
	refresh_key BYTEA NOT NULL,
	-- The refresh token that is good now, when it was made (0: at sign-in), and
	-- whether its holder has shown that he got it.
	refresh_counter BIGINT NOT NULL DEFAULT 0,
	rotated_at BIGINT NOT NULL DEFAULT 0,
	refresh_confirmed BOOLEAN NOT NULL DEFAULT FALSE,
	-- How the user proved himself, as amr values separated by spaces.
	methods TEXT NOT NULL,
	remembered BOOLEAN NOT NULL,
	ip TEXT NOT NULL,
	user_agent TEXT NOT NULL,
	created_at BIGINT NOT NULL,
	used_at BIGINT NOT NULL,
	-- The idle end, which use moves, and the absolute end, which nothing moves.
	expires_at BIGINT NOT NULL,
	ends_at BIGINT NOT NULL,
	CONSTRAINT auth_session_lasts CHECK (expires_at > created_at AND expires_at <= ends_at)
);
CREATE UNIQUE INDEX auth_session_by_secret ON auth_session (secret_hash);
CREATE INDEX auth_session_by_user ON auth_session (user_id, expires_at);
CREATE INDEX auth_session_by_device ON auth_session (device_id);
CREATE INDEX auth_session_by_end ON auth_session (expires_at);

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
