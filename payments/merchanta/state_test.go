package merchanta

import (
	"encoding/json"
	"net/http"
	"testing"
	"time"

	"github.com/kitbackend/kit/payments"
)

func decode[T any](t *testing.T, text string) (v T) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatal(err)
	}
	return v
}

func instant(text string) payments.Instant {
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return 0
	}
	return payments.At(at)
}

func project(kind payments.ProductKind, at string, list ...payments.Observation) payments.Projection {
	var f payments.Facts
	for _, o := range list {
		f = payments.Merge(f, o)
	}
	return payments.Project(f, payments.Terms{Kind: kind, Leeway: time.Hour, Grace: true}, instant(at))
}

// The rows of the mapping, one by one. What was paid is January.
func TestMapping(t *testing.T) {
	const (
		january  = `"current_billing_period":{"starts_at":"2026-01-01T00:00:00Z","ends_at":"2026-02-01T00:00:00Z"}`
		february = `"current_billing_period":{"starts_at":"2026-02-01T00:00:00Z","ends_at":"2026-03-01T00:00:00Z"}`
		day      = "2026-01-10T00:00:00Z"
		over     = "2026-02-10T00:00:00Z"
	)
	completed := decode[transaction](t, `{"id":"txn_1","status":"completed","subscription_id":"sub_1","billed_at":"2026-01-01T00:00:00Z","currency_code":"USD",
		"billing_period":{"starts_at":"2026-01-01T00:00:00Z","ends_at":"2026-02-01T00:00:00Z"},"details":{"totals":{"subtotal":"999","total":"999"}}}`)
	paidOnce, nothing, overdue := paid{charges: []payments.Charge{charge(completed)}}, paid{}, paid{charges: []payments.Charge{charge(completed)}, overdue: true}
	change := func(action, at, resume string) string {
		return `,"scheduled_change":{"action":"` + action + `","effective_at":"` + at + `","resume_at":` + resume + `}`
	}
	for name, c := range map[string]struct {
		status, period, more string
		paid                 paid
		at                   string
		want                 payments.Status
		until, resume        string
	}{
		"trialing":                      {"trialing", january, ``, nothing, day, payments.StatusActive, "2026-02-01T00:00:00Z", ""},
		"active":                        {"active", january, ``, paidOnce, day, payments.StatusActive, "2026-02-01T00:00:00Z", ""},
		"cancels":                       {"active", january, change("cancel", "2026-02-01T00:00:00Z", "null"), paidOnce, day, payments.StatusCanceled, "2026-02-01T00:00:00Z", ""},
		"has canceled":                  {"active", january, change("cancel", "2026-02-01T00:00:00Z", "null"), paidOnce, over, payments.StatusExpired, "2026-02-01T00:00:00Z", ""},
		"will pause":                    {"active", january, change("pause", "2026-02-01T00:00:00Z", "null"), paidOnce, day, payments.StatusActive, "2026-02-01T00:00:00Z", ""},
		"past due":                      {"past_due", february, ``, paidOnce, over, payments.StatusInGrace, "2026-02-01T00:00:00Z", ""},
		"past due, nothing known":       {"past_due", february, ``, nothing, over, payments.StatusInGrace, "2026-02-01T00:00:00Z", ""},
		"paused":                        {"paused", february, ``, paidOnce, over, payments.StatusPaused, "2026-02-01T00:00:00Z", ""},
		"paused with an end":            {"paused", february, change("resume", "2026-05-01T00:00:00Z", "null"), paidOnce, over, payments.StatusPaused, "2026-02-01T00:00:00Z", "2026-05-01T00:00:00Z"},
		"paused, a transaction overdue": {"paused", february, change("resume", "2026-05-01T00:00:00Z", "null"), overdue, over, payments.StatusOnHold, "2026-02-01T00:00:00Z", ""},
		"canceled, paid":                {"canceled", `"canceled_at":"2026-01-09T00:00:00Z"`, ``, paidOnce, day, payments.StatusExpired, "2026-01-09T00:00:00Z", ""},
		"canceled, never paid":          {"canceled", `"canceled_at":"2026-01-09T00:00:00Z"`, ``, nothing, day, payments.StatusNeverPaid, "2026-01-09T00:00:00Z", ""},
		"a state of tomorrow":           {"astonished", january, ``, paidOnce, day, payments.StatusOnHold, "2026-02-01T00:00:00Z", ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := decode[subscription](t, `{"id":"sub_1","status":"`+c.status+`","updated_at":"2026-01-01T00:00:00.000001Z",`+c.period+
				`,"items":[{"quantity":1,"price":{"id":"pri_1","product_id":"pro_1"}}]`+c.more+`}`)
			o := fromSubscription(s, c.paid)
			p := project(payments.KindSubscription, c.at, o)
			if p.Status != c.want || p.AccessUntil != instant(c.until) || p.ResumeAt != instant(c.resume) {
				t.Errorf("%s until %s, resumes at %s; want %s until %s, %s", p.Status, p.AccessUntil.Time(), p.ResumeAt.Time(), c.want, c.until, c.resume)
			}
			if p.Status == payments.StatusInGrace && p.GraceUntil != instant("2026-02-01T00:00:00Z") {
				t.Errorf("grace until %s, want the end of what was paid for", p.GraceUntil.Time())
			}
			if o.Version != instant("2026-01-01T00:00:00Z").Time().UnixMicro()+1 {
				t.Errorf("the version is %d, want microseconds", o.Version)
			}
		})
	}
}

