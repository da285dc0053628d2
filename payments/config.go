package payments

import "time"

// Product is one entry of the catalog.
type Product struct {
	// Key names it everywhere here: 1 to 64 lower case letters, digits, "_", "-"
	// and ".".
	Key  string      `json:"key"`
	Kind ProductKind `json:"kind"`
	// Entitlements are the keys that it grants.
	Entitlements []string `json:"entitlements"`
	// Duration is how long a one-time product grants; 0 means for good. Several
	// purchases add up.
	Duration time.Duration `json:"duration,omitempty"`
	// Store says what the product is called at each rail that sells it.
	Store map[RailID]StoreIDs `json:"store"`
	// Credit is what a settled charge adds to the buyer's ledger.
	Credit *Credit `json:"credit,omitempty"`
}

// StoreIDs are a rail's names of a product.
type StoreIDs struct {
	// ProductID is the product at the rail.
	ProductID string `json:"productId"`
	// BasePlanID is that of android_store, for one plan of a subscription.
	BasePlanID string `json:"basePlanId,omitempty"`
	// PriceID is what checkouts of card_processor and merchant_a charge; it
	// identifies the product there too.
	PriceID string `json:"priceId,omitempty"`
}

// Credit is an amount of a ledger's currency in minor units.
type Credit struct {
	Currency string `json:"currency"`
	Amount   int64  `json:"amount"`
}
