-- What the cuts are, signed, with the event that tells of it: a cut that nobody
-- signed is no cut. The newest proof covers the newest cut of every shard.
CREATE TABLE audit_cut_proof (
	checkpoint BIGINT PRIMARY KEY,
	created_at BIGINT NOT NULL,
	event_id TEXT NOT NULL,
	key_id TEXT NOT NULL,
	signature BYTEA NOT NULL
);
CREATE TRIGGER audit_cut_proof_rows BEFORE UPDATE OR DELETE OR TRUNCATE ON audit_cut_proof
	FOR EACH STATEMENT EXECUTE FUNCTION audit_append_only();
ALTER TABLE audit_cut_proof ENABLE ALWAYS TRIGGER audit_cut_proof_rows;
