-- Eight chains, so that eight sealers can work. The events of one subject share
-- one; those without a subject are spread by their hash.
INSERT INTO audit_shard (shard, seq, hash)
SELECT shard, 0, decode(repeat('00', 32), 'hex') FROM generate_series(0, 7) AS shard;

CREATE FUNCTION audit_queue() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
	spread bytea := NEW.hash;
BEGIN
	IF NEW.subject_id <> '' THEN
		spread := sha256(convert_to(NEW.subject_type || '/' || NEW.subject_id, 'UTF8'));
	END IF;
	INSERT INTO audit_unsealed (shard, event_id) VALUES (get_byte(spread, 0) % 8, NEW.id);
	RETURN NULL;
END $$;
CREATE TRIGGER audit_event_queue AFTER INSERT ON audit_event
	FOR EACH ROW EXECUTE FUNCTION audit_queue();
ALTER TABLE audit_event ENABLE ALWAYS TRIGGER audit_event_queue;

-- Of events and seals nothing but what a cut covers may be deleted. The tables
-- are named with their schema: a session could put others before them.
CREATE FUNCTION audit_event_cut() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
	covered boolean;
BEGIN
	EXECUTE format('SELECT EXISTS (SELECT 1 FROM %1$I.audit_seal s JOIN %1$I.audit_cut c ON c.shard = s.shard
		WHERE s.event_id = $1 AND s.seq <= c.seq)', TG_TABLE_SCHEMA) INTO covered USING OLD.id;
	IF NOT covered THEN
		RAISE EXCEPTION 'audit events are append-only: %', TG_OP;
	END IF;
	RETURN OLD;
END $$;

CREATE FUNCTION audit_seal_cut() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
	covered boolean;
BEGIN
	EXECUTE format('SELECT EXISTS (SELECT 1 FROM %1$I.audit_cut c WHERE c.shard = $1 AND c.seq >= $2)
		AND NOT EXISTS (SELECT 1 FROM %1$I.audit_event e WHERE e.id = $3)', TG_TABLE_SCHEMA)
		INTO covered USING OLD.shard, OLD.seq, OLD.event_id;
	IF NOT covered THEN
		RAISE EXCEPTION 'audit seals are append-only: %', TG_OP;
	END IF;
	RETURN OLD;
END $$;

CREATE FUNCTION audit_cut_at_checkpoint() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
	signed boolean;
BEGIN
	EXECUTE format('SELECT EXISTS (SELECT 1 FROM %1$I.audit_checkpoint_head h
		WHERE h.shard = $1 AND h.seq = $2 AND h.hash = $3)', TG_TABLE_SCHEMA)
		INTO signed USING NEW.shard, NEW.seq, NEW.hash;
	IF NOT signed THEN
		RAISE EXCEPTION 'the audit trail is cut at checkpoints only';
	END IF;
	RETURN NEW;
END $$;

DROP TRIGGER audit_event_rows ON audit_event;
CREATE TRIGGER audit_event_update BEFORE UPDATE ON audit_event
	FOR EACH ROW EXECUTE FUNCTION audit_append_only();
CREATE TRIGGER audit_event_delete BEFORE DELETE ON audit_event
	FOR EACH ROW EXECUTE FUNCTION audit_event_cut();
ALTER TABLE audit_event ENABLE ALWAYS TRIGGER audit_event_update;
ALTER TABLE audit_event ENABLE ALWAYS TRIGGER audit_event_delete;

CREATE TRIGGER audit_seal_update BEFORE UPDATE ON audit_seal
	FOR EACH ROW EXECUTE FUNCTION audit_append_only();
CREATE TRIGGER audit_seal_delete BEFORE DELETE ON audit_seal
	FOR EACH ROW EXECUTE FUNCTION audit_seal_cut();
CREATE TRIGGER audit_seal_truncate BEFORE TRUNCATE ON audit_seal
	FOR EACH STATEMENT EXECUTE FUNCTION audit_append_only();
ALTER TABLE audit_seal ENABLE ALWAYS TRIGGER audit_seal_update;
ALTER TABLE audit_seal ENABLE ALWAYS TRIGGER audit_seal_delete;
ALTER TABLE audit_seal ENABLE ALWAYS TRIGGER audit_seal_truncate;

CREATE TRIGGER audit_checkpoint_rows BEFORE UPDATE OR DELETE OR TRUNCATE ON audit_checkpoint
	FOR EACH STATEMENT EXECUTE FUNCTION audit_append_only();
CREATE TRIGGER audit_checkpoint_head_rows BEFORE UPDATE OR DELETE OR TRUNCATE ON audit_checkpoint_head
	FOR EACH STATEMENT EXECUTE FUNCTION audit_append_only();
CREATE TRIGGER audit_cut_rows BEFORE UPDATE OR DELETE OR TRUNCATE ON audit_cut
	FOR EACH STATEMENT EXECUTE FUNCTION audit_append_only();
CREATE TRIGGER audit_cut_insert BEFORE INSERT ON audit_cut
	FOR EACH ROW EXECUTE FUNCTION audit_cut_at_checkpoint();
ALTER TABLE audit_checkpoint ENABLE ALWAYS TRIGGER audit_checkpoint_rows;
ALTER TABLE audit_checkpoint_head ENABLE ALWAYS TRIGGER audit_checkpoint_head_rows;
ALTER TABLE audit_cut ENABLE ALWAYS TRIGGER audit_cut_rows;
ALTER TABLE audit_cut ENABLE ALWAYS TRIGGER audit_cut_insert;
