package iosstore

import (
	"testing"

	"github.com/kitbackend/kit/payments"
)

const (
	start = 1_000_000_000_000
	end   = start + 1_000_000
	later = end + 500_000
)

// status merges observations and says what they mean at an instant.
func status(t *testing.T, at payments.Instant, kind payments.ProductKind, lists ...[]payments.Observation) payments.Projection {
	t.Helper()
	var f payments.Facts
	for _, list := range lists {
		for _, o := range list {
			f = payments.Merge(f, o)
		}
	}
	return payments.Project(f, payments.Terms{Kind: kind, ReportsCompleted: true, NeverUnpaid: true, Grace: true}, at)
}

func renewing() transaction {
	return transaction{
		ID: "2", OriginalID: "1", ProductID: "pro", Type: typeRenewing, PurchaseDate: start, OriginalDate: start, ExpiresDate: end,
		Quantity: 1, Ownership: "PURCHASED", SignedDate: start, Environment: "Production", Currency: "USD", Price: 9990,
	}
}

// The rows of the mapping, one by one.
func TestMapping(t *testing.T) {
	on := renewal{OriginalID: "1", ProductID: "pro", RenewProductID: "pro", AutoRenew: 1, SignedDate: start + 10}
	off, grace := on, on
	off.AutoRenew = 0
	grace.GraceExpires = later
	trial := renewing()
	trial.OfferDiscount, trial.OfferType, trial.Price = "FREE_TRIAL", 1, 0
	reason := 1
	revokedBy := func(kind, ownership string, percentage int64) transaction {
		r := renewing()
		r.RevocationDate, r.RevocationType, r.Percentage, r.Ownership, r.SignedDate = start+20, kind, percentage, ownership, start+30
		return r
	}
	legacy := revokedBy("", "PURCHASED", 0)
	legacy.Reason = &reason
	upgraded := renewing()
	upgraded.Upgraded = true
	for name, c := range map[string]struct {
		t       transaction
		r       *renewal
		status  int
		at      payments.Instant
		want    payments.Status
		until   payments.Instant
		period  payments.PeriodType
		changed func(*testing.T, payments.Projection)
	}{
		"status 1, renewing":              {t: renewing(), r: &on, status: 1, at: start + 50, want: payments.StatusActive, until: end},
		"status 1, renewing, past period": {t: renewing(), r: &on, status: 1, at: end, want: payments.StatusExpired, until: end},
		"status 1, trial":                 {t: trial, r: &on, status: 1, at: start + 50, want: payments.StatusActive, until: end, period: payments.PeriodTrial},
		"trial that ended":                {t: trial, r: &off, status: 2, at: end, want: payments.StatusExpired, until: end, period: payments.PeriodTrial},
		"status 1, not renewing":          {t: renewing(), r: &off, status: 1, at: start + 50, want: payments.StatusCanceled, until: end},
		"status 1, not renewing, over":    {t: renewing(), r: &off, status: 1, at: end, want: payments.StatusExpired, until: end},
		"status 4": {t: renewing(), r: &grace, status: 4, at: end + 1, want: payments.StatusInGrace, until: end,
			changed: func(t *testing.T, p payments.Projection) {
				if p.GraceUntil != later || p.BillingIssueSince != end {
					t.Errorf("grace until %d since %d, want %d and %d", p.GraceUntil, p.BillingIssueSince, payments.Instant(later), payments.Instant(end))
				}
			}},
		"status 4, window before the period's end": {t: renewing(), r: &on, status: 4, at: start + 50, want: payments.StatusInGrace, until: end},
		"status 4, over":           {t: renewing(), r: &grace, status: 4, at: later, want: payments.StatusOnHold, until: end},
		"status 3":                 {t: renewing(), r: &on, status: 3, at: end + 1, want: payments.StatusOnHold, until: end},
		"status 2":                 {t: renewing(), r: &off, status: 2, at: end + 1, want: payments.StatusExpired, until: end},
		"refund of all":            {t: revokedBy("REFUND_FULL", "PURCHASED", 0), at: start + 50, want: payments.StatusRefunded, until: end},
		"refund of a part":         {t: revokedBy("REFUND_PRORATED", "PURCHASED", 50_000), at: start + 50, want: payments.StatusRefunded, until: end},
		"refund without a type":    {t: legacy, at: start + 50, want: payments.StatusRefunded, until: end},
		"status 5, purchased":      {t: legacy, r: &on, status: 5, at: start + 50, want: payments.StatusRefunded, until: end},
		"family revoke":            {t: revokedBy("FAMILY_REVOKE", "FAMILY_SHARED", 0), at: start + 50, want: payments.StatusRevoked, until: end},
		"status 5, family":         {t: revokedBy("", "FAMILY_SHARED", 0), r: &on, status: 5, at: start + 50, want: payments.StatusRevoked, until: end},
		"an upgraded period alone": {t: upgraded, at: start + 50, want: payments.StatusExpired, until: start},
		"the transaction alone":    {t: renewing(), at: start + 50, want: payments.StatusActive, until: end},
		"a status of tomorrow":     {t: renewing(), r: &on, status: 9, at: start + 50, want: payments.StatusExpired, until: end},
	} {
		t.Run(name, func(t *testing.T) {
			lists := [][]payments.Observation{fromTransaction(c.t, false)}
			if c.r != nil {
				lists = append(lists, fromStatus(c.status, c.t, *c.r, c.r.SignedDate))
			}
			p := status(t, c.at, payments.KindSubscription, lists...)
			period := c.period
			if period == "" {
				period = payments.PeriodNormal
			}
			if p.Status != c.want || p.AccessUntil != c.until || p.PeriodType != period {
				t.Errorf("%s until %d, %s; want %s until %d, %s", p.Status, p.AccessUntil, p.PeriodType, c.want, c.until, period)
			}
			if p.ResumeAt != 0 {
				t.Error("there is no pause at this store")
			}
			if c.changed != nil {
				c.changed(t, p)
			}
		})
	}
}

