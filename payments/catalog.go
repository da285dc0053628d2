package payments

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/kitbackend/kit/ledger"
)

// catalog finds products by their key and by their ids at the rails.
type catalog struct {
	byKey  map[string]Product
	byName map[storeName]string
	// entitling lists the keys of products that grant entitlements.
	entitling []string
}

// storeName identifies a product at a rail. Exact ids, with plan or price, win over the product id
// alone.
type storeName struct {
	rail             RailID
	id, narrow, kind string
}

func newCatalog(products []Product) catalog {
	c := catalog{byKey: make(map[string]Product), byName: make(map[storeName]string)}
	for _, p := range products {
		c.byKey[p.Key] = p
		if len(p.Entitlements) > 0 {
			c.entitling = append(c.entitling, p.Key)
		}
		for _, rail := range sorted(p.Store) {
			s := p.Store[rail]
			if s.BasePlanID != "" {
				c.add(storeName{rail, s.ProductID, s.BasePlanID, "plan"}, p.Key)
				continue
			}
			if s.PriceID != "" {
				c.add(storeName{rail, "", s.PriceID, "price"}, p.Key)
			}
			if s.ProductID != "" {
				c.add(storeName{rail, s.ProductID, "", ""}, p.Key)
			}
		}
	}
	return c
}

// add keeps the first of two products that share a name: of prices of one
// product, the product alone names the first.
func (c catalog) add(name storeName, key string) {
	if _, taken := c.byName[name]; !taken {
		c.byName[name] = key
	}
}

// lasts is how long a quantity grants, at most what a time.Duration can say.
func (p Product) lasts(quantity int64) time.Duration {
	if p.Duration > 0 && quantity > int64(math.MaxInt64/p.Duration) {
		return math.MaxInt64
	}
	return p.Duration * time.Duration(quantity)
}

// find returns the product of the ids that a rail named.
func (c catalog) find(rail RailID, productID, basePlanID, priceID string) (Product, bool) {
	for _, name := range []storeName{
		{rail, productID, basePlanID, "plan"}, {rail, "", priceID, "price"}, {rail, productID, "", ""}, {rail, "", productID, "price"},
	} {
		if name.id == "" && name.narrow == "" {
			continue
		}
		if key, ok := c.byName[name]; ok {
			return c.byKey[key], true
		}
	}
	return Product{}, false
}

func (c catalog) of(rail RailID, l *Lifecycle) (Product, bool) {
	if l == nil {
		return Product{}, false
	}
	return c.find(rail, l.ProductID, l.BasePlanID, l.PriceID)
}

// kind returns the kind of the products under a product id, whatever their plans.
func (c catalog) kind(rail RailID) func(string) ProductKind {
	return func(productID string) ProductKind {
		if p, ok := c.find(rail, productID, "", ""); ok {
			return p.Kind
		}
		for name, key := range c.byName {
			if name.rail == rail && name.id == productID && name.kind == "plan" {
				return c.byKey[key].Kind
			}
		}
		return ""
	}
}

func hasCurrency(l *ledger.Ledger, code string) bool {
	for _, key := range l.Capability().Config {
		if list, ok := key.Value.([]ledger.Currency); ok {
			return slices.ContainsFunc(list, func(c ledger.Currency) bool { return c.Code == code })
		}
	}
	return false
}

func sorted[K cmp.Ordered, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }

func orEmpty[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}
