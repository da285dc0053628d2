-- Who holds purchases: one row a subject, locked by what changes its
-- entitlements. revision counts those changes. The account token stands for the
-- subject at the rails and says nothing about it.
CREATE TABLE payments_subject (
	subject_type TEXT NOT NULL CONSTRAINT payments_subject_type_known CHECK (subject_type IN ('user', 'organization')),
	subject_id TEXT NOT NULL,
	account_token TEXT NOT NULL UNIQUE,
	revision BIGINT NOT NULL,
	erased BOOLEAN NOT NULL,
	created_at BIGINT NOT NULL,
	PRIMARY KEY (subject_type, subject_id)
);

-- What a rail calls a subject.
CREATE TABLE payments_customer (
	rail TEXT NOT NULL,
	customer_id TEXT NOT NULL,
	subject_type TEXT NOT NULL,
	subject_id TEXT NOT NULL,
	created_at BIGINT NOT NULL,
	PRIMARY KEY (rail, customer_id)
);
CREATE INDEX payments_customer_of ON payments_customer (subject_type, subject_id, rail);

-- One row a purchase. facts is what its rail said, merged; the columns are what
-- that meant when the row was last projected. changes_at is when the status
-- becomes status_then by itself, without anybody writing.
CREATE TABLE payments_purchase (
	id TEXT PRIMARY KEY,
	rail TEXT NOT NULL,
	transaction_id TEXT NOT NULL,
	environment TEXT NOT NULL CONSTRAINT payments_purchase_environment_known CHECK (environment IN ('production', 'sandbox')),
	product_key TEXT NOT NULL,
	store_product_id TEXT NOT NULL,
	kind TEXT NOT NULL,
	subject_type TEXT NOT NULL,
	subject_id TEXT NOT NULL,
	facts TEXT NOT NULL,
	status TEXT NOT NULL CONSTRAINT payments_purchase_status_known CHECK (status IN
		('active', 'in_grace', 'on_hold', 'canceled', 'expired', 'never_paid', 'refunded', 'revoked', 'paused')),
	grants BOOLEAN NOT NULL,
	changes_at BIGINT,
	status_then TEXT NOT NULL,
	access_until BIGINT,
	grace_until BIGINT,
	resume_at BIGINT,
	period_type TEXT NOT NULL,
	will_renew BOOLEAN NOT NULL,
	billing_issue_since BIGINT,
	ownership TEXT NOT NULL,
	starts_at BIGINT NOT NULL,
	quantity BIGINT NOT NULL,
	acknowledged TEXT NOT NULL CONSTRAINT payments_purchase_acknowledged_known CHECK (acknowledged IN ('none', 'pending', 'done', 'refused')),
	created_at BIGINT NOT NULL,
	updated_at BIGINT NOT NULL,
	checked_at BIGINT NOT NULL,
	CONSTRAINT payments_purchase_once UNIQUE (rail, transaction_id),
	CONSTRAINT payments_purchase_resume_while_paused CHECK (status = 'paused' OR resume_at IS NULL),
	CONSTRAINT payments_purchase_ios_is_paid CHECK (NOT (rail = 'ios_store' AND status = 'never_paid')),
	CONSTRAINT payments_purchase_subject_whole CHECK ((subject_type = '') = (subject_id = ''))
);
CREATE INDEX payments_purchase_of ON payments_purchase (subject_type, subject_id, id);
CREATE INDEX payments_purchase_due ON payments_purchase (changes_at) WHERE changes_at IS NOT NULL;
CREATE INDEX payments_purchase_acknowledge ON payments_purchase (rail, id) WHERE acknowledged = 'pending';
CREATE INDEX payments_purchase_check ON payments_purchase (rail, checked_at, id)
	WHERE status IN ('active', 'in_grace', 'on_hold', 'canceled', 'paused');

-- Versions of fetched state, drawn before the request is sent. Purchases share a
-- row by a hash of their key, so that what turns out not to exist leaves none.
CREATE TABLE payments_version (
	rail TEXT NOT NULL,
	slot BIGINT NOT NULL,
	drawn BIGINT NOT NULL,
	PRIMARY KEY (rail, slot)
);

