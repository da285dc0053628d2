package merchantb

import (
	_ "embed"
	"encoding/json"
	"net/http"
	"strconv"
	"testing"
	"time"

	"github.com/kitbackend/kit/payments"
	"github.com/kitbackend/kit/payments/internal/signature"
	"github.com/kitbackend/kit/payments/internal/stamp"
)

//go:embed testdata/signature.json
var vector []byte

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
		january  = `"current_period_start":"2026-01-01T00:00:00Z","current_period_end":"2026-02-01T00:00:00Z"`
		february = `"current_period_start":"2026-02-01T00:00:00Z","current_period_end":"2026-03-01T00:00:00Z"`
		day      = "2026-01-10T00:00:00Z"
		over     = "2026-02-10T00:00:00Z"
		feb      = "2026-02-01T00:00:00Z"
	)
	for name, c := range map[string]struct {
		status, period, more string
		paid                 bool
		at                   string
		want                 payments.Status
		until, resume        string
	}{
		"trialing":                {"trialing", january, ``, false, day, payments.StatusActive, feb, ""},
		"active":                  {"active", january, ``, true, day, payments.StatusActive, feb, ""},
		"cancels":                 {"active", january, `,"cancel_at_period_end":true`, true, day, payments.StatusCanceled, feb, ""},
		"cancels at a time":       {"active", january, `,"cancel_at_period_end":true,"ends_at":"2026-01-20T00:00:00Z"`, true, day, payments.StatusCanceled, "2026-01-20T00:00:00Z", ""},
		"has canceled":            {"active", january, `,"cancel_at_period_end":true`, true, over, payments.StatusExpired, feb, ""},
		"will pause":              {"active", january, `,"pause_at_period_end":true`, true, day, payments.StatusActive, feb, ""},
		"past due":                {"past_due", february, ``, true, over, payments.StatusInGrace, feb, ""},
		"unpaid":                  {"unpaid", february, ``, true, over, payments.StatusOnHold, feb, ""},
		"paused":                  {"paused", january, ``, true, day, payments.StatusPaused, feb, ""},
		"paused with an end":      {"paused", january, `,"resumes_at":"2026-05-01T00:00:00Z"`, true, day, payments.StatusPaused, feb, "2026-05-01T00:00:00Z"},
		"canceled, paid":          {"canceled", january, `,"ended_at":"2026-01-09T00:00:00Z"`, true, day, payments.StatusExpired, "2026-01-09T00:00:00Z", ""},
		"canceled, never paid":    {"canceled", january, `,"ended_at":"2026-01-09T00:00:00Z"`, false, day, payments.StatusNeverPaid, "2026-01-09T00:00:00Z", ""},
		"incomplete":              {"incomplete", january, ``, false, day, payments.StatusNeverPaid, feb, ""},
		"incomplete expired":      {"incomplete_expired", january, ``, false, day, payments.StatusNeverPaid, feb, ""},
		"a state of tomorrow":     {"astonished", january, ``, true, day, payments.StatusOnHold, feb, ""},
		"revoked in name, a hold": {"unpaid", february, ``, true, over, payments.StatusOnHold, feb, ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := decode[subscription](t, `{"id":"sub","status":"`+c.status+`","product_id":"pro","modified_at":"2026-01-01T00:00:00Z",`+c.period+c.more+`}`)
			list := []payments.Observation{fromSubscription(s, stamp.Time{})}
			if c.paid {
				o := decode[order](t, `{"id":"order","status":"paid","subscription_id":"sub","total_amount":999,"subtotal_amount":999,"created_at":"2026-01-01T00:00:00Z"}`)
				list = append(fromOrder(o, stamp.Time{}), list...)
			}
			p := project(payments.KindSubscription, c.at, list...)
			if p.Status != c.want || p.AccessUntil != instant(c.until) || p.ResumeAt != instant(c.resume) {
				t.Errorf("%s until %s, resumes at %s; want %s until %s, %s", p.Status, p.AccessUntil.Time(), p.ResumeAt.Time(), c.want, c.until, c.resume)
			}
			if p.Status == payments.StatusInGrace && p.GraceUntil != instant(feb) {
				t.Errorf("grace until %s, want the end of what was paid for", p.GraceUntil.Time())
			}
		})
	}
}

