-- Erasure finds the charges that credited a user, whoever has the purchase now.
CREATE INDEX payments_charge_user ON payments_charge (user_id) WHERE user_id <> '';
