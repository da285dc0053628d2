-- A suppression for each address, scope and reason: none of them ends, widens or
-- lifts another one.
ALTER TABLE email_suppression RENAME TO email_suppression_before;
CREATE TABLE email_suppression (
	-- The canonical address, or "#" and its keyed hash once it was erased.
	address_key TEXT NOT NULL,
	scope TEXT NOT NULL CONSTRAINT email_suppression_scope CHECK (scope IN ('all', 'list')),
	reason TEXT NOT NULL CONSTRAINT email_suppression_reason CHECK (reason IN
		('hard_bounce', 'soft_bounce_limit', 'complaint', 'unsubscribe', 'manual', 'invalid')),
	source TEXT NOT NULL CONSTRAINT email_suppression_source CHECK (source IN
		('dsn', 'provider', 'link', 'controlplane', 'system')),
	job_id TEXT NOT NULL,
	note TEXT NOT NULL,
	created_at BIGINT NOT NULL,
	-- 0 means never.
	expires_at BIGINT NOT NULL,
	PRIMARY KEY (address_key, scope, reason)
);
INSERT INTO email_suppression (address_key, scope, reason, source, job_id, note, created_at, expires_at)
SELECT address_key, scope, reason, source, job_id, note, created_at, expires_at FROM email_suppression_before;
DROP TABLE email_suppression_before;
CREATE INDEX email_suppression_by_expiry ON email_suppression (expires_at) WHERE expires_at > 0;

-- Keys of the hashes that stand for addresses, sealed; the oldest that opens counts.
CREATE TABLE email_address_key (
	number BIGINT PRIMARY KEY CONSTRAINT email_address_key_number CHECK (number BETWEEN 1 AND 255),
	sealed BYTEA NOT NULL,
	created_at BIGINT NOT NULL
);

-- Messages of one quota count against each other alone.
ALTER TABLE email_job ADD COLUMN quota TEXT NOT NULL DEFAULT '';
CREATE INDEX email_job_by_user ON email_job (user_id, id) WHERE user_id <> '';

-- Kept mail is sealed from here on; what was kept in the clear goes.
DELETE FROM email_mailbox;
