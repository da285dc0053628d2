-- A browser on its way to a provider and back, known by the hash of the state
-- that travels along, and by the hash of the cookie that stays.
CREATE TABLE signin_state (
	state_hash BYTEA PRIMARY KEY CONSTRAINT signin_state_hash_length CHECK (length(state_hash) = 32),
	browser_hash BYTEA NOT NULL CONSTRAINT signin_state_browser_hash_length CHECK (length(browser_hash) = 32),
	provider TEXT NOT NULL,
	-- The signed-in user who links an account; none: somebody signs in.
	user_id TEXT REFERENCES auth_user (id) ON DELETE CASCADE,
	-- JSON: where to send the browser afterwards.
	data TEXT NOT NULL,
	created_at BIGINT NOT NULL,
	expires_at BIGINT NOT NULL CONSTRAINT signin_state_lasts CHECK (expires_at > created_at)
);
CREATE INDEX signin_state_by_browser ON signin_state (browser_hash, created_at);
CREATE INDEX signin_state_by_user ON signin_state (user_id);
CREATE INDEX signin_state_by_expiry ON signin_state (expires_at);

-- What a provider gave for an account. What is sealed opens with the master
-- keys and for this account alone.
CREATE TABLE signin_provider_token (
	account_id TEXT PRIMARY KEY REFERENCES signin_account (id) ON DELETE CASCADE,
	sealed BYTEA NOT NULL,
	-- Counts the changes, so that of two that race the first one stays.
	version BIGINT NOT NULL,
	updated_at BIGINT NOT NULL
);