func TestMappingOfTransactions(t *testing.T) {
	for status, want := range map[string]payments.Status{
		"paid": payments.StatusActive, "completed": payments.StatusActive, "billed": payments.StatusNeverPaid,
		"ready": payments.StatusNeverPaid, "past_due": payments.StatusNeverPaid, "canceled": payments.StatusNeverPaid, "draft": "",
	} {
		tx := decode[transaction](t, `{"id":"txn_1","status":"`+status+`","created_at":"2026-01-01T00:00:00Z","items":[{"quantity":2,"price":{"id":"pri_1","product_id":"pro_1","billing_cycle":null}}],
			"details":{"totals":{"subtotal":"999","total":"999"}},"custom_data":{"kit_account":"account"}}`)
		list := fromTransaction(tx)
		if want == "" {
			if len(list) != 0 {
				t.Errorf("%s: %+v, want nothing", status, list)
			}
			continue
		}
		if p := project(payments.KindConsumable, "2026-01-10T00:00:00Z", list...); p.Status != want || list[0].AccountToken != "account" {
			t.Errorf("%s: %s, want %s", status, p.Status, want)
		}
	}
	soon := decode[transaction](t, `{"id":"txn_1","status":"paid","items":[{"price":{"billing_cycle":{"interval":"month","frequency":1}}}]}`)
	if list := fromTransaction(soon); len(list) != 0 {
		t.Errorf("a transaction whose subscription is to come: %+v, want nothing", list)
	}
	trial := decode[transaction](t, `{"id":"txn_1","status":"completed","subscription_id":"sub_1","details":{"totals":{"subtotal":"0","total":"0"}}}`)
	discounted := decode[transaction](t, `{"id":"txn_1","status":"completed","subscription_id":"sub_1","details":{"totals":{"subtotal":"999","total":"0"}}}`)
	if !charge(trial).Trial || charge(discounted).Trial || !charge(discounted).Settled {
		t.Error("a trial costs nothing before discounts, and what was discounted to nothing is paid")
	}
}

// A change of plan is worth no period of its own, unless it was billed in full.
func TestProrationIsNoPeriod(t *testing.T) {
	for more, want := range map[string]bool{
		`"origin":"subscription_recurring","details":{"line_items":[{"proration":{"rate":"0.5"}}]}`: false,
		`"origin":"subscription_update"`: true,
		`"origin":"subscription_update","details":{"line_items":[{"proration":{"rate":"0.5"}}]}`:                    true,
		`"origin":"subscription_update","details":{"line_items":[{"proration":{"rate":"0.5"}},{"proration":null}]}`: false,
	} {
		c := charge(decode[transaction](t, `{"id":"txn_2","status":"completed","subscription_id":"sub_1",`+more+`}`))
		if !c.Settled || c.Proration != want {
			t.Errorf("%s: %+v, want a proration: %v", more, c, want)
		}
	}
}

// A charge that an application adds to a subscription is for no period of it.
func TestChargeAddedToASubscription(t *testing.T) {
	for origin, want := range map[string]bool{"subscription_charge": true, "subscription_recurring": false, "subscription_update": false, "web": false} {
		added := charge(decode[transaction](t, `{"id":"txn_2","status":"completed","subscription_id":"sub_1","origin":"`+origin+`",
			"details":{"totals":{"subtotal":"500","total":"500"}},"billing_period":{"starts_at":"2026-01-01T00:00:00Z","ends_at":"2026-02-01T00:00:00Z"}}`))
		if p := (paid{charges: []payments.Charge{added}}); added.Separate != want || p.any() == want || (p.through() == 0) != want {
			t.Errorf("%s: %+v, paid %v through %s; want a separate charge: %v", origin, added, p.any(), p.through().Time(), want)
		}
	}
}

