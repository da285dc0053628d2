package payments

import (
	"context"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/internal/local"
	"github.com/kitbackend/kit/ledger"
)

// Config configures payments: who buys, the rails and the catalog.
type Config struct {
	// BillingSubject is the kind of subject that holds purchases; required.
	BillingSubject SubjectKind
	// ResolveSubject returns the subject that a user buys for, and whether the
	// user may manage its billing: check out, open the portal, submit and restore
	// purchases. It is required for organizations; for users it is not used.
	ResolveSubject func(ctx context.Context, userID string) (s Subject, manages bool, err error)
	// Rails are those that are on, each id once.
	Rails []Rail
	// ReturnURLs are the addresses to which a rail sends users back, for exactly the rails that are
	// on.
	ReturnURLs map[RailID]ReturnURLs
	// Products is the catalog.
	Products []Product
	// ManualEntitlements are keys that the control plane may grant and no product
	// sells.
	ManualEntitlements []string
	// NoGraceAccess makes purchases in billing-retry grace grant nothing.
	NoGraceAccess bool
	// Restore says what a restore does with purchases of another subject, by default [RestoreMove].
	Restore RestorePolicy
	// NoReconcile leaves the nightly job PAYMENTS_RECONCILE out.
	NoReconcile bool
	// CancelOnErase cancels renewing purchases when their subject is erased, at rails that support
	// it.
	CancelOnErase bool
	// BasePath is the mount prefix, by default "/payments".
	BasePath string
	// Database names the binding, by default "DB". Ledger and audit, if composed, must use the same
	// one.
	Database string
}

// SubjectKind is the kind of a subject.
type SubjectKind string

// The kinds of subject.
const (
	SubjectUser         SubjectKind = "user"
	SubjectOrganization SubjectKind = "organization"
)

// Subject is the holder of purchases: a user, or an organization with an id of the application, of
// at most 128 bytes.
type Subject struct {
	Type SubjectKind `json:"type"`
	ID   string      `json:"id"`
}

// RestorePolicy says what a restore does with a purchase of another subject.
type RestorePolicy string

// The restore policies. A purchase is moved, never copied.
const (
	// RestoreMove moves it to the caller.
	RestoreMove RestorePolicy = "move"
	// RestoreMoveInactive moves it only while it grants nothing.
	RestoreMoveInactive RestorePolicy = "move_inactive"
	// RestoreKeep leaves it with its subject.
	RestoreKeep RestorePolicy = "keep"
)

// ReturnURLs are the addresses to which a rail sends users back: https, or http on loopback outside
// of production. Those of the stores are pages or links of the application.
type ReturnURLs struct {
	Success string `json:"success"`
	Cancel  string `json:"cancel"`
	Portal  string `json:"portal"`
}

// Product is one entry of the catalog.
type Product struct {
	// Key is the product's name in the kit: 1 to 64 lower case letters, digits, "_", "-" and ".".
	Key  string      `json:"key"`
	Kind ProductKind `json:"kind"`
	// Entitlements are the keys that it grants, of the same form.
	Entitlements []string `json:"entitlements"`
	// Duration is how long a one-time product grants; 0 means forever. The durations of several
	// purchases add up.
	Duration time.Duration `json:"duration,omitempty"`
	// Store holds the ids of the product at each rail that sells it.
	Store map[RailID]StoreIDs `json:"store"`
	// Credit is the amount that a settled charge adds to the buyer's ledger; a refund takes it
	// back. A charge without a credit gets the credit of the catalog when its purchase is next
	// updated, so a credit that is added to a product already sold applies to past charges too. To
	// credit new sales alone, add a new product.
	Credit *Credit `json:"credit,omitempty"`
}

// StoreIDs are a rail's names of a product.
type StoreIDs struct {
	// ProductID is the product at the rail, which checkouts of merchant_b sell.
	ProductID string `json:"productId"`
	// BasePlanID is that of android_store, for one plan of a subscription.
	BasePlanID string `json:"basePlanId,omitempty"`
	// PriceID is what checkouts of card_processor and merchant_a charge; it
	// identifies the product there too. Without it they refuse a checkout with
	// payments/product_unavailable.
	PriceID string `json:"priceId,omitempty"`
}

// Credit is an amount of a ledger's currency in minor units.
type Credit struct {
	Currency string `json:"currency"`
	Amount   int64  `json:"amount"`
}

const maxStoreID = 200

var (
	keyForm     = regexp.MustCompile(`^[a-z0-9][a-z0-9_.-]{0,63}$`)
	ownRailForm = regexp.MustCompile(`^app_[a-z0-9_]{1,40}$`)
)

// kitRails are the rails that the kit has packages for.
var kitRails = []RailID{RailIOSStore, RailAndroidStore, RailCardProcessor, RailMerchantA, RailMerchantB}

