-- One chain: SQLite has one writer.
INSERT INTO audit_shard (shard, seq, hash) VALUES (0, 0, zeroblob(32));

CREATE TRIGGER audit_event_queue AFTER INSERT ON audit_event
BEGIN INSERT INTO audit_unsealed (shard, event_id) VALUES (0, NEW.id); END;

-- Of events and seals nothing but what a cut covers may be deleted.
DROP TRIGGER audit_event_no_delete;
CREATE TRIGGER audit_event_no_delete BEFORE DELETE ON audit_event
WHEN NOT EXISTS (SELECT 1 FROM audit_seal s JOIN audit_cut c ON c.shard = s.shard
	WHERE s.event_id = OLD.id AND s.seq <= c.seq)
BEGIN SELECT RAISE(FAIL, 'audit events are append-only'); END;

CREATE TRIGGER audit_seal_no_delete BEFORE DELETE ON audit_seal
WHEN NOT EXISTS (SELECT 1 FROM audit_cut c WHERE c.shard = OLD.shard AND c.seq >= OLD.seq)
	OR EXISTS (SELECT 1 FROM audit_event e WHERE e.id = OLD.event_id)
BEGIN SELECT RAISE(FAIL, 'audit seals are append-only'); END;
CREATE TRIGGER audit_seal_no_update BEFORE UPDATE ON audit_seal
BEGIN SELECT RAISE(FAIL, 'audit seals are append-only'); END;

CREATE TRIGGER audit_checkpoint_no_delete BEFORE DELETE ON audit_checkpoint
BEGIN SELECT RAISE(FAIL, 'audit checkpoints are append-only'); END;
CREATE TRIGGER audit_checkpoint_no_update BEFORE UPDATE ON audit_checkpoint
BEGIN SELECT RAISE(FAIL, 'audit checkpoints are append-only'); END;
CREATE TRIGGER audit_checkpoint_head_no_delete BEFORE DELETE ON audit_checkpoint_head
BEGIN SELECT RAISE(FAIL, 'audit checkpoints are append-only'); END;
CREATE TRIGGER audit_checkpoint_head_no_update BEFORE UPDATE ON audit_checkpoint_head
BEGIN SELECT RAISE(FAIL, 'audit checkpoints are append-only'); END;

CREATE TRIGGER audit_cut_at_checkpoint BEFORE INSERT ON audit_cut
WHEN NOT EXISTS (SELECT 1 FROM audit_checkpoint_head h
	WHERE h.shard = NEW.shard AND h.seq = NEW.seq AND h.hash = NEW.hash)
BEGIN SELECT RAISE(FAIL, 'the audit trail is cut at checkpoints only'); END;
CREATE TRIGGER audit_cut_no_delete BEFORE DELETE ON audit_cut
BEGIN SELECT RAISE(FAIL, 'audit cuts are append-only'); END;
CREATE TRIGGER audit_cut_no_update BEFORE UPDATE ON audit_cut
BEGIN SELECT RAISE(FAIL, 'audit cuts are append-only'); END;
