-- ALWAYS: the triggers fire in replica mode too.
CREATE FUNCTION ledger_append_only() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	RAISE EXCEPTION 'ledger transactions are append-only: %', TG_OP;
END $$;

CREATE TRIGGER ledger_transaction_rows BEFORE UPDATE OR DELETE ON ledger_transaction
	FOR EACH ROW EXECUTE FUNCTION ledger_append_only();
CREATE TRIGGER ledger_transaction_truncate BEFORE TRUNCATE ON ledger_transaction
	FOR EACH STATEMENT EXECUTE FUNCTION ledger_append_only();
ALTER TABLE ledger_transaction ENABLE ALWAYS TRIGGER ledger_transaction_rows;
ALTER TABLE ledger_transaction ENABLE ALWAYS TRIGGER ledger_transaction_truncate;
