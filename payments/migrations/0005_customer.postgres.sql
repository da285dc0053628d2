-- Whose purchases a customer of a rail has. An escaped NUL cannot be read as json.
CREATE INDEX payments_purchase_customer ON payments_purchase
	(rail, (CASE WHEN position('\u0000' IN facts) = 0 THEN facts::json -> 'customerId' ->> 'value' END))
	WHERE length(CASE WHEN position('\u0000' IN facts) = 0 THEN facts::json -> 'customerId' ->> 'value' END) <= 200;
