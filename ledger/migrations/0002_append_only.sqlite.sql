CREATE TRIGGER ledger_transaction_no_update BEFORE UPDATE ON ledger_transaction
BEGIN SELECT RAISE(ABORT, 'ledger transactions are append-only'); END;

CREATE TRIGGER ledger_transaction_no_delete BEFORE DELETE ON ledger_transaction
BEGIN SELECT RAISE(ABORT, 'ledger transactions are append-only'); END;
