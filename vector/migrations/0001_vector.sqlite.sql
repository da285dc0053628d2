-- One partition per index and owner; a shared index has one, without an owner.
-- Its revision counts the transactions that changed it, and they wait for one
-- another on this row. Removals up to floor are forgotten.
CREATE TABLE vector_partition (
	id TEXT PRIMARY KEY,
	index_name TEXT NOT NULL,
	owner_id TEXT NOT NULL,
	revision BIGINT NOT NULL CONSTRAINT vector_partition_revision_not_negative CHECK (revision >= 0),
	floor BIGINT NOT NULL,
	documents BIGINT NOT NULL CONSTRAINT vector_partition_documents_not_negative CHECK (documents >= 0),
	model TEXT NOT NULL,
	CONSTRAINT vector_partition_once UNIQUE (index_name, owner_id)
);
CREATE INDEX vector_partition_owner ON vector_partition (owner_id);
CREATE INDEX vector_partition_model ON vector_partition (index_name, model, id);

-- The documents are the truth; nodes keep their vectors in memory and read what
-- has a higher revision than they know. vector is float32, little-endian; words
-- is the text as the full-text index takes it.
CREATE TABLE vector_document (
	number INTEGER PRIMARY KEY,
	partition_id TEXT NOT NULL,
	id TEXT NOT NULL,
	revision BIGINT NOT NULL,
	vector BYTEA NOT NULL,
	model TEXT NOT NULL,
	text TEXT NOT NULL,
	words TEXT NOT NULL,
	metadata TEXT NOT NULL,
	created_at BIGINT NOT NULL,
	updated_at BIGINT NOT NULL,
	CONSTRAINT vector_document_once UNIQUE (partition_id, id)
);
CREATE INDEX vector_document_changed ON vector_document (partition_id, revision, id);

-- What was removed lately, for nodes that still have it in memory.
CREATE TABLE vector_removal (
	partition_id TEXT NOT NULL,
	revision BIGINT NOT NULL,
	id TEXT NOT NULL,
	removed_at BIGINT NOT NULL,
	PRIMARY KEY (partition_id, revision, id)
);
CREATE INDEX vector_removal_old ON vector_removal (removed_at);

-- New vectors of documents at a revision, until a whole partition has them.
CREATE TABLE vector_embedding (
	partition_id TEXT NOT NULL,
	id TEXT NOT NULL,
	index_name TEXT NOT NULL,
	revision BIGINT NOT NULL,
	model TEXT NOT NULL,
	vector BYTEA NOT NULL,
	PRIMARY KEY (partition_id, id)
);
CREATE INDEX vector_embedding_index ON vector_embedding (index_name, model);

-- The full-text index. scope is the partition, so that one is searched alone.
CREATE VIRTUAL TABLE vector_text USING fts5(scope, words, content='', contentless_delete=1, tokenize='unicode61 remove_diacritics 0');
CREATE TRIGGER vector_document_added AFTER INSERT ON vector_document WHEN new.words <> '' BEGIN
	INSERT INTO vector_text (rowid, scope, words) VALUES (new.number, new.partition_id, new.words);
END;
CREATE TRIGGER vector_document_rewritten AFTER UPDATE OF words ON vector_document WHEN old.words <> new.words BEGIN
	DELETE FROM vector_text WHERE rowid = old.number;
	INSERT INTO vector_text (rowid, scope, words) SELECT new.number, new.partition_id, new.words WHERE new.words <> '';
END;
CREATE TRIGGER vector_document_removed AFTER DELETE ON vector_document WHEN old.words <> '' BEGIN
	DELETE FROM vector_text WHERE rowid = old.number;
END;
