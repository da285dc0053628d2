CREATE TABLE email_job (
	id TEXT PRIMARY KEY,
	state TEXT NOT NULL CONSTRAINT email_job_state CHECK (state IN
		('queued', 'sending', 'sent', 'delivered', 'bounced', 'complained', 'suppressed', 'failed', 'cancelled')),
	category TEXT NOT NULL CONSTRAINT email_job_category CHECK (category IN ('transactional', 'list')),
	-- The canonical address; the other one is as it was written.
	address_key TEXT NOT NULL,
	address TEXT NOT NULL,
	subject TEXT NOT NULL,
	template TEXT NOT NULL,
	message_id TEXT NOT NULL,
	-- Empty means none, or that its time has passed.
	idempotency_key TEXT NOT NULL,
	request_hash BYTEA NOT NULL,
	provider TEXT NOT NULL DEFAULT '',
	provider_message_id TEXT NOT NULL DEFAULT '',
	-- The provider may have the message already: no other one is tried.
	pinned BOOLEAN NOT NULL DEFAULT FALSE,
	attempts BIGINT NOT NULL DEFAULT 0 CONSTRAINT email_job_attempts CHECK (attempts >= 0),
	max_attempts BIGINT NOT NULL,
	next_attempt_at BIGINT NOT NULL,
	-- The attempts of this round began here: giving up counts from it.
	round_began_at BIGINT NOT NULL,
	last_error TEXT NOT NULL DEFAULT '',
	user_id TEXT NOT NULL,
	created_at BIGINT NOT NULL,
	sent_at BIGINT NOT NULL DEFAULT 0,
	delivered_at BIGINT NOT NULL DEFAULT 0
);
CREATE UNIQUE INDEX email_job_by_idempotency ON email_job (idempotency_key) WHERE idempotency_key <> '';
CREATE INDEX email_job_by_address ON email_job (address_key, created_at);
CREATE INDEX email_job_by_state ON email_job (state, id);
CREATE INDEX email_job_by_message ON email_job (message_id);
CREATE INDEX email_job_by_provider ON email_job (provider_message_id) WHERE provider_message_id <> '';

-- The composed message, sealed under the master keys; retention deletes it.
CREATE TABLE email_message (
	job_id TEXT PRIMARY KEY REFERENCES email_job (id),
	sealed BYTEA NOT NULL,
	created_at BIGINT NOT NULL
);

CREATE TABLE email_event (
	id TEXT PRIMARY KEY,
	job_id TEXT NOT NULL REFERENCES email_job (id),
	type TEXT NOT NULL CONSTRAINT email_event_type CHECK (type IN
		('attempt', 'delivered', 'bounced', 'complained', 'opened', 'clicked', 'unsubscribed', 'retried')),
	at BIGINT NOT NULL,
	machine BOOLEAN NOT NULL,
	url TEXT NOT NULL,
	detail TEXT NOT NULL
);
CREATE INDEX email_event_by_job ON email_event (job_id, id);

CREATE TABLE email_suppression (
	address_key TEXT PRIMARY KEY,
	address TEXT NOT NULL,
	scope TEXT NOT NULL CONSTRAINT email_suppression_scope CHECK (scope IN ('all', 'list')),
	reason TEXT NOT NULL CONSTRAINT email_suppression_reason CHECK (reason IN
		('hard_bounce', 'soft_bounce_limit', 'complaint', 'unsubscribe', 'manual', 'invalid')),
	source TEXT NOT NULL CONSTRAINT email_suppression_source CHECK (source IN
		('dsn', 'provider', 'link', 'controlplane', 'system')),
	job_id TEXT NOT NULL,
	note TEXT NOT NULL,
	created_at BIGINT NOT NULL,
	-- 0 means never.
	expires_at BIGINT NOT NULL
);

-- Keys of the tokens in callback paths, sealed; the newest signs, all verify.
CREATE TABLE email_token_key (
	number BIGINT PRIMARY KEY CONSTRAINT email_token_key_number CHECK (number BETWEEN 1 AND 255),
	sealed BYTEA NOT NULL,
	created_at BIGINT NOT NULL
);

-- What a provider that is warming up has been given on a day.
CREATE TABLE email_warmup (
	provider TEXT NOT NULL,
	day BIGINT NOT NULL,
	used BIGINT NOT NULL,
	PRIMARY KEY (provider, day)
);

-- Mail that was kept instead of sent.
CREATE TABLE email_mailbox (
	id TEXT PRIMARY KEY,
	address_key TEXT NOT NULL,
	message BYTEA NOT NULL,
	created_at BIGINT NOT NULL
);
CREATE INDEX email_mailbox_by_address ON email_mailbox (address_key, id);
