-- The trail. Absent texts are empty, so that the hash is over one form only.
CREATE TABLE audit_event (
	id TEXT PRIMARY KEY,
	occurred_at BIGINT NOT NULL,
	action TEXT NOT NULL,
	actor_kind TEXT NOT NULL CONSTRAINT audit_event_actor_kind_known CHECK (actor_kind IN
		('user', 'control-plane', 'system', 'job', 'webhook', 'operator', 'anonymous')),
	actor_id TEXT NOT NULL,
	actor_key_id TEXT NOT NULL,
	subject_type TEXT NOT NULL,
	subject_id TEXT NOT NULL,
	targets TEXT NOT NULL,
	outcome TEXT NOT NULL CONSTRAINT audit_event_outcome_known CHECK (outcome IN ('succeeded', 'refused', 'failed')),
	code TEXT NOT NULL,
	request_id TEXT NOT NULL,
	route TEXT NOT NULL,
	environment TEXT NOT NULL,
	detail TEXT NOT NULL,
	commitment BYTEA CONSTRAINT audit_event_commitment_length CHECK (length(commitment) = 32),
	hash BYTEA NOT NULL CONSTRAINT audit_event_hash_length CHECK (length(hash) = 32)
);
CREATE INDEX audit_event_by_actor ON audit_event (actor_id, id) WHERE actor_id <> '';
CREATE INDEX audit_event_by_subject ON audit_event (subject_id, id) WHERE subject_id <> '';

-- What identifies a person, apart from the event so that it can be erased.
CREATE TABLE audit_personal (
	event_id TEXT PRIMARY KEY,
	salt BYTEA NOT NULL CONSTRAINT audit_personal_salt_length CHECK (length(salt) = 16),
	ip TEXT NOT NULL,
	user_agent TEXT NOT NULL
);
