-- A memo is free text and may be emptied when its user's data is erased.
DROP TRIGGER ledger_transaction_no_update;

CREATE TRIGGER ledger_transaction_no_update BEFORE UPDATE ON ledger_transaction
WHEN NEW.memo <> '' OR NEW.ref IS NOT OLD.ref OR NEW.user_id IS NOT OLD.user_id OR NEW.currency IS NOT OLD.currency
	OR NEW.sequence IS NOT OLD.sequence OR NEW.kind IS NOT OLD.kind OR NEW.amount IS NOT OLD.amount
	OR NEW.balance_after IS NOT OLD.balance_after OR NEW.held_after IS NOT OLD.held_after
	OR NEW.related_ref IS NOT OLD.related_ref OR NEW.created_at IS NOT OLD.created_at
BEGIN SELECT RAISE(ABORT, 'ledger transactions are append-only'); END;

CREATE INDEX ledger_transaction_memo ON ledger_transaction (user_id) WHERE memo <> '';
