package cardprocessor

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/kitbackend/kit/payments"
)

const (
	start = 1_772_000_000
	end   = start + 2_592_000
)

func decode[T any](t *testing.T, text string) (v T) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatal(err)
	}
	return v
}

func project(kind payments.ProductKind, at int64, list ...payments.Observation) payments.Projection {
	var f payments.Facts
	for _, o := range list {
		f = payments.Merge(f, o)
	}
	return payments.Project(f, payments.Terms{Kind: kind, Leeway: time.Hour, Grace: true}, payments.Instant(at*1000))
}

const (
	items = `"items":{"data":[{"current_period_start":%d,"current_period_end":%d,"quantity":1,"price":{"id":"price_1","product":"prod_1","currency":"usd","unit_amount":999,"recurring":{"interval":"month","interval_count":1}}}]}`
	paid  = `{"id":"in_1","status":"paid","subtotal":999,"amount_paid":999,"currency":"usd","status_transitions":{"paid_at":%d},"lines":{"data":[{"period":{"start":%d,"end":%d}}]}}`
)

// The rows of the mapping, one by one. What was paid is the first period; where
// the processor has begun the next one, nobody has paid that.
func TestMapping(t *testing.T) {
	first := fmt.Sprintf(items, start, end)
	second := fmt.Sprintf(items, end, end+2_592_000)
	one := fmt.Sprintf(paid, start, start, end)
	free := `{"id":"in_0","status":"paid","subtotal":0,"amount_paid":0,"currency":"usd","lines":{"data":[{"period":{"start":1772000000,"end":1772500000}}]}}`
	coupon := `{"id":"in_1","status":"paid","subtotal":999,"amount_paid":0,"currency":"usd","lines":{"data":[{"period":{"start":1772000000,"end":1774592000}}]}}`
	reason := func(kind string) string {
		return `,"status_details":{"paused":{"subscription":{"type":"` + kind + `"}}}`
	}
	for name, c := range map[string]struct {
		status, items, more, invoices string
		at                            int64
		want                          payments.Status
		until, resume                 int64
	}{
		"active":                              {"active", first, ``, one, start + 5, payments.StatusActive, end, 0},
		"trialing":                            {"trialing", first, `,"trial_end":1774592000`, ``, start + 5, payments.StatusActive, end, 0},
		"cancels at the period's end":         {"active", first, `,"cancel_at_period_end":true`, one, start + 5, payments.StatusCanceled, end, 0},
		"canceled at the period's end":        {"active", first, `,"cancel_at_period_end":true`, one, end, payments.StatusExpired, end, 0},
		"cancels at a time":                   {"active", first, fmt.Sprintf(`,"cancel_at":%d`, start+500), one, start + 5, payments.StatusCanceled, start + 500, 0},
		"canceled at a time":                  {"active", first, fmt.Sprintf(`,"cancel_at":%d`, start+500), one, start + 500, payments.StatusExpired, start + 500, 0},
		"collection paused, still paid":       {"active", first, `,"pause_collection":{"resumes_at":null}`, one, start + 5, payments.StatusActive, end, 0},
		"collection paused, no end":           {"active", second, `,"pause_collection":{"resumes_at":null}`, one, end + 5, payments.StatusPaused, end, 0},
		"collection paused, with an end":      {"active", second, `,"pause_collection":{"resumes_at":1780000000}`, one, end + 5, payments.StatusPaused, end, 1_780_000_000},
		"past due":                            {"past_due", second, ``, one, end + 5, payments.StatusInGrace, end, 0},
		"unpaid":                              {"unpaid", second, ``, one, end + 5, payments.StatusOnHold, end, 0},
		"paused on request":                   {"paused", second, reason("pause_requested"), one, end + 5, payments.StatusPaused, end, 0},
		"paused by the system":                {"paused", second, reason("system"), one, end + 5, payments.StatusPaused, end, 0},
		"paused, first payment failed":        {"paused", first, reason("first_payment_failure"), ``, start + 5, payments.StatusOnHold, 0, 0},
		"paused, last payment failed":         {"paused", second, reason("final_payment_failure"), one, end + 5, payments.StatusOnHold, end, 0},
		"paused, trial without a card":        {"paused", first, reason("trial_end_without_payment_method"), ``, start + 5, payments.StatusOnHold, 0, 0},
		"paused, older version":               {"paused", first, ``, ``, start + 5, payments.StatusOnHold, 0, 0},
		"canceled, paid":                      {"canceled", first, fmt.Sprintf(`,"ended_at":%d`, start+9), one, start + 10, payments.StatusExpired, start + 9, 0},
		"canceled, never paid":                {"canceled", first, fmt.Sprintf(`,"ended_at":%d`, start+9), ``, start + 10, payments.StatusNeverPaid, start + 9, 0},
		"canceled after a trial":              {"canceled", first, `,"trial_end":1772500000,"ended_at":1772500000`, free, end, payments.StatusNeverPaid, 1_772_500_000, 0},
		"canceled, all of it was discounted":  {"canceled", first, fmt.Sprintf(`,"ended_at":%d`, start+9), coupon, start + 10, payments.StatusExpired, start + 9, 0},
		"incomplete":                          {"incomplete", first, ``, ``, start + 5, payments.StatusNeverPaid, end, 0},
		"incomplete expired":                  {"incomplete_expired", first, ``, ``, start + 5, payments.StatusNeverPaid, end, 0},
		"a state of tomorrow":                 {"astonished", first, ``, one, start + 5, payments.StatusOnHold, end, 0},
		"periods where they stood until 2025": {"active", `"current_period_start":1772000000,"current_period_end":1774592000,"items":{"data":[{"price":{"product":{"id":"prod_1"}}}]}`, ``, one, start + 5, payments.StatusActive, end, 0},
	} {
		t.Run(name, func(t *testing.T) {
			s := decode[subscription](t, `{"id":"sub_1","status":"`+c.status+`","start_date":1772000000,`+c.items+c.more+`}`)
			var invoices []invoice
			if c.invoices != "" {
				invoices = []invoice{decode[invoice](t, c.invoices)}
			}
			list, through := charges(s, invoices)
			l := lifecycle(s, list, through, time.Unix(c.at, 0))
			p := project(payments.KindSubscription, c.at, payments.Observation{TransactionID: s.ID, Version: 1, Lifecycle: l, Charges: list})
			if p.Status != c.want || int64(p.AccessUntil) != c.until*1000 || int64(p.ResumeAt) != c.resume*1000 {
				t.Errorf("%s until %d, resumes at %d; want %s until %d, %d", p.Status, p.AccessUntil/1000, p.ResumeAt/1000, c.want, c.until, c.resume)
			}
			if l.ProductID != "prod_1" {
				t.Errorf("the product is %q", l.ProductID)
			}
			if p.Status == payments.StatusInGrace && p.GraceUntil != payments.Instant(end*1000) {
				t.Errorf("grace until %d, want what was paid for, %d", p.GraceUntil, end)
			}
		})
	}
}

