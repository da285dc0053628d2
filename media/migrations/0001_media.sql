-- Locked by what counts the items of an owner.
CREATE TABLE media_owner (
	owner_id TEXT PRIMARY KEY
);

-- One uploaded file. source_sha256 is the checksum of what was uploaded, sha256 of
-- what is kept; '' is not known yet. phash 0 is none.
CREATE TABLE media_item (
	id TEXT PRIMARY KEY,
	owner_id TEXT NOT NULL,
	kind TEXT NOT NULL CONSTRAINT media_item_kind_known CHECK (kind IN ('image', 'video', 'audio', 'other')),
	status TEXT NOT NULL CONSTRAINT media_item_status_known CHECK (status IN ('pending', 'processing', 'ready', 'failed')),
	visibility TEXT NOT NULL CONSTRAINT media_item_visibility_known CHECK (visibility IN ('private', 'public')),
	filename TEXT NOT NULL,
	content_type TEXT NOT NULL,
	size BIGINT NOT NULL,
	object_id TEXT NOT NULL,
	source_sha256 TEXT NOT NULL,
	sha256 TEXT NOT NULL,
	phash BIGINT NOT NULL,
	width BIGINT NOT NULL,
	height BIGINT NOT NULL,
	caption TEXT NOT NULL,
	metadata TEXT NOT NULL,
	facts TEXT NOT NULL,
	error_code TEXT NOT NULL,
	attempts BIGINT NOT NULL,
	created_at BIGINT NOT NULL,
	updated_at BIGINT NOT NULL,
	ready_at BIGINT NOT NULL
);
CREATE INDEX media_item_by_owner ON media_item (owner_id, id);
CREATE INDEX media_item_by_kind ON media_item (owner_id, kind, id);
CREATE INDEX media_item_by_status ON media_item (owner_id, status, id);
CREATE INDEX media_item_by_kind_and_status ON media_item (owner_id, kind, status, id);
CREATE INDEX media_item_by_source ON media_item (owner_id, source_sha256) WHERE source_sha256 <> '';
CREATE INDEX media_item_by_sha256 ON media_item (owner_id, sha256) WHERE sha256 <> '';
CREATE INDEX media_item_by_look ON media_item (owner_id, id, phash) WHERE phash <> 0;
CREATE INDEX media_item_unfinished ON media_item (status, updated_at, id) WHERE status IN ('pending', 'processing');

-- What was made of an item, in objects of their own.
CREATE TABLE media_derivative (
	item_id TEXT NOT NULL CONSTRAINT media_derivative_of REFERENCES media_item (id) ON DELETE CASCADE,
	name TEXT NOT NULL,
	object_id TEXT NOT NULL,
	content_type TEXT NOT NULL,
	width BIGINT NOT NULL,
	height BIGINT NOT NULL,
	size BIGINT NOT NULL,
	PRIMARY KEY (item_id, name)
);
