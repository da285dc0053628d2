-- Lists of purchases, newest first, seek by each of their filters.
CREATE INDEX payments_purchase_rail ON payments_purchase (rail, id);
CREATE INDEX payments_purchase_product ON payments_purchase (product_key, id);
CREATE INDEX payments_purchase_kind ON payments_purchase (kind, id);
CREATE INDEX payments_purchase_status ON payments_purchase (status, id);

-- Grants whose end has not been told of.
CREATE INDEX payments_grant_due ON payments_grant (expires_at) WHERE revoked_at IS NULL AND expires_at IS NOT NULL;

-- What a rail has to look at again.
CREATE INDEX payments_purchase_lapsed ON payments_purchase (rail, changes_at, id) WHERE changes_at IS NOT NULL;
CREATE INDEX payments_charge_retry ON payments_charge (rail, retry_at) WHERE retry_at IS NOT NULL;
CREATE INDEX payments_delivery_again ON payments_delivery (rail, retry_at) WHERE retry_at IS NOT NULL;