// A change of plan is worth no period of its own, unless it began one.
func TestProrationIsNoPeriod(t *testing.T) {
	line := `,"lines":{"data":[{"parent":{"subscription_item_details":{"proration":true}}},{"parent":{"%s":{"proration":false}}}]}`
	for more, want := range map[string]bool{
		`"billing_reason":"subscription_create"`:                                                  false,
		`"billing_reason":"subscription_cycle"` + fmt.Sprintf(line, "invoice_item_details"):       false,
		`"billing_reason":"subscription_update"`:                                                  true,
		`"billing_reason":"subscription_update"` + fmt.Sprintf(line, "invoice_item_details"):      true,
		`"billing_reason":"subscription_update"` + fmt.Sprintf(line, "subscription_item_details"): false,
	} {
		list, _ := charges(subscription{}, []invoice{decode[invoice](t, `{"id":"in_2","status":"paid","subtotal":1,"amount_paid":1,`+more+`}`)})
		if !list[0].Settled || list[0].Trial || list[0].Proration != want {
			t.Errorf("%s: %+v, want a proration: %v", more, list[0], want)
		}
	}
}

// An invoice that an application adds to a subscription is for no period of it.
func TestInvoiceAddedToASubscription(t *testing.T) {
	for reason, want := range map[string]bool{"manual": true, "automatic_pending_invoice_item_invoice": true, "subscription_cycle": false, "subscription_update": false} {
		list, through := charges(subscription{}, []invoice{decode[invoice](t, `{"id":"in_2","status":"paid","subtotal":1,"amount_paid":1,"billing_reason":"`+reason+`",
			"lines":{"data":[{"period":{"start":1,"end":2}}]}}`)})
		if list[0].Separate != want || settled(list) == want || (through == 0) != want {
			t.Errorf("%s: %+v, settled %v through %s; want a separate charge: %v", reason, list[0], settled(list), through.Time(), want)
		}
	}
}

