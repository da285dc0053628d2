-- Wrong proofs of a second factor in sessions, apart from those of sign-ins, so
-- that a stolen session keeps nobody from signing in.
ALTER TABLE signin_two_factor ADD COLUMN session_failures BIGINT NOT NULL DEFAULT 0;
ALTER TABLE signin_two_factor ADD COLUMN session_locked_until BIGINT NOT NULL DEFAULT 0;

-- What was used up of a quota that all nodes share: until when it is spent.
CREATE TABLE signin_quota (
	hash BYTEA PRIMARY KEY CONSTRAINT signin_quota_hash_length CHECK (length(hash) = 32),
	spent_until BIGINT NOT NULL
);
CREATE INDEX signin_quota_by_end ON signin_quota (spent_until);

-- Users who signed up and have yet to prove their address before they may enter.
CREATE TABLE signin_newcomer (
	user_id TEXT PRIMARY KEY REFERENCES auth_user (id) ON DELETE CASCADE,
	created_at BIGINT NOT NULL
);
CREATE INDEX signin_newcomer_by_age ON signin_newcomer (created_at);

-- ID tokens that an application has brought, each good once.
CREATE TABLE signin_spent_token (
	hash BYTEA PRIMARY KEY CONSTRAINT signin_spent_token_hash_length CHECK (length(hash) = 32),
	expires_at BIGINT NOT NULL
);
CREATE INDEX signin_spent_token_by_end ON signin_spent_token (expires_at);

-- Mails that are to be made: jobs name the row alone, so that what is erased
-- here stands nowhere else.
CREATE TABLE signin_letter (
	id TEXT PRIMARY KEY,
	-- Whom the mail is for, and the address that is to be theirs or empty.
	address TEXT NOT NULL,
	new_address TEXT NOT NULL,
	user_id TEXT REFERENCES auth_user (id) ON DELETE CASCADE,
	payload TEXT NOT NULL,
	due_at BIGINT NOT NULL
);
CREATE INDEX signin_letter_by_address ON signin_letter (address);
CREATE INDEX signin_letter_by_new_address ON signin_letter (new_address);
CREATE INDEX signin_letter_by_user ON signin_letter (user_id);
CREATE INDEX signin_letter_by_due ON signin_letter (due_at);

CREATE INDEX signin_client_by_secret ON signin_client (secret_hash);
CREATE INDEX signin_ceremony_by_user ON signin_ceremony (user_id);
