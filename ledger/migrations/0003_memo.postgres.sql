-- A memo is free text and may be emptied when its user's data is erased.
CREATE OR REPLACE FUNCTION ledger_append_only() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	IF TG_OP = 'UPDATE' THEN
		IF NEW.memo = '' AND (to_jsonb(NEW) - 'memo') = (to_jsonb(OLD) - 'memo') THEN
			RETURN NEW;
		END IF;
	END IF;
	RAISE EXCEPTION 'ledger transactions are append-only: %', TG_OP;
END $$;

CREATE INDEX ledger_transaction_memo ON ledger_transaction (user_id) WHERE memo <> '';