// A trial that was ended early was a trial: its invoice over nothing is no payment.
// One over nothing that began behind a trial is.
func TestTrialThatWasEndedEarly(t *testing.T) {
	text := `{"id":"in_1","status":"paid","subtotal":0,"lines":{"data":[{"period":{"start":%d,"end":%d}}]}}`
	s := subscription{TrialEnd: start + 100}
	for begun, want := range map[int]bool{start: true, start + 100: false} {
		list, _ := charges(s, []invoice{decode[invoice](t, fmt.Sprintf(text, begun, end))})
		if list[0].Trial != want {
			t.Errorf("an invoice over nothing from %d: %+v, want a trial: %v", begun, list[0], want)
		}
	}
}

func TestMappingOfSessions(t *testing.T) {
	for name, c := range map[string]struct {
		payment string
		want    payments.Status
	}{
		"paid":                {"paid", payments.StatusActive},
		"nothing to pay":      {"no_payment_required", payments.StatusActive},
		"unpaid as of now":    {"unpaid", payments.StatusNeverPaid},
		"a state of tomorrow": {"astonished", payments.StatusNeverPaid},
	} {
		s := decode[session](t, `{"id":"cs_1","mode":"payment","status":"complete","created":1772000000,"payment_intent":"pi_1","amount_total":500,"currency":"usd","payment_status":"`+
			c.payment+`","line_items":{"data":[{"quantity":3,"price":{"id":"price_1","product":"prod_1"}}]}}`)
		o := payments.Observation{TransactionID: s.ID, Version: 1, Lifecycle: purchase(s), Charges: sessionCharges(s)}
		if p := project(payments.KindConsumable, start+5, o); p.Status != c.want {
			t.Errorf("%s: %s, want %s", name, p.Status, c.want)
		}
		if o.Lifecycle.Quantity != 3 || len(o.Charges) > 0 && (o.Charges[0].ID != "pi_1" || o.Charges[0].Quantity != 3) {
			t.Errorf("%s: %+v", name, o)
		}
	}
}

func TestMappingOfRefundsAndDisputes(t *testing.T) {
	withdrawn := `{"id":"dp_1","amount":999,"status":"%s","balance_transactions":[{"amount":-999}]}`
	for name, c := range map[string]struct {
		charge, dispute string
		want            payments.Status
	}{
		"nothing":                {`{"amount":999}`, ``, payments.StatusActive},
		"all refunded":           {`{"amount":999,"amount_refunded":999,"refunded":true}`, ``, payments.StatusRefunded},
		"a part refunded":        {`{"amount":999,"amount_refunded":500}`, ``, payments.StatusActive},
		"the refund failed":      {`{"amount":999,"amount_refunded":0}`, ``, payments.StatusActive},
		"funds withdrawn":        {`{"amount":999}`, fmt.Sprintf(withdrawn, "needs_response"), payments.StatusRevoked},
		"under review":           {`{"amount":999}`, fmt.Sprintf(withdrawn, "under_review"), payments.StatusRevoked},
		"not withdrawn yet":      {`{"amount":999}`, `{"id":"dp_1","amount":999,"status":"needs_response"}`, payments.StatusActive},
		"funds reinstated":       {`{"amount":999}`, `{"id":"dp_1","amount":999,"status":"under_review","balance_transactions":[{"amount":-999},{"amount":999}]}`, payments.StatusActive},
		"won":                    {`{"amount":999}`, fmt.Sprintf(withdrawn, "won"), payments.StatusActive},
		"lost":                   {`{"amount":999}`, fmt.Sprintf(withdrawn, "lost"), payments.StatusRevoked},
		"lost, without entries":  {`{"amount":999}`, `{"id":"dp_1","amount":999,"status":"lost"}`, payments.StatusRevoked},
		"an inquiry":             {`{"amount":999}`, fmt.Sprintf(withdrawn, "warning_needs_response"), payments.StatusActive},
		"an inquiry that closed": {`{"amount":999}`, fmt.Sprintf(withdrawn, "warning_closed"), payments.StatusActive},
	} {
		t.Run(name, func(t *testing.T) {
			var disputes []dispute
			if c.dispute != "" {
				disputes = []dispute{decode[dispute](t, c.dispute)}
			}
			o := payments.Observation{
				TransactionID: "sub_1", Version: 1, Lifecycle: &payments.Lifecycle{State: payments.StateActive, WillRenew: true, AccessUntil: end * 1000},
				Charges: []payments.Charge{{ID: "in_1", At: start * 1000, AmountMinor: 999, Settled: true}},
				Refunds: refunds("in_1", 999, decode[charge](t, c.charge), disputes),
			}
			if p := project(payments.KindSubscription, start+5, o); p.Status != c.want {
				t.Errorf("%s, want %s", p.Status, c.want)
			}
			older := o
			older.Charges = append([]payments.Charge{{ID: "in_2", At: start*1000 + 1, AmountMinor: 999, Settled: true}}, o.Charges...)
			if p := project(payments.KindSubscription, start+5, older); p.Status != payments.StatusActive {
				t.Errorf("of an older invoice: %s, want active", p.Status)
			}
		})
	}
}

