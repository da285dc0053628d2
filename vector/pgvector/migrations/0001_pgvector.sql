-- Strict order in filtered searches came with 0.8.
CREATE EXTENSION IF NOT EXISTS vector;

-- One point for each document, as the extension searches it. kind is the index
-- with its metric and dimensions: a point of another kind, or of another revision
-- than the document's, is made anew. facts are the metadata, of which what is
-- neither string, number nor boolean is null.
CREATE TABLE vector_point (
	number BIGINT PRIMARY KEY REFERENCES vector_document (number) ON DELETE CASCADE,
	partition_id TEXT NOT NULL,
	id TEXT NOT NULL,
	kind TEXT NOT NULL,
	revision BIGINT NOT NULL,
	facts JSONB NOT NULL
);
CREATE INDEX vector_point_partition ON vector_point (partition_id, id);

-- The partitions whose points were all there at a revision.
CREATE TABLE vector_point_state (
	partition_id TEXT PRIMARY KEY REFERENCES vector_partition (id) ON DELETE CASCADE,
	kind TEXT NOT NULL,
	revision BIGINT NOT NULL
);

-- The extension may be in a schema that the search path does not name.
DO $$
DECLARE
	place name;
	version text;
BEGIN
	SELECT n.nspname, e.extversion INTO place, version
		FROM pg_extension e JOIN pg_namespace n ON n.oid = e.extnamespace WHERE e.extname = 'vector';
	IF string_to_array(version, '.')::int[] < '{0,8}' THEN
		RAISE EXCEPTION 'pgvector % is too old: 0.8 or newer is needed', version;
	END IF;
	EXECUTE format('ALTER TABLE vector_point ADD COLUMN embedding %I.vector NOT NULL', place);
END $$;