-- One row a charge, with what it moved in the ledger: credited and clawed_back
-- are what was done, owed is what a refund could not take back yet.
CREATE TABLE payments_charge (
	rail TEXT NOT NULL,
	charge_id TEXT NOT NULL,
	purchase_id TEXT NOT NULL REFERENCES payments_purchase (id),
	facts TEXT NOT NULL,
	currency TEXT NOT NULL,
	user_id TEXT NOT NULL,
	credited BIGINT NOT NULL CONSTRAINT payments_charge_credited_in_range CHECK (credited >= 0),
	clawed_back BIGINT NOT NULL CONSTRAINT payments_charge_clawed_back_in_range CHECK (clawed_back BETWEEN 0 AND credited),
	owed BIGINT NOT NULL CONSTRAINT payments_charge_owed_in_range CHECK (owed BETWEEN 0 AND credited - clawed_back),
	moves BIGINT NOT NULL,
	retry_at BIGINT,
	created_at BIGINT NOT NULL,
	updated_at BIGINT NOT NULL,
	PRIMARY KEY (rail, charge_id)
);
CREATE INDEX payments_charge_of ON payments_charge (purchase_id);
CREATE INDEX payments_charge_owed ON payments_charge (retry_at) WHERE retry_at IS NOT NULL;

-- What the control plane granted by hand.
CREATE TABLE payments_grant (
	id TEXT PRIMARY KEY,
	subject_type TEXT NOT NULL,
	subject_id TEXT NOT NULL,
	entitlement TEXT NOT NULL,
	reason TEXT NOT NULL,
	granted_at BIGINT NOT NULL,
	expires_at BIGINT,
	revoked_at BIGINT
);
CREATE INDEX payments_grant_of ON payments_grant (subject_type, subject_id, id) WHERE revoked_at IS NULL;

-- What the control plane took away of a purchase, until it is repaired.
CREATE TABLE payments_revocation (
	purchase_id TEXT NOT NULL REFERENCES payments_purchase (id),
	entitlement TEXT NOT NULL,
	subject_type TEXT NOT NULL,
	subject_id TEXT NOT NULL,
	reason TEXT NOT NULL,
	revoked_at BIGINT NOT NULL,
	PRIMARY KEY (purchase_id, entitlement)
);
CREATE INDEX payments_revocation_of ON payments_revocation (subject_type, subject_id);

-- Every authentic webhook, for thirty days.
CREATE TABLE payments_delivery (
	rail TEXT NOT NULL,
	delivery_id TEXT NOT NULL,
	type TEXT NOT NULL,
	environment TEXT NOT NULL,
	at BIGINT NOT NULL,
	received_at BIGINT NOT NULL,
	outcome TEXT NOT NULL CONSTRAINT payments_delivery_outcome_known CHECK (outcome IN ('applied', 'ignored', 'refused', 'failed')),
	code TEXT NOT NULL,
	attempts BIGINT NOT NULL,
	retry_at BIGINT,
	body BYTEA NOT NULL,
	PRIMARY KEY (rail, delivery_id)
);
CREATE INDEX payments_delivery_age ON payments_delivery (received_at);
CREATE INDEX payments_delivery_retry ON payments_delivery (retry_at) WHERE retry_at IS NOT NULL;

CREATE TABLE payments_checkout (
	id TEXT PRIMARY KEY,
	rail TEXT NOT NULL,
	session_id TEXT NOT NULL,
	subject_type TEXT NOT NULL,
	subject_id TEXT NOT NULL,
	product_key TEXT NOT NULL,
	created_at BIGINT NOT NULL
);
CREATE INDEX payments_checkout_age ON payments_checkout (created_at);
CREATE INDEX payments_checkout_of ON payments_checkout (subject_type, subject_id);
CREATE INDEX payments_checkout_session ON payments_checkout (rail, session_id);

CREATE TABLE payments_discount (
	id TEXT PRIMARY KEY,
	rail TEXT NOT NULL,
	external_id TEXT NOT NULL,
	code TEXT NOT NULL,
	terms TEXT NOT NULL,
	created_at BIGINT NOT NULL,
	CONSTRAINT payments_discount_code_once UNIQUE (rail, code)
);

-- One run at a time; heartbeat_at tells one that goes on from one that died.
CREATE TABLE payments_run (
	id TEXT PRIMARY KEY,
	started_by TEXT NOT NULL,
	started_at BIGINT NOT NULL,
	heartbeat_at BIGINT NOT NULL,
	finished_at BIGINT,
	status TEXT NOT NULL CONSTRAINT payments_run_status_known CHECK (status IN ('running', 'succeeded', 'partial', 'failed')),
	checked BIGINT NOT NULL,
	changed BIGINT NOT NULL,
	failed BIGINT NOT NULL,
	rails TEXT NOT NULL
);
CREATE UNIQUE INDEX payments_run_alone ON payments_run (status) WHERE status = 'running';

-- How far the history of a rail was read.
CREATE TABLE payments_history (
	rail TEXT PRIMARY KEY,
	since BIGINT NOT NULL,
	until BIGINT NOT NULL,
	cursor TEXT NOT NULL
);
