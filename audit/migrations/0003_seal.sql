-- Events wait here until a sealer has put them into a chain.
CREATE TABLE audit_unsealed (
	shard BIGINT NOT NULL,
	event_id TEXT NOT NULL,
	PRIMARY KEY (shard, event_id)
);
INSERT INTO audit_unsealed (shard, event_id) SELECT 0, id FROM audit_event;

-- A shard is one chain; the row holds its last seal and is the lock of its sealer.
CREATE TABLE audit_shard (
	shard BIGINT PRIMARY KEY,
	seq BIGINT NOT NULL,
	hash BYTEA NOT NULL CONSTRAINT audit_shard_hash_length CHECK (length(hash) = 32)
);

CREATE TABLE audit_seal (
	shard BIGINT NOT NULL,
	seq BIGINT NOT NULL CONSTRAINT audit_seal_seq_positive CHECK (seq > 0),
	event_id TEXT NOT NULL,
	prev BYTEA NOT NULL CONSTRAINT audit_seal_prev_length CHECK (length(prev) = 32),
	hash BYTEA NOT NULL CONSTRAINT audit_seal_hash_length CHECK (length(hash) = 32),
	PRIMARY KEY (shard, seq),
	CONSTRAINT audit_seal_one_successor UNIQUE (shard, prev),
	CONSTRAINT audit_seal_once UNIQUE (event_id)
);

-- The signing keys of checkpoints, sealed by a master key.
CREATE TABLE audit_key (
	id TEXT PRIMARY KEY,
	sealed BYTEA NOT NULL,
	created_at BIGINT NOT NULL
);

-- What the chains were at an instant, signed.
CREATE TABLE audit_checkpoint (
	seq BIGINT PRIMARY KEY,
	created_at BIGINT NOT NULL,
	prev BYTEA NOT NULL CONSTRAINT audit_checkpoint_prev_length CHECK (length(prev) = 32),
	key_id TEXT NOT NULL,
	signature BYTEA NOT NULL
);
CREATE TABLE audit_checkpoint_head (
	checkpoint BIGINT NOT NULL REFERENCES audit_checkpoint (seq),
	shard BIGINT NOT NULL,
	seq BIGINT NOT NULL,
	hash BYTEA NOT NULL,
	PRIMARY KEY (checkpoint, shard)
);

-- Where the trail begins after retention: events up to the newest cut of their
-- shard may be deleted. A cut lies at the head of a checkpoint.
CREATE TABLE audit_cut (
	shard BIGINT NOT NULL,
	seq BIGINT NOT NULL,
	hash BYTEA NOT NULL,
	PRIMARY KEY (shard, seq)
);
