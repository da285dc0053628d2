-- Whose data was to be erased, and what became of it. The user id is the
-- pseudonym under which ledger and audit keep their rows.
CREATE TABLE kit_erasure (
	user_id TEXT PRIMARY KEY,
	requested_at BIGINT NOT NULL,
	finished_at BIGINT,
	report TEXT NOT NULL
);

CREATE INDEX kit_idempotency_caller ON kit_idempotency (caller);