func TestMappingOfOrders(t *testing.T) {
	for name, c := range map[string]struct {
		more string
		want payments.Status
	}{
		"paid":                {`"status":"paid","paid":true`, payments.StatusActive},
		"pending":             {`"status":"pending"`, payments.StatusNeverPaid},
		"void":                {`"status":"void"`, payments.StatusNeverPaid},
		"draft":               {`"status":"draft"`, ""},
		"refunded":            {`"status":"refunded","paid":true,"refunded_amount":999`, payments.StatusRefunded},
		"a part refunded":     {`"status":"partially_refunded","paid":true,"refunded_amount":500`, payments.StatusActive},
		"nothing to pay":      {`"status":"paid","paid":true,"total_amount":0`, payments.StatusActive},
		"a state of tomorrow": {`"status":"astonished"`, ""},
	} {
		o := decode[order](t, `{"id":"order","product_id":"coins","total_amount":999,"subtotal_amount":999,"billing_reason":"purchase","created_at":"2026-01-01T00:00:00Z",`+c.more+`}`)
		list := fromOrder(o, stamp.Time{})
		if c.want == "" {
			if len(list) != 0 {
				t.Errorf("%s: %+v, want nothing", name, list)
			}
			continue
		}
		if p := project(payments.KindConsumable, "2026-01-10T00:00:00Z", list...); p.Status != c.want {
			t.Errorf("%s: %s, want %s", name, p.Status, c.want)
		}
	}
}

// A change of plan is worth no period of its own, unless it began one.
func TestProrationIsNoPeriod(t *testing.T) {
	for more, want := range map[string]bool{
		`"billing_reason":"subscription_cycle","items":[{"proration":true}]`:                      false,
		`"billing_reason":"subscription_meter_cycle","items":[{"proration":false}]`:               true,
		`"billing_reason":"subscription_update"`:                                                  true,
		`"billing_reason":"subscription_update","items":[{"proration":true}]`:                     true,
		`"billing_reason":"subscription_update","items":[{"proration":true},{"proration":false}]`: false,
	} {
		list := fromOrder(decode[order](t, `{"id":"order","subscription_id":"sub","status":"paid","total_amount":1,"subtotal_amount":1,`+more+`}`), stamp.Time{})
		if c := list[0].Charges[0]; !c.Settled || c.Trial || c.Proration != want {
			t.Errorf("%s: %+v, want a proration: %v", more, c, want)
		}
	}
}

// The external id of a customer is that of the payer who typed the address first, so it does not
// say who bought.
func TestExternalIDOfACustomerNamesNobody(t *testing.T) {
	const customer = `"customer_id":"c","customer":{"id":"c","external_id":"mallory"},"metadata":`
	for metadata, want := range map[string]string{`{}`: "", `{"kit_account":"ada"}`: "ada"} {
		s := fromSubscription(decode[subscription](t, `{"id":"sub","status":"active",`+customer+metadata+`}`), stamp.Time{})
		renewal := fromOrder(decode[order](t, `{"id":"order","status":"paid","subscription_id":"sub",`+customer+metadata+`}`), stamp.Time{})[0]
		single := fromOrder(decode[order](t, `{"id":"order","status":"paid",`+customer+metadata+`}`), stamp.Time{})[0]
		for _, o := range []payments.Observation{s, renewal, single} {
			if o.AccountToken != want || o.CustomerID != "c" {
				t.Errorf("with metadata %s: %q bought as %q, want %q", metadata, o.AccountToken, o.CustomerID, want)
			}
		}
	}
}

