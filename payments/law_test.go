package payments

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"reflect"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func drawInstant(t *rapid.T, name string) Instant {
	return Instant(rapid.SampledFrom([]int64{0, 1000, 2000, 3000, 4000}).Draw(t, name))
}

// drawObservation draws what a rail may say about one purchase, in small ranges so
// that versions, charges and refunds collide.
func drawObservation(t *rapid.T) Observation {
	o := Observation{TransactionID: "t", Version: rapid.Int64Range(1, 4).Draw(t, "version"), Environment: EnvironmentSandbox}
	states := []State{StateActive, StatePending, StateGrace, StateHold, StatePaused, StateEnded, StateAbandoned}
	if rapid.Bool().Draw(t, "lifecycle") {
		o.Lifecycle = &Lifecycle{
			ProductID: rapid.SampledFrom([]string{"a", "b"}).Draw(t, "product"), State: rapid.SampledFrom(states).Draw(t, "state"),
			AccessUntil: drawInstant(t, "until"), GraceUntil: drawInstant(t, "grace"), ResumeAt: drawInstant(t, "resume"),
			WillRenew: rapid.Bool().Draw(t, "renew"), EndedAt: drawInstant(t, "ended"), BillingIssueSince: drawInstant(t, "issue"),
			PeriodType: rapid.SampledFrom([]PeriodType{"", PeriodTrial}).Draw(t, "period"), CancelAt: drawInstant(t, "cancel"),
			PauseAt: drawInstant(t, "pause"), Prepaid: rapid.Bool().Draw(t, "prepaid"),
		}
	}
	for i := range rapid.IntRange(0, 2).Draw(t, "charges") {
		o.Charges = append(o.Charges, Charge{ID: fmt.Sprint("c", rapid.IntRange(0, 1).Draw(t, "charge")), At: drawInstant(t, "at"), AmountMinor: int64(i),
			Settled: rapid.Bool().Draw(t, "settled"), Trial: rapid.Bool().Draw(t, "trial"), Proration: rapid.Bool().Draw(t, "proration"),
			Separate: rapid.Bool().Draw(t, "separate"), PeriodEnd: drawInstant(t, "end")})
	}
	if rapid.Bool().Draw(t, "refund") {
		o.Refunds = []Refund{{ID: rapid.SampledFrom([]string{"r", "s"}).Draw(t, "refundId"), ChargeID: fmt.Sprint("c", rapid.IntRange(0, 1).Draw(t, "of")),
			Full: rapid.Bool().Draw(t, "full"), Chargeback: rapid.Bool().Draw(t, "chargeback"), Reversed: rapid.Bool().Draw(t, "reversed")}}
	}
	if rapid.IntRange(0, 4).Draw(t, "revoke") == 0 {
		o.Revoke = &Revoke{At: drawInstant(t, "revokedAt"), Reversed: rapid.Bool().Draw(t, "given back")}
	}
	if rapid.Bool().Draw(t, "token") {
		o.AccountToken = rapid.SampledFrom([]string{"x", "y"}).Draw(t, "accountToken")
	}
	return o
}

func mergeAll(list []Observation) (f Facts) {
	for _, o := range list {
		f = Merge(f, o)
	}
	return f
}

// TestMergeIsCommutativeAndIdempotent: any order and any repetition lead to the
// same facts, and so to the same status at every instant.
func TestMergeIsCommutativeAndIdempotent(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		list := rapid.SliceOfN(rapid.Custom(drawObservation), 1, 8).Draw(t, "observations")
		want := mergeAll(list)
		random := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))
		for range 5 {
			shuffled := append([]Observation(nil), list...)
			for range random.IntN(4) {
				shuffled = append(shuffled, list[random.IntN(len(list))])
			}
			random.Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
			if diff := cmp.Diff(flat(want), flat(mergeAll(shuffled))); diff != "" {
				t.Fatalf("another order, other facts (-first +shuffled):\n%s", diff)
			}
		}
	})
}

// TestMergeKeepsItsArguments: merging does not change what it is given.
func TestMergeKeepsItsArguments(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		list := rapid.SliceOfN(rapid.Custom(drawObservation), 2, 5).Draw(t, "observations")
		before := mergeAll(list[:1])
		text := flat(before)
		for _, o := range list[1:] {
			Merge(before, o)
		}
		if diff := cmp.Diff(text, flat(before)); diff != "" {
			t.Fatal(diff)
		}
	})
}

// flat shows facts as JSON, charges included.
func flat(f Facts) string {
	text, _ := json.Marshal(struct {
		Facts   Facts
		Charges map[string]ChargeFacts
	}{f, f.Charges})
	return string(text)
}

