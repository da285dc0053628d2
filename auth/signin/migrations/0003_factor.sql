-- Who is asked for a second factor. What is sealed opens with the master keys
-- and for this user alone.
CREATE TABLE signin_two_factor (
	user_id TEXT PRIMARY KEY REFERENCES auth_user (id) ON DELETE CASCADE,
	enabled BOOLEAN NOT NULL,
	-- Whether a code by mail is a second factor of his.
	mails BOOLEAN NOT NULL,
	-- The secret of the authenticator application, the one that is to replace it
	-- once a code of it was right, and the last step a code was taken of. What
	-- is empty he has not.
	totp BYTEA NOT NULL,
	totp_pending BYTEA NOT NULL,
	totp_step BIGINT NOT NULL,
	-- The key of the backup codes' hashes.
	backup_key BYTEA NOT NULL,
	-- Wrong codes in a row, and until when no code is taken; 0: not locked.
	failures BIGINT NOT NULL,
	locked_until BIGINT NOT NULL,
	created_at BIGINT NOT NULL
);

CREATE TABLE signin_backup_code (
	user_id TEXT NOT NULL REFERENCES auth_user (id) ON DELETE CASCADE,
	hash BYTEA NOT NULL,
	PRIMARY KEY (user_id, hash)
);

-- A sign-in whose first factor was right, known by the hash of its cookie.
CREATE TABLE signin_challenge (
	hash BYTEA PRIMARY KEY,
	user_id TEXT NOT NULL REFERENCES auth_user (id) ON DELETE CASCADE,
	method TEXT NOT NULL,
	remembered BOOLEAN NOT NULL,
	attempts BIGINT NOT NULL,
	created_at BIGINT NOT NULL,
	expires_at BIGINT NOT NULL
);
CREATE INDEX signin_challenge_by_user ON signin_challenge (user_id);
CREATE INDEX signin_challenge_by_end ON signin_challenge (expires_at);

-- A browser that is not asked again, known by the hash of its cookie.
CREATE TABLE signin_trusted_device (
	hash BYTEA PRIMARY KEY,
	user_id TEXT NOT NULL REFERENCES auth_user (id) ON DELETE CASCADE,
	created_at BIGINT NOT NULL,
	expires_at BIGINT NOT NULL
);
CREATE INDEX signin_trusted_device_by_user ON signin_trusted_device (user_id, created_at);

CREATE TABLE signin_passkey (
	id TEXT PRIMARY KEY,
	user_id TEXT NOT NULL REFERENCES auth_user (id) ON DELETE CASCADE,
	credential_id BYTEA NOT NULL CONSTRAINT signin_passkey_credential_length CHECK (length(credential_id) BETWEEN 16 AND 1023),
	-- COSE, as the authenticator made it.
	public_key BYTEA NOT NULL,
	name TEXT NOT NULL,
	-- The highest counter seen; 0 for passkeys that are synchronised.
	counter BIGINT NOT NULL,
	aaguid TEXT NOT NULL,
	-- Separated by commas.
	transports TEXT NOT NULL,
	backup_eligible BOOLEAN NOT NULL,
	backed_up BOOLEAN NOT NULL,
	created_at BIGINT NOT NULL,
	-- 0: never.
	used_at BIGINT NOT NULL
);
CREATE UNIQUE INDEX signin_passkey_by_credential ON signin_passkey (credential_id);
CREATE INDEX signin_passkey_by_user ON signin_passkey (user_id, created_at, id);

-- A challenge that an authenticator was asked to sign, by its hash.
CREATE TABLE signin_ceremony (
	hash BYTEA PRIMARY KEY,
	kind TEXT NOT NULL CONSTRAINT signin_ceremony_kind CHECK (kind IN ('registration', 'authentication')),
	-- Whose passkey it must be; empty: anybody's.
	user_id TEXT NOT NULL,
	expires_at BIGINT NOT NULL
);
CREATE INDEX signin_ceremony_by_end ON signin_ceremony (expires_at);
