-- How a user proves himself: by a password (provider "credential") or at
-- another provider.
CREATE TABLE signin_account (
	id TEXT PRIMARY KEY,
	user_id TEXT NOT NULL REFERENCES auth_user (id) ON DELETE CASCADE,
	provider TEXT NOT NULL,
	-- Who vouches for account_id: "local", or the provider's issuer.
	issuer TEXT NOT NULL,
	account_id TEXT NOT NULL,
	password_hash TEXT,
	-- Separated by spaces, as the provider granted them.
	scopes TEXT NOT NULL DEFAULT '',
	created_at BIGINT NOT NULL,
	updated_at BIGINT NOT NULL,
	CONSTRAINT signin_account_password CHECK ((provider = 'credential') = (password_hash IS NOT NULL))
);
CREATE UNIQUE INDEX signin_account_by_subject ON signin_account (provider, issuer, account_id);
CREATE INDEX signin_account_by_user ON signin_account (user_id, id);

-- What was sent to somebody as a link, or handed to a page: good once.
CREATE TABLE signin_link (
	-- SHA-256 of the token: who reads the table cannot use it.
	token_hash BYTEA PRIMARY KEY CONSTRAINT signin_link_token_hash_length CHECK (length(token_hash) = 32),
	kind TEXT NOT NULL CONSTRAINT signin_link_kind CHECK (kind IN
		('verify_email', 'change_email', 'reset_password', 'magic_link', 'delete_account', 'one_time_token')),
	-- The address it was sent to, or the user it was handed to.
	subject TEXT NOT NULL,
	user_id TEXT REFERENCES auth_user (id) ON DELETE CASCADE,
	-- JSON: what else the link is to do.
	data TEXT NOT NULL,
	created_at BIGINT NOT NULL,
	expires_at BIGINT NOT NULL CONSTRAINT signin_link_lasts CHECK (expires_at > created_at)
);
CREATE INDEX signin_link_by_subject ON signin_link (kind, subject, created_at);
CREATE INDEX signin_link_by_user ON signin_link (user_id);
CREATE INDEX signin_link_by_expiry ON signin_link (expires_at);

-- The one code of its kind that an address was sent last, and beside it the one
-- that each browser has asked for: guesses from elsewhere do not count there.
CREATE TABLE signin_code (
	kind TEXT NOT NULL CONSTRAINT signin_code_kind CHECK (kind IN
		('sign-in', 'email-verification', 'forget-password', 'change-email', 'second-factor')),
	-- The address; for change-email the user and the new address, for
	-- second-factor the sign-in or session that waits for it.
	subject TEXT NOT NULL,
	-- The hash of the browser's cookie; empty: any client.
	browser BYTEA NOT NULL,
	salt BYTEA NOT NULL,
	code_hash BYTEA NOT NULL CONSTRAINT signin_code_hash_length CHECK (length(code_hash) = 32),
	attempts BIGINT NOT NULL CONSTRAINT signin_code_attempts CHECK (attempts >= 0),
	expires_at BIGINT NOT NULL,
	PRIMARY KEY (kind, subject, browser)
);
CREATE INDEX signin_code_by_expiry ON signin_code (expires_at);

-- The browsers and devices that have signed in to an account, so that guessing
-- from elsewhere cannot keep them out.
CREATE TABLE signin_client (
	secret_hash BYTEA NOT NULL CONSTRAINT signin_client_secret_hash_length CHECK (length(secret_hash) = 32),
	user_id TEXT NOT NULL REFERENCES auth_user (id) ON DELETE CASCADE,
	seen_at BIGINT NOT NULL,
	PRIMARY KEY (user_id, secret_hash)
);
CREATE INDEX signin_client_by_seen ON signin_client (seen_at);

-- The sessions of one browser in which several users are signed in.
CREATE TABLE signin_browser_session (
	session_id TEXT PRIMARY KEY REFERENCES auth_session (id) ON DELETE CASCADE,
	secret_hash BYTEA NOT NULL CONSTRAINT signin_browser_session_secret_hash_length CHECK (length(secret_hash) = 32),
	created_at BIGINT NOT NULL
);
CREATE INDEX signin_browser_session_by_secret ON signin_browser_session (secret_hash, created_at);
