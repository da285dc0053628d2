CREATE TABLE kv_entry (
	key TEXT PRIMARY KEY CONSTRAINT kv_entry_key_length CHECK (length(key) BETWEEN 1 AND 256),
	value BYTEA NOT NULL,
	expires_at BIGINT NOT NULL
);
CREATE INDEX kv_entry_by_expiry ON kv_entry (expires_at);
