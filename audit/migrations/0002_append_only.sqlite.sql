-- REPLACE removes the row in its way without firing delete triggers, so an
-- insert over an existing id or rowid is refused before it happens. FAIL stops
-- as ABORT does, without the copy of every page that ABORT keeps to undo with.
CREATE TRIGGER audit_event_no_update BEFORE UPDATE ON audit_event
BEGIN SELECT RAISE(FAIL, 'audit events are append-only'); END;

CREATE TRIGGER audit_event_no_delete BEFORE DELETE ON audit_event
BEGIN SELECT RAISE(FAIL, 'audit events are append-only'); END;

CREATE TRIGGER audit_event_no_replace BEFORE INSERT ON audit_event
WHEN EXISTS (SELECT 1 FROM audit_event WHERE id = NEW.id)
	OR EXISTS (SELECT 1 FROM audit_event WHERE rowid = NEW.rowid)
BEGIN SELECT RAISE(FAIL, 'audit events are append-only'); END;
