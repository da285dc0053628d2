-- That a memo was emptied by an erasure: a repeated call that has the memo is still the same call.
ALTER TABLE ledger_transaction ADD COLUMN memo_erased BOOLEAN NOT NULL DEFAULT FALSE;

CREATE TRIGGER ledger_transaction_memo_erased BEFORE UPDATE ON ledger_transaction
WHEN OLD.memo_erased AND NOT NEW.memo_erased
BEGIN SELECT RAISE(ABORT, 'ledger transactions are append-only'); END;
