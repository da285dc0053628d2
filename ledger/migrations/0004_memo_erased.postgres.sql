-- That a memo was emptied by an erasure: a repeated call that has the memo is still the same call.
ALTER TABLE ledger_transaction ADD COLUMN memo_erased BOOLEAN NOT NULL DEFAULT FALSE;

CREATE OR REPLACE FUNCTION ledger_append_only() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	IF TG_OP = 'UPDATE' THEN
		IF NEW.memo = '' AND (NEW.memo_erased OR NOT OLD.memo_erased)
			AND (to_jsonb(NEW) - 'memo' - 'memo_erased') = (to_jsonb(OLD) - 'memo' - 'memo_erased') THEN
			RETURN NEW;
		END IF;
	END IF;
	RAISE EXCEPTION 'ledger transactions are append-only: %', TG_OP;
END $$;