func TestMappingOfAdjustments(t *testing.T) {
	type entry struct{ action, kind, status string }
	for name, c := range map[string]struct {
		entries []entry
		want    payments.Status
	}{
		"all refunded":                  {[]entry{{"refund", "full", "approved"}}, payments.StatusRefunded},
		"a part refunded":               {[]entry{{"refund", "partial", "approved"}}, payments.StatusActive},
		"a refund that waits":           {[]entry{{"refund", "full", "pending_approval"}}, payments.StatusActive},
		"a refund that was rejected":    {[]entry{{"refund", "full", "rejected"}}, payments.StatusActive},
		"a refund that was reversed":    {[]entry{{"refund", "full", "reversed"}}, payments.StatusActive},
		"a credit":                      {[]entry{{"credit", "full", "approved"}}, payments.StatusActive},
		"a credit and back":             {[]entry{{"credit", "full", "approved"}, {"credit_reverse", "full", "approved"}}, payments.StatusActive},
		"charged back":                  {[]entry{{"chargeback", "full", "approved"}}, payments.StatusRevoked},
		"charged back and won":          {[]entry{{"chargeback", "full", "approved"}, {"chargeback_reverse", "full", "approved"}}, payments.StatusActive},
		"a warning":                     {[]entry{{"chargeback_warning", "full", "approved"}}, payments.StatusActive},
		"a warning taken back":          {[]entry{{"chargeback_warning_reverse", "full", "approved"}}, payments.StatusActive},
		"an action of tomorrow":         {[]entry{{"astonishment", "full", "approved"}}, payments.StatusActive},
		"charged back, won, lost again": {[]entry{{"chargeback", "full", "approved"}, {"chargeback_reverse", "full", "approved"}, {"chargeback", "full", "approved"}}, payments.StatusRevoked},
	} {
		t.Run(name, func(t *testing.T) {
			list := []payments.Observation{{
				TransactionID: "sub_1", Version: 1, Lifecycle: &payments.Lifecycle{State: payments.StateActive, WillRenew: true, AccessUntil: instant("2027-01-01T00:00:00Z")},
				Charges: []payments.Charge{{ID: "txn_1", At: 1, AmountMinor: 999, Settled: true}},
			}}
			var all []adjustment
			for i, e := range c.entries {
				j := adjustment{ID: "adj_" + string(rune('1'+i)), Action: e.action, Type: e.kind, Status: e.status, TransactionID: "txn_1", Totals: totals{Total: "500"}}
				j.UpdatedAt.Time = time.Unix(int64(1000+i), 0)
				back, ok := refund(j)
				if all = append(all, j); j.credits() {
					back, ok = credit("txn_1", all)
				}
				if ok {
					list = append([]payments.Observation{{TransactionID: "sub_1", Version: 1, Refunds: []payments.Refund{back}}}, list...)
				}
			}
			if p := project(payments.KindSubscription, "2026-01-10T00:00:00Z", list...); p.Status != c.want {
				t.Errorf("%s, want %s", p.Status, c.want)
			}
		})
	}
}

