-- ALWAYS: the triggers fire in replica mode too. Who owns the table can drop
-- them; the seal over the hashes shows it.
CREATE FUNCTION audit_append_only() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	RAISE EXCEPTION 'audit events are append-only: %', TG_OP;
END $$;

CREATE TRIGGER audit_event_rows BEFORE UPDATE OR DELETE ON audit_event
	FOR EACH ROW EXECUTE FUNCTION audit_append_only();
CREATE TRIGGER audit_event_truncate BEFORE TRUNCATE ON audit_event
	FOR EACH STATEMENT EXECUTE FUNCTION audit_append_only();
ALTER TABLE audit_event ENABLE ALWAYS TRIGGER audit_event_rows;
ALTER TABLE audit_event ENABLE ALWAYS TRIGGER audit_event_truncate;