// TestProjectionLaws holds every projection to the specification's table.
func TestProjectionLaws(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := mergeAll(rapid.SliceOfN(rapid.Custom(drawObservation), 1, 8).Draw(t, "observations"))
		terms := Terms{Kind: rapid.SampledFrom([]ProductKind{KindSubscription, KindOneTime, KindConsumable}).Draw(t, "kind"),
			ReportsCompleted: rapid.Bool().Draw(t, "store"), NeverUnpaid: rapid.Bool().Draw(t, "ios"), Grace: rapid.Bool().Draw(t, "policy"),
			Leeway: time.Duration(rapid.IntRange(0, 1).Draw(t, "leeway")) * 500 * time.Millisecond}
		for now := Instant(0); now < 6000; now += 250 {
			p := Project(f, terms, now)
			if terms.NeverUnpaid && (p.Status == StatusNeverPaid || p.Then == StatusNeverPaid) {
				t.Fatalf("never_paid where nothing is ever unpaid, at %d", now)
			}
			if p.ResumeAt != 0 && p.Status != StatusPaused {
				t.Fatalf("resumeAt of %s", p.Status)
			}
			if p.GraceUntil != 0 && p.Status != StatusInGrace {
				t.Fatalf("graceUntil of %s", p.Status)
			}
			if p.Grants != p.Status.Grants(terms.Grace) || p.MoneyArrived != p.Status.MoneyArrived() {
				t.Fatalf("%s grants %v, money %v", p.Status, p.Grants, p.MoneyArrived)
			}
			if p.ChangesAt == 0 {
				continue
			}
			if p.ChangesAt <= now {
				t.Fatalf("%s changes at %d, which is past at %d", p.Status, p.ChangesAt, now)
			}
			if before := Project(f, terms, p.ChangesAt-1); before.Status != p.Status {
				t.Fatalf("%s becomes %s before it is said to", p.Status, before.Status)
			}
			after := Project(f, terms, p.ChangesAt)
			if after.Status != p.Then {
				t.Fatalf("%s becomes %s at %d, not %s as said", p.Status, after.Status, p.ChangesAt, p.Then)
			}
			after.GrantsUntil, after.ChangesAt, after.Then = 0, 0, ""
			read := (&row{facts: f, p: p}).at(p.ChangesAt, terms.Grace)
			if diff := cmp.Diff(after, read); diff != "" {
				t.Fatalf("what nobody has written down reads otherwise: %s", diff)
			}
		}
	})
}

// TestStatusTable is the table of the specification.
func TestStatusTable(t *testing.T) {
	for status, want := range map[Status][3]bool{ // grants by policy, grants without grace, money
		StatusActive: {true, true, true}, StatusInGrace: {true, false, false}, StatusOnHold: {}, StatusCanceled: {true, true, true},
		StatusExpired: {false, false, true}, StatusNeverPaid: {}, StatusRefunded: {}, StatusRevoked: {}, StatusPaused: {false, false, true},
	} {
		if got := [3]bool{status.Grants(true), status.Grants(false), status.MoneyArrived()}; got != want {
			t.Errorf("%s: %v, want %v", status, got, want)
		}
	}
}

// TestGracePolicyCountsAsItIsNow: whether grace grants is not what it was when a
// purchase was written.
func TestGracePolicyCountsAsItIsNow(t *testing.T) {
	r := &row{p: Projection{Status: StatusInGrace, Grants: true}}
	for _, policy := range []bool{true, false} {
		if got := r.at(1, policy).Grants; got != policy {
			t.Errorf("in grace grants %v, want %v", got, policy)
		}
	}
}

// TestGraceCarriesTheLaterDate: of the paid period's end and the window; only a
// window that the rail reports ends it.
func TestGraceCarriesTheLaterDate(t *testing.T) {
	for name, c := range map[string]struct {
		paid, window, period, want Instant
		ends                       bool
	}{
		"window behind the period": {2000, 3000, 2000, 3000, true},
		"period behind the window": {3000, 2000, 3000, 3000, true},
		"no window":                {2000, 0, 4000, 2000, false},
		"nothing paid":             {0, 3000, 4000, 3000, true},
		"neither":                  {0, 0, 4000, 4000, false},
	} {
		o := Observation{Version: 1, Lifecycle: &Lifecycle{State: StateGrace, AccessUntil: c.period, GraceUntil: c.window, WillRenew: true}}
		if c.paid > 0 {
			o.Charges = []Charge{{ID: "a", Settled: true, PeriodEnd: c.paid}}
		}
		f, terms := mergeAll([]Observation{o}), Terms{Kind: KindSubscription, Grace: true}
		if p := Project(f, terms, c.want-1); p.Status != StatusInGrace || p.GraceUntil != c.want {
			t.Errorf("%s: %s until %d, want in_grace until %d", name, p.Status, p.GraceUntil, c.want)
		}
		want := StatusInGrace
		if c.ends {
			want = StatusOnHold
		}
		if p := Project(f, terms, c.want); p.Status != want {
			t.Errorf("%s: %s at the date, want %s", name, p.Status, want)
		}
	}
}