func (c Config) withDefaults() Config {
	if c.BasePath == "" {
		c.BasePath = "/payments"
	}
	if c.Database == "" {
		c.Database = "DB"
	}
	if c.Restore == "" {
		c.Restore = RestoreMove
	}
	c.Products = slices.Clone(c.Products)
	for i := range c.Products {
		c.Products[i].Entitlements = orEmpty(c.Products[i].Entitlements)
	}
	return c
}

// validate reports everything that is wrong.
func (c Config) validate(faults *capability.Faults, production bool, currencies *ledger.Ledger) {
	c.validateSubject(faults)
	if !slices.Contains([]RestorePolicy{RestoreMove, RestoreMoveInactive, RestoreKeep}, c.Restore) {
		faults.Add("restore", c.Restore, "is no policy", "use move, move_inactive or keep")
	}
	on := c.validateRails(faults)
	c.validateReturns(faults, on, production)
	sold := c.validateProducts(faults, on, currencies)
	seen := make(map[string]bool)
	for i, key := range c.ManualEntitlements {
		at := fmt.Sprintf("manualEntitlements[%d]", i)
		switch {
		case !keyForm.MatchString(key):
			faults.Add(at, key, "is not a key", "use 1 to 64 lower case letters, digits, _, - and .")
		case seen[key]:
			faults.Add(at, key, "is declared twice", "declare each key once")
		case sold[key]:
			faults.Add(at, key, "is sold by a product", "give what is granted by hand a key of its own")
		}
		seen[key] = true
	}
}

func (c Config) validateSubject(faults *capability.Faults) {
	switch c.BillingSubject {
	case SubjectUser:
		if c.ResolveSubject != nil {
			faults.Add("resolveSubject", nil, "is set although users buy for themselves", "leave it out, or bill organizations")
		}
	case SubjectOrganization:
		if c.ResolveSubject == nil {
			faults.Add("resolveSubject", nil, "is missing", "say which organization a user buys for")
		}
	case "":
		faults.Add("billingSubject", nil, "is missing", "use user or organization")
	default:
		faults.Add("billingSubject", c.BillingSubject, "is no kind of subject", "use user or organization")
	}
}

func (c Config) validateRails(faults *capability.Faults) map[RailID]bool {
	on := make(map[RailID]bool)
	for i, rail := range c.Rails {
		at := fmt.Sprintf("rails[%d]", i)
		switch {
		case !slices.Contains(kitRails, rail.ID) && !ownRailForm.MatchString(string(rail.ID)):
			faults.Add(at, rail.ID, "is no id of a rail", "name a rail of your own app_ and 1 to 40 lower case letters, digits and underscores")
		case on[rail.ID]:
			faults.Add(at, rail.ID, "is on twice", "compose each rail once")
		case rail.Verify == nil || rail.Expand == nil:
			faults.Add(at, rail.ID, "cannot read its webhooks", "set Verify and Expand")
		case rail.Credentials.Name != string(rail.ID) || len(rail.Credentials.Required) == 0:
			faults.Add(at, rail.ID, "declares no credentials", "set Credentials to a block named like the rail")
		}
		on[rail.ID] = true
	}
	return on
}

func (c Config) validateReturns(faults *capability.Faults, on map[RailID]bool, production bool) {
	for _, rail := range c.Rails {
		if _, ok := c.ReturnURLs[rail.ID]; !ok {
			faults.Add("returnURLs", rail.ID, "is missing for a rail that is on", "say where the rail sends people back to")
		}
	}
	for _, id := range sorted(c.ReturnURLs) {
		if !on[id] {
			faults.Add("returnURLs", id, "is of a rail that is off", "compose the rail, or remove the block")
			continue
		}
		urls := c.ReturnURLs[id]
		for _, each := range []struct{ name, value string }{{"success", urls.Success}, {"cancel", urls.Cancel}, {"portal", urls.Portal}} {
			if !returnURL(each.value, production) {
				faults.Add(fmt.Sprintf("returnURLs.%s.%s", id, each.name), each.value,
					"is not an https address", "give an absolute https address; http is for loopback outside of production")
			}
		}
	}
}

func returnURL(raw string, production bool) bool {
	u, err := url.Parse(raw)
	if err != nil || u.Host == "" || u.User != nil {
		return false
	}
	return u.Scheme == "https" || u.Scheme == "http" && local.Host(u.Hostname()) && !production
}

