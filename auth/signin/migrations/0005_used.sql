-- What became of links and states that were used, for the seconds in which the
-- browser that used one may call again.
CREATE TABLE signin_used (
	hash BYTEA PRIMARY KEY CONSTRAINT signin_used_hash_length CHECK (length(hash) = 32),
	kind TEXT NOT NULL,
	-- Null where the user is gone, or nobody signed in.
	user_id TEXT REFERENCES auth_user (id) ON DELETE CASCADE,
	session_id TEXT,
	-- The hash of a cookie of the browser, if it had one.
	browser_hash BYTEA,
	-- Where the browser was led to.
	target TEXT NOT NULL,
	settled BOOLEAN NOT NULL,
	expires_at BIGINT NOT NULL
);
CREATE INDEX signin_used_by_user ON signin_used (user_id);
CREATE INDEX signin_used_by_end ON signin_used (expires_at);
