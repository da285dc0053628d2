-- One account per user and currency. The named checks hold under every
-- concurrency; sequence is that of the account's newest transaction.
CREATE TABLE ledger_account (
	user_id TEXT NOT NULL,
	currency TEXT NOT NULL,
	balance BIGINT NOT NULL CONSTRAINT ledger_account_balance_in_range CHECK (balance BETWEEN 0 AND 9007199254740991),
	held BIGINT NOT NULL CONSTRAINT ledger_account_held_not_negative CHECK (held >= 0),
	sequence BIGINT NOT NULL CONSTRAINT ledger_account_sequence_not_negative CHECK (sequence >= 0),
	opened_at BIGINT NOT NULL,
	CONSTRAINT ledger_account_held_covered CHECK (held <= balance),
	PRIMARY KEY (user_id, currency)
);

-- Every change of an account, held money included: the one namespace of refs.
CREATE TABLE ledger_transaction (
	ref TEXT PRIMARY KEY,
	user_id TEXT NOT NULL,
	currency TEXT NOT NULL,
	sequence BIGINT NOT NULL CONSTRAINT ledger_transaction_sequence_positive CHECK (sequence > 0),
	kind TEXT NOT NULL CONSTRAINT ledger_transaction_kind_known CHECK (kind IN
		('credit', 'debit', 'transfer_out', 'transfer_in', 'hold', 'capture', 'release')),
	amount BIGINT NOT NULL CONSTRAINT ledger_transaction_amount_in_range CHECK (amount BETWEEN 1 AND 9007199254740991),
	balance_after BIGINT NOT NULL,
	held_after BIGINT NOT NULL,
	related_ref TEXT NOT NULL,
	memo TEXT NOT NULL,
	created_at BIGINT NOT NULL,
	CONSTRAINT ledger_transaction_in_order UNIQUE (user_id, currency, sequence)
);

-- The state of each hold; who made it and why stands in its transaction.
CREATE TABLE ledger_hold (
	ref TEXT PRIMARY KEY,
	user_id TEXT NOT NULL,
	currency TEXT NOT NULL,
	amount BIGINT NOT NULL CONSTRAINT ledger_hold_amount_positive CHECK (amount > 0),
	captured BIGINT NOT NULL CONSTRAINT ledger_hold_captured_in_range CHECK (captured BETWEEN 0 AND amount),
	status TEXT NOT NULL CONSTRAINT ledger_hold_status_known CHECK (status IN ('open', 'captured', 'released')),
	created_at BIGINT NOT NULL,
	settled_at BIGINT,
	CONSTRAINT ledger_hold_settled CHECK ((status = 'open') = (settled_at IS NULL)),
	CONSTRAINT ledger_hold_captured CHECK ((status = 'captured') = (captured > 0))
);
CREATE INDEX ledger_hold_open ON ledger_hold (user_id, currency) WHERE status = 'open';