// validateProducts returns the entitlements that products sell.
func (c Config) validateProducts(faults *capability.Faults, on map[RailID]bool, money *ledger.Ledger) map[string]bool {
	sold, keys, ids := make(map[string]bool), make(map[string]bool), make(map[string]string)
	for i, p := range c.Products {
		at := func(field string) string { return fmt.Sprintf("products[%d].%s", i, field) }
		if !keyForm.MatchString(p.Key) {
			faults.Add(at("key"), p.Key, "is not a key", "use 1 to 64 lower case letters, digits, _, - and .")
		} else if keys[p.Key] {
			faults.Add(at("key"), p.Key, "is declared twice", "declare each product once")
		}
		keys[p.Key] = true
		if !slices.Contains([]ProductKind{KindSubscription, KindOneTime, KindConsumable}, p.Kind) {
			faults.Add(at("kind"), p.Kind, "is no kind of product", "use subscription, one_time or consumable")
		}
		if p.Duration != 0 && (p.Kind != KindOneTime || p.Duration < time.Minute || p.Duration > maxDuration) {
			faults.Add(at("duration"), p.Duration, "is not for this product", "only a one_time product has a duration, of a minute to a hundred years")
		}
		for _, key := range p.Entitlements {
			if !keyForm.MatchString(key) {
				faults.Add(at("entitlements"), key, "is not a key", "use 1 to 64 lower case letters, digits, _, - and .")
			}
			sold[key] = true
		}
		c.validateStore(faults, at, p, on, ids)
		c.validateCredit(faults, at, p, money)
	}
	return sold
}

const maxDuration = 100 * 365 * 24 * time.Hour

func (c Config) validateStore(faults *capability.Faults, at func(string) string, p Product, on map[RailID]bool, ids map[string]string) {
	if len(p.Store) == 0 {
		faults.Add(at("store"), p.Key, "is sold on no rail", "name its ids on at least one rail")
	}
	for _, rail := range sorted(p.Store) {
		s := p.Store[rail]
		if !on[rail] {
			faults.Add(at("store"), rail, "is a rail that is off", "compose the rail, or remove the ids")
		}
		if s.ProductID == "" && s.PriceID == "" {
			faults.Add(at("store"), rail, "names no product", "set ProductID or PriceID")
		}
		if max(len(s.ProductID), len(s.BasePlanID), len(s.PriceID)) > maxStoreID {
			faults.Add(at("store"), rail, "has an id that is too long", fmt.Sprintf("use at most %d bytes", maxStoreID))
		}
		name := strings.Join([]string{string(rail), s.ProductID, s.BasePlanID, s.PriceID}, "\x00")
		if other, taken := ids[name]; taken {
			faults.Add(at("store"), rail, "has the ids of "+other, "give each product ids of its own")
		}
		ids[name] = p.Key
	}
}

func (c Config) validateCredit(faults *capability.Faults, at func(string) string, p Product, money *ledger.Ledger) {
	switch {
	case p.Credit == nil:
	case c.BillingSubject == SubjectOrganization:
		faults.Add(at("credit"), p.Key, "credits an organization", "only users have ledger accounts")
	case money == nil:
		faults.AddFault(capability.Fault{Key: at("credit"), Value: p.Key, Reason: "credits a ledger that is not composed",
			Fix: "compose ledger too, or remove the credit", Peer: ledger.Name})
	case p.Credit.Amount < 1 || p.Credit.Amount > maxCredit:
		faults.Add(at("credit"), p.Credit.Amount, "is no amount", fmt.Sprintf("use 1 to %d", int64(maxCredit)))
	case !hasCurrency(money, p.Credit.Currency):
		faults.Add(at("credit"), p.Credit.Currency, "is no currency of the ledger", "declare it in the ledger's configuration")
	}
}

// maxCredit leaves room for quantities.
const maxCredit = 1 << 40

func (c Config) keys() []capability.ConfigKey {
	rails := make([]RailID, len(c.Rails))
	for i, rail := range c.Rails {
		rails[i] = rail.ID
	}
	return []capability.ConfigKey{
		{Key: "billingSubject", Value: c.BillingSubject, Choices: []string{"user", "organization"}, Summary: "What kind of thing holds a purchase."},
		{Key: "resolveSubject", Value: c.ResolveSubject != nil, Summary: "Whether the application says for whom a user buys."},
		{Key: "rails", Value: rails, Summary: "The rails that are on."},
		{Key: "returnURLs", Value: c.ReturnURLs, Summary: "Where each rail sends people back to."},
		{Key: "products", Value: c.Products, Summary: "The catalog."},
		{Key: "manualEntitlements", Value: orEmpty(c.ManualEntitlements), Summary: "Keys the control plane may grant that no product sells."},
		{Key: "graceGrantsAccess", Value: !c.NoGraceAccess, Summary: "Whether a purchase in billing-retry grace grants."},
		{Key: "restore", Value: c.Restore, Choices: []string{"move", "move_inactive", "keep"}, Summary: "What a restore does with what another subject holds."},
		{Key: "reconcile", Value: !c.NoReconcile, Summary: "Whether PAYMENTS_RECONCILE runs."},
		{Key: "cancelOnErase", Value: c.CancelOnErase, Summary: "Whether erasing a subject cancels what renews."},
		{Key: "database", Value: c.Database, Summary: "The database binding that holds the purchases."},
		{Key: "basePath", Value: c.BasePath, Summary: "Where the routes are mounted."},
	}
}

// Choices lists the values, for documents.
func (SubjectKind) Choices() []string {
	return []string{string(SubjectUser), string(SubjectOrganization)}
}
