-- Events that are inserted together wait together: once a statement, not once a row.
CREATE OR REPLACE FUNCTION audit_queue() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO audit_unsealed (shard, event_id)
	SELECT get_byte(CASE WHEN n.subject_id <> '' THEN sha256(convert_to(n.subject_type || '/' || n.subject_id, 'UTF8'))
		ELSE n.hash END, 0) % 8, n.id FROM added AS n;
	RETURN NULL;
END $$;
DROP TRIGGER audit_event_queue ON audit_event;
CREATE TRIGGER audit_event_queue AFTER INSERT ON audit_event
	REFERENCING NEW TABLE AS added FOR EACH STATEMENT EXECUTE FUNCTION audit_queue();
ALTER TABLE audit_event ENABLE ALWAYS TRIGGER audit_event_queue;