// An invoice that several payments paid has the refunds of each, and is refunded once all
// of them are, in any order.
func TestRefundsOfAnInvoicePaidBySeveral(t *testing.T) {
	active := payments.Observation{
		TransactionID: "sub_1", Version: 1, Lifecycle: &payments.Lifecycle{State: payments.StateActive, WillRenew: true, AccessUntil: end * 1000},
		Charges: []payments.Charge{{ID: "in_1", At: start * 1000, AmountMinor: 999, Settled: true}},
	}
	of := func(version int64, id string, amount, refunded int64) payments.Observation {
		c := charge{ID: id, Amount: amount, AmountRefunded: refunded, Refunded: refunded == amount}
		return payments.Observation{TransactionID: "sub_1", Version: version, Refunds: refunds("in_1", 999, c, nil)}
	}
	for name, c := range map[string]struct {
		list []payments.Observation
		want payments.Status
	}{
		"one of two":           {[]payments.Observation{of(2, "ch_1", 600, 600)}, payments.StatusActive},
		"both":                 {[]payments.Observation{of(2, "ch_1", 600, 600), of(3, "ch_2", 399, 399)}, payments.StatusRefunded},
		"both, the other way":  {[]payments.Observation{of(2, "ch_2", 399, 399), of(3, "ch_1", 600, 600)}, payments.StatusRefunded},
		"one, nothing of both": {[]payments.Observation{of(2, "ch_1", 600, 600), of(3, "ch_2", 399, 0)}, payments.StatusActive},
		"one that failed":      {[]payments.Observation{of(2, "ch_1", 600, 600), of(3, "ch_2", 399, 399), of(4, "ch_1", 600, 0)}, payments.StatusActive},
	} {
		if p := project(payments.KindSubscription, start+5, append([]payments.Observation{active}, c.list...)...); p.Status != c.want {
			t.Errorf("%s: %s, want %s", name, p.Status, c.want)
		}
	}
	if all := refunds("in_1", 999, charge{ID: "ch_1", Amount: 999, AmountRefunded: 999, Refunded: true}, nil); all[0].ID != "refunds" || !all[0].Full {
		t.Errorf("the only payment: %+v", all[0])
	}
}

// The refunds of one of several payments take the place of the sum that an earlier version stored
// for the invoice, and so do those of none.
func TestRefundsOfAnInvoicePaidBySeveralReplaceAnOlderSum(t *testing.T) {
	for _, refunded := range []int64{30, 0} {
		var f payments.Facts
		c := charge{ID: "ch_1", Amount: 50, AmountRefunded: refunded}
		for i, o := range []payments.Observation{
			{Charges: []payments.Charge{{ID: "in_1", AmountMinor: 100, Settled: true}}},
			{Refunds: []payments.Refund{{ID: "refunds", ChargeID: "in_1", AmountMinor: 30}}},
			{Refunds: refunds("in_1", 100, c, nil)},
		} {
			o.Version = int64(i + 1)
			f = payments.Merge(f, o)
		}
		var sum int64
		for _, r := range f.Charges["in_1"].Refunds {
			if !r.Value.Reversed {
				sum += r.Value.AmountMinor
			}
		}
		if sum != refunded {
			t.Errorf("refunded %d, want %d", sum, refunded)
		}
	}
}
