-- Reconcile looks at subscriptions whose newest period was refunded too, as they may be renewed.
CREATE INDEX payments_purchase_refunded ON payments_purchase (rail, checked_at, id)
	WHERE kind = 'subscription' AND status = 'refunded' AND will_renew;