// Credits of one transaction add up, each may be taken back by a mark, an adjustment or
// both, and none of them is money that arrived.
func TestCreditsOfOneTransactionAddUp(t *testing.T) {
	const billed, settled = false, true
	credited := func(id, action, status, total string) adjustment {
		j := adjustment{ID: id, Action: action, Status: status, TransactionID: "txn_1", Totals: totals{Total: total}}
		j.CreatedAt.Time = time.Unix(int64(1000+len(id)), 0)
		return j
	}
	for name, c := range map[string]struct {
		list   []adjustment
		amount int64
		paid   bool
		want   payments.Status
	}{
		"two":              {[]adjustment{credited("a", "credit", "approved", "300"), credited("bb", "credit", "approved", "200")}, 500, settled, payments.StatusActive},
		"the whole in two": {[]adjustment{credited("a", "credit", "approved", "300"), credited("bb", "credit", "approved", "699")}, 999, settled, payments.StatusRefunded},
		"one of two taken back": {[]adjustment{credited("a", "credit", "approved", "300"), credited("bb", "credit", "approved", "699"),
			credited("ccc", "credit_reverse", "approved", "699")}, 300, settled, payments.StatusActive},
		"one of two taken back, and marked": {[]adjustment{credited("a", "credit", "approved", "300"), credited("bb", "credit", "reversed", "699"),
			credited("ccc", "credit_reverse", "approved", "699")}, 300, settled, payments.StatusActive},
		"one of two marked":       {[]adjustment{credited("a", "credit", "approved", "300"), credited("bb", "credit", "reversed", "699")}, 300, settled, payments.StatusActive},
		"both taken back":         {[]adjustment{credited("a", "credit", "approved", "300"), credited("bb", "credit_reverse", "approved", "300")}, 0, settled, payments.StatusActive},
		"one that was rejected":   {[]adjustment{credited("a", "credit", "rejected", "300"), credited("bb", "credit", "approved", "200")}, 200, settled, payments.StatusActive},
		"of an invoice not paid":  {[]adjustment{credited("a", "credit", "approved", "300")}, 300, billed, payments.StatusNeverPaid},
		"the whole of an invoice": {[]adjustment{credited("a", "credit", "approved", "999")}, 999, billed, payments.StatusNeverPaid},
	} {
		back, ok := credit("txn_1", append(c.list, adjustment{Action: "credit", TransactionID: "txn_2", Totals: totals{Total: "7"}}))
		if !ok || back.AmountMinor != c.amount || back.Reversed != (c.amount == 0) {
			t.Errorf("%s: %+v, %v, want %d", name, back, ok, c.amount)
		}
		o := payments.Observation{TransactionID: "txn_1", Version: 1, Refunds: []payments.Refund{back}, Lifecycle: &payments.Lifecycle{State: payments.StatePending}}
		if c.paid {
			o.Lifecycle.State, o.Charges = payments.StateActive, []payments.Charge{{ID: "txn_1", AmountMinor: 999, Settled: true}}
		}
		if p := project(payments.KindOneTime, "2026-01-10T00:00:00Z", o); p.Status != c.want {
			t.Errorf("%s: %s, want %s", name, p.Status, c.want)
		}
	}
	if _, ok := credit("txn_1", nil); ok {
		t.Error("no credits are a credit")
	}
}

// A delivery that the vendor's own tests publish; see testdata/NOTICE.
func TestPublishedSignature(t *testing.T) {
	v := published(t)
	at := time.Unix(v.Timestamp, 0)
	h := http.Header{"Paddle-Signature": {v.Header}}
	keys := [][]byte{[]byte(v.Secret)}
	if err := form.Verify(h, []byte(v.Body), keys, at, Tolerance); err != nil {
		t.Errorf("the published signature: %v", err)
	}
	for name, err := range map[string]error{
		"6 s later":      form.Verify(h, []byte(v.Body), keys, at.Add(6*time.Second), Tolerance),
		"6 s before":     form.Verify(h, []byte(v.Body), keys, at.Add(-6*time.Second), Tolerance),
		"another body":   form.Verify(h, []byte(v.Body+" "), keys, at, Tolerance),
		"another secret": form.Verify(h, []byte(v.Body), [][]byte{[]byte("pdl_ntfset_x")}, at, Tolerance),
	} {
		if err == nil {
			t.Errorf("%s is accepted", name)
		}
	}
	during := http.Header{"Paddle-Signature": {v.Header + ";h1=" + "00000000000000000000000000000000000000000000000000000000000000ff"}}
	if err := form.Verify(during, []byte(v.Body), keys, at, Tolerance); err != nil {
		t.Errorf("two signatures during a rotation: %v", err)
	}
}

// TestChangeOfPlanPaysForTheNewOne: what is given back of the plan before stands in
// the same transaction, with a quantity below 0.
func TestChangeOfPlanPaysForTheNewOne(t *testing.T) {
	c := charge(decode[transaction](t, `{"id":"txn_2","status":"completed","origin":"subscription_update","subscription_id":"sub_1",
		"items":[{"quantity":-1,"price":{"product_id":"pro_old"}},{"quantity":2,"price":{"product_id":"pro_new"}}],
		"details":{"totals":{"subtotal":"900","total":"900"},"line_items":[{"proration":{"rate":"0.5"}},{"proration":null}]}}`))
	if c.ProductID != "pro_new" || c.Quantity != 2 || c.Proration {
		t.Errorf("%+v", c)
	}
}
