package payments_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"context"

	"github.com/kitbackend/kit"
	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/capability/capabilitytest"
	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/kittest"
	"github.com/kitbackend/kit/payments"
	"github.com/kitbackend/kit/secrets"
)

func TestCapability(t *testing.T) {
	capabilitytest.Run(t, func(h capability.Host, basePath string) (capability.Capability, error) {
		s, err := secrets.New(h, secrets.Config{Provider: secrets.NewMemory(time.Now)}, secrets.Peers{})
		if err != nil {
			return capability.Capability{}, err
		}
		cfg := config(newFake())
		cfg.BasePath = basePath
		cfg.Products = slices.DeleteFunc(cfg.Products, func(p payments.Product) bool { return p.Credit != nil })
		p, err := payments.New(h, cfg, payments.Peers{Secrets: s})
		if err != nil {
			return capability.Capability{}, err
		}
		return p.Capability(), nil
	})
}

// TestFaults finds each fault of a configuration at assembly, and all of them at
// once.
func TestFaults(t *testing.T) {
	resolve := func(context.Context, string) (payments.Subject, bool, error) { return payments.Subject{}, false, nil }
	product := func(adjust func(*payments.Product)) func(*payments.Config) {
		return func(c *payments.Config) { adjust(&c.Products[len(c.Products)-1]) }
	}
	for want, adjust := range map[string]func(*payments.Config){
		"billingSubject: is missing":                                func(c *payments.Config) { c.BillingSubject = "" },
		"billingSubject = \"team\": is no kind":                     func(c *payments.Config) { c.BillingSubject = "team" },
		"resolveSubject: is missing":                                func(c *payments.Config) { c.BillingSubject = payments.SubjectOrganization },
		"resolveSubject: is set although":                           func(c *payments.Config) { c.ResolveSubject = resolve },
		"credits an organization":                                   func(c *payments.Config) { c.BillingSubject, c.ResolveSubject = payments.SubjectOrganization, resolve },
		"restore = \"copy\": is no policy":                          func(c *payments.Config) { c.Restore = "copy" },
		"rails[3] = \"ios_store\": is on twice":                     func(c *payments.Config) { c.Rails = append(c.Rails, c.Rails[0]) },
		"rails[0] = \"mine\": is no id of a rail":                   func(c *payments.Config) { c.Rails[0].ID = "mine" },
		"rails[0] = \"ios_store\": cannot read its webhooks":        func(c *payments.Config) { c.Rails[0].Verify = nil },
		"rails[0] = \"ios_store\": declares no credentials":         func(c *payments.Config) { c.Rails[0].Credentials.Required = nil },
		"returnURLs = \"ios_store\": is missing for a rail that is": func(c *payments.Config) { delete(c.ReturnURLs, ios) },
		"returnURLs = \"merchant_a\": is of a rail that is off":     func(c *payments.Config) { c.ReturnURLs[payments.RailMerchantA] = payments.ReturnURLs{} },
		"returnURLs.card_processor.success = \"http://shop.example\": is not an https": func(c *payments.Config) {
			u := c.ReturnURLs[card]
			u.Success = "http://shop.example"
			c.ReturnURLs[card] = u
		},
		"key = \"Pro!\": is not a key":          product(func(p *payments.Product) { p.Key = "Pro!" }),
		"key = \"pro\": is declared twice":      product(func(p *payments.Product) { p.Key = "pro" }),
		"kind = \"gift\": is no kind":           product(func(p *payments.Product) { p.Kind = "gift" }),
		"is not for this product":               product(func(p *payments.Product) { p.Duration = time.Hour }),
		"entitlements = \"A B\": is not a key":  product(func(p *payments.Product) { p.Entitlements = []string{"A B"} }),
		"store = \"coins\": is sold on no rail": product(func(p *payments.Product) { p.Store = nil }),
		"store = \"merchant_b\": is a rail that is off": product(func(p *payments.Product) {
			p.Store = map[payments.RailID]payments.StoreIDs{payments.RailMerchantB: {ProductID: "x"}}
		}),
		"names no product": product(func(p *payments.Product) { p.Store = map[payments.RailID]payments.StoreIDs{ios: {}} }),
		"has an id that is too long": product(func(p *payments.Product) {
			p.Store = map[payments.RailID]payments.StoreIDs{ios: {ProductID: strings.Repeat("x", 201)}}
		}),
		"has the ids of pro": product(func(p *payments.Product) {
			p.Store = map[payments.RailID]payments.StoreIDs{ios: {ProductID: "com.pro"}}
		}),
		"credit = \"0\": is no amount":                 product(func(p *payments.Product) { p.Credit = &payments.Credit{Currency: "coins"} }),
		"is no currency of the ledger":                 product(func(p *payments.Product) { p.Credit = &payments.Credit{Currency: "gold", Amount: 1} }),
		"manualEntitlements[0] = \"A\": is not a key":  func(c *payments.Config) { c.ManualEntitlements = []string{"A"} },
		"manualEntitlements[1] = \"vip\": is declared": func(c *payments.Config) { c.ManualEntitlements = []string{"vip", "vip"} },
		"manualEntitlements[0] = \"pro\": is sold":     func(c *payments.Config) { c.ManualEntitlements = []string{"pro"} },
	} {
		cfg := config(newFake())
		adjust(&cfg)
		_, err := kittest.Compose(t, append(peers(), kit.WithPayments(cfg))...)
		var fault *capability.Fault
		if !errors.As(err, &fault) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v", want, err)
		}
	}
	both := config(newFake())
	both.BillingSubject, both.Restore = "", "copy"
	_, err := kittest.Compose(t, append(peers(), kit.WithPayments(both))...)
	for _, want := range []string{"billingSubject", "restore"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("not all faults at once: %v", err)
		}
	}
	_, err = kittest.Compose(t, kit.WithPayments(config(newFake())))
	for _, want := range []string{"needs the capability secrets", "credits a ledger that is not composed"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v", want, err)
		}
	}
	memory, err := database.OpenMemory()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = memory.Close() })
	elsewhere := config(newFake())
	elsewhere.Database = "OTHER"
	if _, err = kittest.Compose(t, append(peers(), kit.WithNamedDatabase("OTHER", memory), kit.WithPayments(elsewhere))...); err == nil || !strings.Contains(err.Error(), "database") {
		t.Errorf("another database than the ledger's: %v", err)
	}
}

// TestOwnRail: an application's rail has a name of its own and a row of its own.
func TestOwnRail(t *testing.T) {
	f := newFake()
	s := openWith(t, func(c *payments.Config) {
		c.Rails = append(c.Rails, f.rail("app_giftcards"))
		c.ReturnURLs["app_giftcards"] = c.ReturnURLs[card]
		c.Products = append(c.Products, payments.Product{Key: "gift", Kind: payments.KindOneTime, Entitlements: []string{"gift"},
			Store: map[payments.RailID]payments.StoreIDs{"app_giftcards": {ProductID: "gift"}}})
	})
	s.post("app_giftcards", message{ID: "x"}).Want(503, "payments/rail_not_configured")
	if _, err := s.Secrets().Rotate(t.Context(), payments.SecretName, secrets.Blocks{"app_giftcards": {
		"apiKey": secrets.NewValue("test_key"), "webhookSecret": secrets.NewValue(secret)}}); err != nil {
		t.Fatal(err)
	}
	o := sub("g1", 1, payments.Lifecycle{ProductID: "gift", State: payments.StateActive})
	o.AccountToken = s.token("ada")
	s.deliver("app_giftcards", message{ID: "d", Observations: []payments.Observation{o}})
	s.wantEntitled("ada", "gift", true)
}
