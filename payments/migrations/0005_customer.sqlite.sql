-- Whose purchases a customer of a rail has.
CREATE INDEX payments_purchase_customer ON payments_purchase (rail, (facts -> 'customerId' ->> 'value'))
	WHERE length(facts -> 'customerId' ->> 'value') <= 200;