// TestPrecedence: what took the money or the access away comes first.
func TestPrecedence(t *testing.T) {
	paid := func(id string, at Instant) Charge { return Charge{ID: id, At: at, Settled: true} }
	active := &Lifecycle{ProductID: "a", State: StateActive, WillRenew: true, AccessUntil: 10_000}
	terms := Terms{Kind: KindSubscription}
	changed := []Charge{paid("a", 1), {ID: "b", At: 2, Settled: true, Proration: true}}
	separate := []Charge{paid("a", 1), {ID: "b", At: 2, Settled: true, Separate: true}}
	for name, c := range map[string]struct {
		list []Observation
		want Status
	}{
		"refund of the latest charge": {[]Observation{{Version: 1, Lifecycle: active, Charges: []Charge{paid("a", 1)}, Refunds: []Refund{{ID: "r", ChargeID: "a", Full: true}}}}, StatusRefunded},
		"renewal after a refund":      {[]Observation{{Version: 1, Lifecycle: active, Charges: []Charge{paid("a", 1), paid("b", 2)}, Refunds: []Refund{{ID: "r", ChargeID: "a", Full: true}}}}, StatusActive},
		"chargeback":                  {[]Observation{{Version: 1, Lifecycle: active, Charges: []Charge{paid("a", 1)}, Refunds: []Refund{{ID: "r", ChargeID: "a", Full: true, Chargeback: true}}}}, StatusRevoked},
		"chargeback won back": {[]Observation{{Version: 1, Lifecycle: active, Charges: []Charge{paid("a", 1)}, Refunds: []Refund{{ID: "r", ChargeID: "a", Chargeback: true}}},
			{Version: 2, Refunds: []Refund{{ID: "r", ChargeID: "a", Chargeback: true, Reversed: true}}}}, StatusActive},
		"two halves refunded": {[]Observation{{Version: 1, Lifecycle: active, Charges: []Charge{{ID: "a", Settled: true, AmountMinor: 10}},
			Refunds: []Refund{{ID: "r", ChargeID: "a", AmountMinor: 5}, {ID: "s", ChargeID: "a", AmountMinor: 5}}}}, StatusRefunded},
		"three thirds refunded": {[]Observation{{Version: 1, Lifecycle: active, Charges: []Charge{{ID: "a", Settled: true, AmountMinor: 999}},
			Refunds: []Refund{{ID: "r", ChargeID: "a", AmountMinor: 333}, {ID: "s", ChargeID: "a", AmountMinor: 333}, {ID: "t", ChargeID: "a", AmountMinor: 333}}}}, StatusRefunded},
		"more than all refunded": {[]Observation{{Version: 1, Lifecycle: active, Charges: []Charge{{ID: "a", Settled: true, AmountMinor: 1<<63 - 1}},
			Refunds: []Refund{{ID: "r", ChargeID: "a", AmountMinor: 1<<63 - 2}, {ID: "s", ChargeID: "a", AmountMinor: 1<<63 - 1}}}}, StatusRefunded},
		"each of three refunded": {[]Observation{{Version: 1, Lifecycle: active, Charges: []Charge{{ID: "a", Settled: true, Quantity: 3}},
			Refunds: []Refund{{ID: "r", ChargeID: "a", Quantity: 1}, {ID: "s", ChargeID: "a", Quantity: 1}, {ID: "t", ChargeID: "a", Quantity: 1}}}}, StatusRefunded},
		"one refunded of nobody knows what": {[]Observation{{Version: 1, Lifecycle: active, Refunds: []Refund{{ID: "r", ChargeID: "a", Quantity: 1}}}}, StatusActive},
		"refund of nothing paid": {[]Observation{{Version: 1, Lifecycle: active, Charges: []Charge{{ID: "a", Settled: true, AmountMinor: -5}},
			Refunds: []Refund{{ID: "r", ChargeID: "a", AmountMinor: 5}}}}, StatusActive},
		"a part refunded": {[]Observation{{Version: 1, Lifecycle: active, Charges: []Charge{{ID: "a", Settled: true, AmountMinor: 10}}, Refunds: []Refund{{ID: "r", ChargeID: "a", AmountMinor: 9}}}}, StatusActive},
		"chargeback of the period behind a change of plan": {[]Observation{{Version: 1, Lifecycle: active, Charges: changed,
			Refunds: []Refund{{ID: "r", ChargeID: "a", Full: true, Chargeback: true}}}}, StatusRevoked},
		"period credited for a change of plan": {[]Observation{{Version: 1, Lifecycle: active, Charges: changed,
			Refunds: []Refund{{ID: "credit", ChargeID: "a", Full: true}}}}, StatusActive},
		"change of plan refunded": {[]Observation{{Version: 1, Lifecycle: active, Charges: changed,
			Refunds: []Refund{{ID: "r", ChargeID: "b", Full: true}}}}, StatusActive},
		"period and change of plan refunded": {[]Observation{{Version: 1, Lifecycle: active, Charges: changed,
			Refunds: []Refund{{ID: "r", ChargeID: "a", Full: true}, {ID: "r", ChargeID: "b", Full: true}}}}, StatusRefunded},
		"renewal behind a change of plan refunded": {[]Observation{{Version: 1, Lifecycle: active, Charges: append([]Charge{paid("c", 3)}, changed...),
			Refunds: []Refund{{ID: "r", ChargeID: "c", Full: true}}}}, StatusRefunded},
		"change of plan refunded, and nothing else paid": {[]Observation{{Version: 1, Lifecycle: active, Charges: changed[1:],
			Refunds: []Refund{{ID: "r", ChargeID: "b", Full: true}}}}, StatusRefunded},
		"refund of a separate charge": {[]Observation{{Version: 1, Lifecycle: active, Charges: separate,
			Refunds: []Refund{{ID: "r", ChargeID: "b", Full: true}}}}, StatusActive},
		"chargeback of a separate charge": {[]Observation{{Version: 1, Lifecycle: active, Charges: separate,
			Refunds: []Refund{{ID: "r", ChargeID: "b", Full: true, Chargeback: true}}}}, StatusActive},
		"period refunded before a separate charge": {[]Observation{{Version: 1, Lifecycle: active, Charges: separate,
			Refunds: []Refund{{ID: "r", ChargeID: "a", Full: true}}}}, StatusRefunded},
		"ended with nothing but a separate charge": {[]Observation{{Version: 1, Lifecycle: &Lifecycle{State: StateEnded}, Charges: separate[1:]}}, StatusNeverPaid},
		"refund first":         {[]Observation{{Version: 1, Refunds: []Refund{{ID: "r", ChargeID: "a", Full: true}}}}, StatusRefunded},
		"revoked":              {[]Observation{{Version: 1, Lifecycle: active, Revoke: &Revoke{At: 1}}}, StatusRevoked},
		"revoked and back":     {[]Observation{{Version: 1, Lifecycle: active, Revoke: &Revoke{At: 1}}, {Version: 2, Revoke: &Revoke{Reversed: true}}}, StatusActive},
		"ended and never paid": {[]Observation{{Version: 1, Lifecycle: &Lifecycle{State: StateEnded}}}, StatusNeverPaid},
		"ended and paid":       {[]Observation{{Version: 1, Lifecycle: &Lifecycle{State: StateEnded}, Charges: []Charge{paid("a", 1)}}}, StatusExpired},
		"trial that lapsed":    {[]Observation{{Version: 1, Lifecycle: &Lifecycle{State: StateEnded}, Charges: []Charge{{ID: "a", Settled: true, Trial: true}}}}, StatusNeverPaid},
		"paid and canceled":    {[]Observation{{Version: 1, Lifecycle: &Lifecycle{State: StateActive, AccessUntil: 9000}}}, StatusCanceled},
	} {
		if got := Project(mergeAll(c.list), terms, 5000).Status; got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

// TestTrialStaysOne: that a charge cost nothing, or was for a change within a period,
// stands against any statement about the period after it, in every order.
func TestTrialStaysOne(t *testing.T) {
	for name, first := range map[string]Charge{
		"trial": {ID: "a", Settled: true, Trial: true}, "proration": {ID: "a", Settled: true, Proration: true},
	} {
		early := Observation{Version: 1, Charges: []Charge{first}}
		late := Observation{Version: 2, Charges: []Charge{{ID: "a", Settled: true, AmountMinor: 999}}}
		change := Observation{Version: 3, Charges: []Charge{{ID: "a", Settled: true, Proration: true, AmountMinor: first.AmountMinor}}}
		for _, list := range [][]Observation{{early, late, change}, {late, early, change}, {change, late, early}} {
			if got := *mergeAll(list).Charges["a"].Charge.Value; !reflect.DeepEqual(got, first) {
				t.Errorf("%s, version %d first: %+v", name, list[0].Version, got)
			}
		}
	}
}
