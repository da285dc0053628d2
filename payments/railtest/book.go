package railtest

import (
	"context"
	"testing"

	"github.com/kitbackend/kit/payments"
	"github.com/kitbackend/kit/payments/railtest/script"
)

// Book takes deliveries as payments does, without its database: it verifies,
// expands and merges them.
type Book struct {
	t      testing.TB
	rail   payments.Rail
	clock  *Clock
	Access payments.Access
	facts  map[string]payments.Facts
}

// NewBook returns an empty book for a rail.
func NewBook(t testing.TB, f Fixture, clock *Clock) *Book {
	return &Book{t: t, rail: f.Rail, clock: clock, Access: f.Access(clock), facts: make(map[string]payments.Facts)}
}

// Deliver takes deliveries; each must be genuine.
func (b *Book) Deliver(deliveries []script.Delivery) []payments.Observation {
	b.t.Helper()
	var all []payments.Observation
	for _, d := range deliveries {
		verified, err := b.rail.Verify(context.Background(), b.Access, d.Header, d.Body)
		if err != nil {
			b.t.Fatalf("a delivery is refused: %v", err)
		}
		observations, err := b.rail.Expand(context.Background(), b.Access, verified)
		if err != nil {
			b.t.Fatalf("%s does not expand: %v", verified.Type, err)
		}
		all = append(all, b.Observe(observations, nil)...)
	}
	return all
}

// Observe takes what another function of the rail returned.
func (b *Book) Observe(observations []payments.Observation, err error) []payments.Observation {
	b.t.Helper()
	if err != nil {
		b.t.Fatal(err)
	}
	for _, o := range observations {
		b.facts[o.TransactionID] = payments.Merge(b.facts[o.TransactionID], o)
	}
	return observations
}

// Len is how many purchases there are.
func (b *Book) Len() int { return len(b.facts) }

// Charges is how many charges of a purchase settled.
func (b *Book) Charges(transactionID string) (settled int) {
	for _, c := range b.facts[transactionID].Charges {
		if c.Charge.Value != nil && c.Charge.Value.Settled && !c.Charge.Value.Trial {
			settled++
		}
	}
	return settled
}

// Want fails the test unless a purchase has a status now, and returns the rest.
func (b *Book) Want(transactionID string, kind payments.ProductKind, want payments.Status) payments.Projection {
	b.t.Helper()
	terms := payments.Terms{
		Kind: kind, ReportsCompleted: b.rail.ReportsCompleted, NeverUnpaid: b.rail.ID == payments.RailIOSStore, Leeway: b.rail.RenewalLeeway, Grace: true,
	}
	facts, ok := b.facts[transactionID]
	if !ok {
		b.t.Fatalf("there is no purchase %s", transactionID)
	}
	p := payments.Project(facts, terms, payments.At(b.clock.Now()))
	if p.Status != want {
		b.t.Fatalf("on %s the purchase is %s, want %s", b.clock.Now().Format("2 January 15:04"), p.Status, want)
	}
	return p
}