func TestMappingOfWhatIsBoughtOnce(t *testing.T) {
	for name, c := range map[string]struct {
		kind  string
		owned string
		sold  payments.ProductKind
	}{
		"non-consumable": {"Non-Consumable", "PURCHASED", payments.KindOneTime},
		"shared":         {"Non-Consumable", "FAMILY_SHARED", payments.KindOneTime},
		"consumable":     {typeConsumable, "PURCHASED", payments.KindConsumable},
		"non-renewing":   {typeNonRenewing, "PURCHASED", payments.KindOneTime},
	} {
		bought := transaction{ID: "7", OriginalID: "7", ProductID: "x", Type: c.kind, PurchaseDate: start, SignedDate: start, Quantity: 3,
			Ownership: c.owned, Environment: "Production", Currency: "JPY", Price: 500_000}
		list := fromTransaction(bought, false)
		p := status(t, start+10, c.sold, list)
		if p.Status != payments.StatusActive || p.AccessUntil != 0 {
			t.Errorf("%s: %s until %d, want active for good", name, p.Status, p.AccessUntil)
		}
		o := list[0]
		if o.TransactionID != "7" || o.Charges[0].Quantity != 3 || o.Charges[0].AmountMinor != 500 || (o.Ownership == payments.OwnershipFamilyShared) != (c.owned == "FAMILY_SHARED") {
			t.Errorf("%s: %+v", name, o)
		}
	}
}

// A part of a consumable's price is a part of its credit; of a subscription it
// ends the access as the whole does.
func TestPartOfAConsumable(t *testing.T) {
	bought := transaction{ID: "7", OriginalID: "7", Type: typeConsumable, PurchaseDate: start, SignedDate: start, Price: 10_000, Currency: "USD",
		RevocationDate: start + 5, RevocationType: "REFUND_PRORATED", Percentage: 25_000}
	if r := refund(bought); r.Full || r.BasisPoints != 2500 || r.AmountMinor != 250 {
		t.Errorf("a quarter of a consumable: %+v", r)
	}
	bought.Type = typeRenewing
	if r := refund(bought); !r.Full || r.AmountMinor != 250 {
		t.Errorf("a quarter of a subscription: %+v", r)
	}
}

func TestReversedRefund(t *testing.T) {
	taken := renewing()
	taken.RevocationDate, taken.RevocationType, taken.SignedDate = start+20, "REFUND_FULL", start+30
	back := renewing()
	back.SignedDate = start + 40
	lists := [][]payments.Observation{fromTransaction(renewing(), false), fromTransaction(taken, true), fromTransaction(back, true)}
	for i := range lists { // in every rotation
		p := status(t, start+50, payments.KindSubscription, lists[i], lists[(i+1)%3], lists[(i+2)%3], lists[i])
		if p.Status != payments.StatusActive {
			t.Errorf("beginning with %d: %s, want active", i, p.Status)
		}
	}
}

// A device brings the transaction of an earlier period, signed anew: what is
// known of a newer one stands.
func TestOldPeriodChangesNothing(t *testing.T) {
	newer := renewing()
	newer.ID, newer.PurchaseDate, newer.ExpiresDate, newer.SignedDate = "3", end, end+1_000_000, end
	old := renewing()
	old.SignedDate = end + 100
	p := status(t, end+200, payments.KindSubscription, fromTransaction(newer, false), fromTransaction(old, false))
	if p.Status != payments.StatusActive || p.AccessUntil != end+1_000_000 {
		t.Errorf("%s until %d, want active until %d", p.Status, p.AccessUntil, payments.Instant(end+1_000_000))
	}
}

// A refund of an earlier period leaves the newest one alone, and the renewal
// after a refund counts.
func TestRefundOfAnotherPeriod(t *testing.T) {
	newer := renewing()
	newer.ID, newer.PurchaseDate, newer.ExpiresDate, newer.SignedDate = "3", end, end+1_000_000, end
	taken := renewing()
	taken.RevocationDate, taken.RevocationType, taken.SignedDate = end+10, "REFUND_FULL", end+20
	p := status(t, end+200, payments.KindSubscription, fromTransaction(taken, true), fromTransaction(newer, false))
	if p.Status != payments.StatusActive {
		t.Errorf("%s, want active", p.Status)
	}
}

func TestConsentToAPrice(t *testing.T) {
	asked, given := 0, 1
	r := renewal{AutoRenew: 1, RenewalPrice: 12_990, Currency: "USD", RenewalDate: end, RenewProductID: "pro"}
	for want, value := range map[string]*int{"": nil, "pending": &asked, "accepted": &given} {
		r.PriceIncrease = value
		p := price(renewing(), r)
		if p.AmountMinor != 999 || p.Next.AmountMinor != 1299 || p.Next.ConsentState != want || p.Next.RequiresConsent != (value != nil) {
			t.Errorf("want consent %q: %+v then %+v", want, p, p.Next)
		}
	}
	r.AutoRenew = 0
	if p := price(renewing(), r); p.Next != nil {
		t.Errorf("what does not renew has a next price: %+v", p.Next)
	}
}
