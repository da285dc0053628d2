-- What an owner's objects take and what uploads under way have reserved, in
-- bytes. The row is locked by everything that changes the owner's objects.
CREATE TABLE storage_usage (
	owner_id TEXT PRIMARY KEY,
	used BIGINT NOT NULL CONSTRAINT storage_usage_used_not_negative CHECK (used >= 0),
	reserved BIGINT NOT NULL CONSTRAINT storage_usage_reserved_not_negative CHECK (reserved >= 0)
);

-- One object or upload. A namespace other than '' belongs to another capability.
-- Of a pending one, size is what is reserved.
CREATE TABLE storage_object (
	id TEXT PRIMARY KEY,
	namespace TEXT NOT NULL,
	owner_id TEXT NOT NULL,
	path TEXT NOT NULL,
	object_key TEXT NOT NULL CONSTRAINT storage_object_key_once UNIQUE,
	state TEXT NOT NULL CONSTRAINT storage_object_state_known CHECK (state IN ('pending', 'ready', 'aborted')),
	size BIGINT NOT NULL CONSTRAINT storage_object_size_in_range CHECK (size BETWEEN 0 AND 9007199254740991),
	content_type TEXT NOT NULL,
	visibility TEXT NOT NULL CONSTRAINT storage_object_visibility_known CHECK (visibility IN ('private', 'public')),
	sha256 TEXT NOT NULL,
	metadata TEXT NOT NULL,
	upload_id TEXT NOT NULL,
	part_size BIGINT NOT NULL,
	stored BOOLEAN NOT NULL,
	created_at BIGINT NOT NULL,
	updated_at BIGINT NOT NULL,
	completed_at BIGINT NOT NULL,
	expires_at BIGINT NOT NULL,
	writable_until BIGINT NOT NULL
);
CREATE UNIQUE INDEX storage_object_by_path ON storage_object (namespace, owner_id, path) WHERE state = 'ready';
CREATE INDEX storage_object_unfinished ON storage_object (owner_id, expires_at) WHERE state <> 'ready';
CREATE INDEX storage_object_lapsing ON storage_object (expires_at) WHERE state <> 'ready';
CREATE INDEX storage_object_by_owner ON storage_object (owner_id, id);

-- A link to an object; only the hash of its token is kept.
CREATE TABLE storage_share (
	id TEXT PRIMARY KEY,
	object_id TEXT NOT NULL CONSTRAINT storage_share_of REFERENCES storage_object (id) ON DELETE CASCADE,
	token_hash BYTEA NOT NULL CONSTRAINT storage_share_token_once UNIQUE CONSTRAINT storage_share_token_hash_length CHECK (length(token_hash) = 32),
	created_at BIGINT NOT NULL,
	expires_at BIGINT NOT NULL
);
CREATE INDEX storage_share_by_object ON storage_share (object_id, id);
CREATE INDEX storage_share_by_expiry ON storage_share (expires_at);

-- Bytes whose row is gone and that are still to be removed.
CREATE TABLE storage_garbage (
	object_key TEXT PRIMARY KEY,
	upload_id TEXT NOT NULL,
	due_at BIGINT NOT NULL,
	writable_until BIGINT NOT NULL
);
CREATE INDEX storage_garbage_by_due ON storage_garbage (due_at);

-- The keys of signed addresses, sealed under the master keys.
CREATE TABLE storage_signing_key (
	number BIGINT PRIMARY KEY CONSTRAINT storage_signing_key_number_in_range CHECK (number BETWEEN 1 AND 255),
	sealed BYTEA NOT NULL,
	created_at BIGINT NOT NULL
);

-- The name under which this database knows its bucket: one row.
CREATE TABLE storage_bucket (
	one BIGINT PRIMARY KEY CONSTRAINT storage_bucket_one CHECK (one = 1),
	id TEXT NOT NULL,
	claimed BOOLEAN NOT NULL
);
