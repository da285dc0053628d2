-- Reconcile looks at subscriptions alone.
DROP INDEX payments_purchase_check;
CREATE INDEX payments_purchase_check ON payments_purchase (rail, checked_at, id)
	WHERE kind = 'subscription' AND status IN ('active', 'in_grace', 'on_hold', 'canceled', 'paused');