func TestMappingOfRefunds(t *testing.T) {
	for name, c := range map[string]struct {
		order, refund string
		want          payments.Status
	}{
		"all of it":       {`,"status":"refunded","refunded_amount":999`, `"status":"succeeded","amount":999`, payments.StatusRefunded},
		"access kept":     {`,"status":"refunded","refunded_amount":999`, `"status":"succeeded","amount":999,"revoke_benefits":false`, payments.StatusRefunded},
		"a part":          {`,"status":"partially_refunded","refunded_amount":500`, `"status":"succeeded","amount":500`, payments.StatusActive},
		"pending":         {``, `"status":"pending","amount":999`, payments.StatusActive},
		"failed":          {``, `"status":"failed","amount":999`, payments.StatusActive},
		"canceled":        {``, `"status":"canceled","amount":999`, payments.StatusActive},
		"disputed":        {`,"status":"refunded","refunded_amount":999`, `"status":"succeeded","amount":999,"dispute":{"status":"lost"}`, payments.StatusRevoked},
		"dispute, failed": {``, `"status":"failed","amount":999,"dispute":{"status":"won"}`, payments.StatusActive},
	} {
		o := decode[order](t, `{"id":"order","paid":true,"total_amount":999,"created_at":"2026-01-01T00:00:00Z","modified_at":"2026-01-02T00:00:00Z"`+c.order+`}`)
		taken := decode[refund](t, `{"id":"refund","order_id":"order","modified_at":"2026-01-02T00:00:00Z",`+c.refund+`}`)
		before := decode[order](t, `{"id":"order","status":"paid","paid":true,"total_amount":999,"created_at":"2026-01-01T00:00:00Z"}`)
		list := fromOrder(before, stamp.Time{})
		if entry, ok := back(taken, o, stamp.Time{}); ok {
			list = append(list, payments.Observation{TransactionID: "order", Version: 2, Refunds: []payments.Refund{entry}})
		}
		if p := project(payments.KindOneTime, "2026-01-10T00:00:00Z", list...); p.Status != c.want {
			t.Errorf("%s: %s, want %s", name, p.Status, c.want)
		}
	}
}

// The store counts the tax of what it gave back apart from the amount. What went back of an order is
// a part of all that was paid, tax included.
func TestRefundsIncludeTheirTax(t *testing.T) {
	o := decode[order](t, `{"id":"order","status":"partially_refunded","paid":true,"product_id":"coins","total_amount":1200,"tax_amount":200,
		"refunded_amount":500,"refunded_tax_amount":100}`)
	taken := decode[refund](t, `{"id":"refund","order_id":"order","status":"succeeded","amount":500,"tax_amount":100,"dispute":{"status":"prevented"}}`)
	disputed, _ := back(taken, o, stamp.Time{})
	taken.Dispute = nil
	again, _ := back(taken, o, stamp.Time{})
	for name, r := range map[string]payments.Refund{"by the order": fromOrder(o, stamp.Time{})[0].Refunds[0], "by the refund": again, "disputed": disputed} {
		if r.AmountMinor != 600 || r.Full {
			t.Errorf("%s: %+v, want 600 of the 1200 that were paid", name, r)
		}
	}
}

// A delivery that the standard's own tests publish; see testdata/NOTICE.
func TestPublishedSignature(t *testing.T) {
	v := decode[struct {
		Secret, ID, Body, Signature string
		Timestamp                   int64
	}](t, string(vector))
	at := time.Unix(v.Timestamp, 0)
	h := http.Header{
		signature.StandardID: {v.ID}, signature.StandardTimestamp: {strconv.FormatInt(v.Timestamp, 10)}, signature.StandardSignature: {v.Signature},
	}
	verify := func(secret, body string, now time.Time) error {
		_, err := signature.Standard(h, []byte(body), keys(secret), now, Tolerance)
		return err
	}
	if err := verify(v.Secret, v.Body, at); err != nil {
		t.Errorf("the published signature: %v", err)
	}
	for name, err := range map[string]error{
		"301 s later":    verify(v.Secret, v.Body, at.Add(301*time.Second)),
		"301 s before":   verify(v.Secret, v.Body, at.Add(-301*time.Second)),
		"another body":   verify(v.Secret, v.Body+" ", at),
		"another secret": verify("whsec_AAAA", v.Body, at),
		"no secret":      verify("", v.Body, at),
		"whsec_ alone":   verify("whsec_", v.Body, at),
	} {
		if err == nil {
			t.Errorf("%s is accepted", name)
		}
	}
	h.Set(signature.StandardSignature, "v1a,AAAA v2,BBBB v1,Ceo5qEr07ixe2NLpvHk3FH9bwy/WavXrAFQ/9tdO6mc= "+v.Signature)
	if err := verify(v.Secret, v.Body, at); err != nil {
		t.Errorf("several signatures: %v", err)
	}
}

// The bytes of a secret sign as well as what it stands for in base64.
func TestBothFormsOfASecret(t *testing.T) {
	body, at := []byte(`{}`), time.Unix(1_772_000_000, 0)
	for _, secret := range []string{"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "polar_whs_abcdefghijkl"} {
		for _, key := range keys(secret) {
			h := http.Header{}
			signature.SignStandard(h, key, "msg_1", body, at)
			if _, err := signature.Standard(h, body, keys(secret), at, Tolerance); err != nil {
				t.Errorf("%s: %v", secret, err)
			}
		}
	}
}
