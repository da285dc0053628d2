package payments

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"github.com/kitbackend/kit/audit"
	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/internal/optional"
)

// Purchase is the current state of one purchase.
type Purchase struct {
	ID               string           `json:"id"`
	Rail             RailID           `json:"rail"`
	TransactionID    string           `json:"transactionId"`
	ProductKey       string           `json:"productKey"`
	Kind             ProductKind      `json:"kind"`
	Status           Status           `json:"status"`
	Grants           bool             `json:"grants"`
	MoneyArrived     bool             `json:"moneyArrived"`
	StoreEnvironment StoreEnvironment `json:"storeEnvironment"`
	AccessUntil      *capability.Time `json:"accessUntil"`
	GraceUntil       *capability.Time `json:"graceUntil"`
	// ResumeAt is there only while the purchase is paused, null where no end was
	// set.
	ResumeAt          *Resume          `json:"resumeAt,omitempty"`
	PeriodType        PeriodType       `json:"periodType"`
	WillRenew         bool             `json:"willRenew"`
	BillingIssueSince *capability.Time `json:"billingIssueSince"`
	Ownership         Ownership        `json:"ownership"`
	Quantity          int64            `json:"quantity"`
	// Subject is nil for a purchase that nobody has claimed. Users do not see it.
	Subject   *Subject        `json:"subject,omitempty"`
	CreatedAt capability.Time `json:"createdAt"`
	UpdatedAt capability.Time `json:"updatedAt"`
}

// Resume is when a pause ends, as the store reported.
type Resume struct{ At Instant }

// MarshalJSON writes the instant, or null where no end was set.
func (r Resume) MarshalJSON() ([]byte, error) {
	if r.At == 0 {
		return []byte("null"), nil
	}
	return capability.Millis(int64(r.At)).MarshalJSON()
}

// UnmarshalJSON reads what MarshalJSON wrote.
func (r *Resume) UnmarshalJSON(raw []byte) error {
	var at time.Time
	err := json.Unmarshal(raw, &at)
	r.At = At(at)
	return err
}

// at projects a row at an instant, because changes by time alone may not have been written, and by
// the current policy on grace.
func (r *row) at(now Instant, grace bool) Projection {
	p := r.p
	if p.ChangesAt == 0 || now < p.ChangesAt {
		p.Grants = p.Status.Grants(grace)
		return p
	}
	then := Projection{Status: p.Then, Grants: p.Then.Grants(grace), MoneyArrived: p.Then.MoneyArrived(), AccessUntil: p.AccessUntil,
		PeriodType: p.PeriodType, WillRenew: p.WillRenew && p.Then.mayRenew()}
	l := r.facts.Lifecycle.Value
	switch {
	case p.Then == StatusPaused && l != nil:
		then.ResumeAt, then.AccessUntil = l.ResumeAt, l.AccessUntil
	case p.Then == StatusOnHold:
		then.BillingIssueSince = p.BillingIssueSince
	default:
	}
	return then
}

func (p *Payments) wire(r *row, now Instant, admin bool) Purchase {
	s := r.at(now, !p.cfg.NoGraceAccess)
	purchase := Purchase{
		ID: r.id, Rail: r.rail, TransactionID: r.transactionID, ProductKey: r.productKey, Kind: r.kind, Status: s.Status, Grants: s.Grants,
		MoneyArrived: s.MoneyArrived, StoreEnvironment: r.environment, AccessUntil: optional.Time(s.AccessUntil), GraceUntil: optional.Time(s.GraceUntil),
		PeriodType: s.PeriodType, WillRenew: s.WillRenew, BillingIssueSince: optional.Time(s.BillingIssueSince), Ownership: r.ownership,
		Quantity: r.quantity, CreatedAt: capability.Millis(int64(r.createdAt)), UpdatedAt: capability.Millis(int64(r.updatedAt)),
	}
	if s.Status == StatusPaused {
		purchase.ResumeAt = &Resume{s.ResumeAt}
	}
	if admin && r.subject != (Subject{}) {
		purchase.Subject = &r.subject
	}
	return purchase
}

// SubmitRequest is a client's proof of a purchase.
type SubmitRequest struct {
	Rail RailID
	// ProductKey, if set, is the product that the client expects.
	ProductKey string
	Submission
}

// Submitted is a purchase that was submitted.
type Submitted struct {
	Purchase     Purchase      `json:"purchase"`
	Entitlements []Entitlement `json:"entitlements"`
	// Created says that the purchase was unknown or had no subject before.
	Created bool `json:"-"`
}

// Repeated reports whether the subject had the purchase before: then the status
// of the response is 200 instead of 201.
func (s Submitted) Repeated() bool { return !s.Created }

// Submit verifies a client's proof of a purchase and assigns the purchase to the user's subject if
// it has no other; it is idempotent. A bare transaction id assigns nothing: it only confirms a
// purchase that the account token or an earlier proof assigned to the subject. Refuses with
// payments/rail_not_enabled, rail_not_configured, rail_unavailable, invalid_receipt, app_mismatch,
// environment_mismatch, product_not_found, purchase_pending, purchase_claimed, purchase_not_found
// and billing_denied, and with auth/unauthenticated where the user is erased meanwhile.
func (p *Payments) Submit(ctx context.Context, userID string, s SubmitRequest) (Submitted, error) {
	var none Submitted
	subject, err := p.manager(ctx, userID)
	if err != nil {
		return none, err
	}
	rail, err := p.on(s.Rail)
	if err != nil {
		return none, err
	}
	if _, ok := p.catalog.byKey[s.ProductKey]; s.ProductKey != "" && !ok {
		return none, ErrProductNotFound
	}
	token, err := p.AccountToken(ctx, subject)
	if err != nil {
		return none, err
	}
	observations, err := p.redeem(ctx, rail, s.Submission)
	if err != nil {
		return none, err
	}
	c := &change{rail: rail}
	if claims, err := p.claims(ctx, rail, subject, s.Submission); err != nil {
		return none, err
	} else if claims {
		c.claimed, c.token = subject, token
	}
	first := observations[0].TransactionID
	err = p.host.DB.InTx(ctx, func(ctx context.Context) error {
		if err := p.apply(ctx, c, observations); err != nil {
			return err
		}
		r := c.rows[first]
		switch {
		case r.subject == (Subject{}) && rail.Checkout == nil:
			return ErrInvalidReceipt.Saying("A transaction id proves no possession. Submit the signed transaction.")
		case r.subject != subject:
			return ErrPurchaseClaimed
		}
		if s.ProductKey != "" && r.productKey != s.ProductKey {
			return ErrInvalidReceipt.Saying("The purchase is of another product.")
		}
		return nil
	})
	if err != nil {
		return none, err
	}
	p.afterApply(ctx, c)
	r := c.rows[first]
	if l := r.facts.Lifecycle.Value; l != nil && l.State == StatePending {
		return none, ErrPurchasePending
	}
	resolved, err := p.Entitlements(ctx, subject)
	return Submitted{p.wire(r, At(p.host.Now()), false), resolved.Entitlements, c.before[first].subject == (Subject{})}, err
}

// claims reports whether a submission assigns an unclaimed purchase to the subject. Only the buyer
// has a signed transaction or a purchase token, but others may know the id of a transaction or
// session.
func (p *Payments) claims(ctx context.Context, rail *rail, subject Subject, s Submission) (bool, error) {
	if rail.Checkout == nil {
		return s.possessed(), nil
	}
	owner, ok, err := p.store.checkoutSubject(ctx, rail.ID, s.SessionID)
	return ok && owner == subject, err
}

// redeem has a rail verify a submission; it returns at least one observation.
func (p *Payments) redeem(ctx context.Context, rail *rail, s Submission) ([]Observation, error) {
	for name, text := range map[string]string{"signedTransaction": s.SignedTransaction, "transactionId": s.TransactionID,
		"purchaseToken": s.PurchaseToken, "productId": s.ProductID, "sessionId": s.SessionID} {
		if err := capability.CheckText(name, text, 0, maxProof); err != nil {
			return nil, err
		}
	}
	if s.proofs() != 1 {
		return nil, capability.ErrInvalidRequest.Saying("Give one of signedTransaction, transactionId, purchaseToken and sessionId.")
	}
	if rail.Redeem == nil {
		return nil, ErrInvalidReceipt
	}
	return p.ask(ctx, rail, func(ctx context.Context, a Access) ([]Observation, error) { return rail.Redeem(ctx, a, s) })
}

// maxProof bounds what a client submits as proof of one purchase.
const maxProof = 32 << 10

// ask calls a rail for a waiting caller, and checks the observations.
func (p *Payments) ask(ctx context.Context, rail *rail, call func(context.Context, Access) ([]Observation, error)) ([]Observation, error) {
	access, err := p.access(ctx, rail)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, p.budget)
	defer cancel()
	observations, err := call(ctx, access)
	if err != nil {
		return nil, p.unavailable(ctx, rail, err)
	}
	observations, err = p.checkObservations(rail, observations)
	if err != nil {
		return nil, p.unavailable(ctx, rail, err)
	}
	if len(observations) == 0 {
		return nil, ErrPurchaseNotFound
	}
	return observations, nil
}

// RestoreRequest holds the purchases that a client finds in its store's history. Rails without such
// proofs look up the caller's purchases.
type RestoreRequest struct {
	Rail RailID
	// Items has at most [MaxRestore] entries. One with a bare transaction id is
	// restored only where the subject has it already.
	Items []Submission
}

// MaxRestore bounds one restore.
const MaxRestore = 100

// Restored is the result of a restore.
type Restored struct {
	Restored     []Purchase    `json:"restored"`
	Skipped      []Skipped     `json:"skipped"`
	Entitlements []Entitlement `json:"entitlements"`
}

// Skipped is an item that was not restored: "consumable", "claimed", or the code
// of a refusal.
type Skipped struct {
	TransactionID string `json:"transactionId,omitempty"`
	// Index is the place of the item in the request.
	Index  int    `json:"index"`
	Reason string `json:"reason"`
}

// Restore assigns purchases for which a store vouches to the user's subject. Purchases of another
// subject are moved by the policy of Config.Restore, in one transaction each; consumables stay with
// the subject that used them. Refuses with payments/rail_not_enabled, rail_not_configured,
// rail_unavailable and billing_denied, and with auth/unauthenticated where the user is erased
// meanwhile.
func (p *Payments) Restore(ctx context.Context, userID string, q RestoreRequest) (Restored, error) {
	out := Restored{Restored: []Purchase{}, Skipped: []Skipped{}}
	subject, err := p.manager(ctx, userID)
	if err != nil {
		return out, err
	}
	rail, err := p.on(q.Rail)
	if err != nil {
		return out, err
	}
	if len(q.Items) > MaxRestore {
		return out, capability.ErrInvalidRequest.Saying("At most %d items at once.", MaxRestore)
	}
	token, err := p.AccountToken(ctx, subject)
	if err != nil {
		return out, err
	}
	if rail.Checkout != nil {
		var customer string
		if customer, err = p.customerOf(ctx, rail, subject); err == nil && customer != "" {
			err = p.restoreOfCustomer(ctx, rail, subject, token, customer, &out)
		}
	} else {
		err = p.restoreItems(ctx, rail, subject, token, q.Items, &out)
	}
	if err != nil {
		return out, err
	}
	resolved, err := p.Entitlements(ctx, subject)
	out.Entitlements = resolved.Entitlements
	return out, err
}

func (p *Payments) restoreItems(ctx context.Context, rail *rail, subject Subject, token string, items []Submission, out *Restored) error {
	for i, item := range items {
		observations, err := p.redeem(ctx, rail, item)
		var refusal *capability.Error
		switch {
		case errors.As(err, &refusal) && refusal.Status < 500:
			out.Skipped = append(out.Skipped, Skipped{TransactionID: shorten(item.TransactionID), Index: i, Reason: refusal.Code})
			continue
		case err != nil:
			return err
		}
		c := &change{rail: rail}
		if item.possessed() {
			c.claimed, c.token, c.move = subject, token, p.movable
		}
		if err := p.restoreOne(ctx, c, subject, observations, i, out); err != nil {
			return err
		}
	}
	return nil
}

// restoreOfCustomer fetches the purchases of the subject as a customer of the rail.
func (p *Payments) restoreOfCustomer(ctx context.Context, rail *rail, subject Subject, token, customer string, out *Restored) error {
	if rail.OfCustomer == nil {
		return nil
	}
	observations, err := p.ask(ctx, rail, func(ctx context.Context, a Access) ([]Observation, error) {
		return rail.OfCustomer(ctx, a, customer)
	})
	if errors.Is(err, ErrPurchaseNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	byPurchase := make(map[string][]Observation)
	for _, o := range observations {
		byPurchase[o.TransactionID] = append(byPurchase[o.TransactionID], o)
	}
	for i, transactionID := range sorted(byPurchase) {
		c := &change{rail: rail}
		if !rail.CustomersByEmail {
			c.claimed, c.token = subject, token
		}
		if err := p.restoreOne(ctx, c, subject, byPurchase[transactionID], i, out); err != nil {
			return err
		}
	}
	return nil
}

// restoreOne applies one purchase and records whether the subject has it now.
func (p *Payments) restoreOne(ctx context.Context, c *change, subject Subject, observations []Observation, index int, out *Restored) error {
	first := observations[0].TransactionID
	if err := p.host.DB.InTx(ctx, func(ctx context.Context) error { return p.apply(ctx, c, observations) }); err != nil {
		return err
	}
	p.afterApply(ctx, c)
	r := c.rows[first]
	switch {
	case r.subject == (Subject{}):
		out.Skipped = append(out.Skipped, Skipped{r.transactionID, index, ErrInvalidReceipt.Code})
	case r.kind == KindConsumable && r.subject != subject:
		out.Skipped = append(out.Skipped, Skipped{r.transactionID, index, "consumable"})
	case r.subject != subject:
		out.Skipped = append(out.Skipped, Skipped{r.transactionID, index, "claimed"})
	default:
		out.Restored = append(out.Restored, p.wire(r, At(p.host.Now()), false))
	}
	return nil
}

// movable reports whether a restore may take a purchase from its subject.
func (p *Payments) movable(r *row, now Instant) bool {
	if product, ok := p.catalog.of(r.rail, r.facts.Lifecycle.Value); !ok || product.Kind == KindConsumable {
		return false
	}
	switch p.cfg.Restore {
	case RestoreMove:
		return true
	case RestoreMoveInactive:
		return !r.at(now, !p.cfg.NoGraceAccess).Grants
	default:
	}
	return false
}

// RepairRequest names a purchase to fetch again and the subject to assign it to.
type RepairRequest struct {
	Rail          RailID
	TransactionID string
	Subject       Subject
	Reason        string
}

// Repair fetches a purchase from its rail, projects it, assigns it to the subject, and reinstates
// entitlements of it that were revoked by hand. Refuses with payments/purchase_not_found,
// rail_not_enabled, rail_not_configured, rail_unavailable and subject_kind_mismatch.
func (p *Payments) Repair(ctx context.Context, q RepairRequest) (Purchase, error) {
	if err := p.checkSubject(q.Subject); err != nil {
		return Purchase{}, err
	}
	if err := capability.CheckText("transactionId", q.TransactionID, 1, maxTransactionID); err != nil {
		return Purchase{}, err
	}
	if err := capability.CheckText("reason", q.Reason, 1, maxReason); err != nil {
		return Purchase{}, err
	}
	rail, err := p.on(q.Rail)
	if err != nil {
		return Purchase{}, err
	}
	if rail.Fetch == nil {
		return Purchase{}, ErrPurchaseNotFound
	}
	ref := Ref{TransactionID: q.TransactionID}
	if known, ok, err := p.store.find(ctx, rail.ID, q.TransactionID); err != nil {
		return Purchase{}, err
	} else if ok {
		ref = known.ref()
	}
	observations, err := p.ask(ctx, rail, func(ctx context.Context, a Access) ([]Observation, error) { return rail.Fetch(ctx, a, ref) })
	if err != nil {
		return Purchase{}, err
	}
	// A rail also finds a purchase by the id of one of its renewals.
	named := observations[0].TransactionID
	if slices.ContainsFunc(observations, func(o Observation) bool { return o.TransactionID == q.TransactionID }) {
		named = q.TransactionID
	}
	c := &change{rail: rail, claimed: q.Subject, checked: true, move: func(r *row, _ Instant) bool { return r.transactionID == named }}
	var repaired *row
	err = p.host.DB.InTx(ctx, func(ctx context.Context) error {
		if err := p.apply(ctx, c, observations); err != nil {
			return err
		}
		repaired = c.rows[named]
		if err := p.unmask(ctx, repaired, q.Subject); err != nil {
			return err
		}
		return p.audit.Record(ctx, audit.Event{Action: "payments/purchase_repaired", Subject: audit.Target{Type: "purchase", ID: repaired.id},
			Targets: []audit.Target{target(q.Subject)}})
	})
	if err != nil {
		return Purchase{}, err
	}
	p.afterApply(ctx, c)
	return p.wire(repaired, At(p.host.Now()), true), nil
}

// unmask reinstates the entitlements of a purchase that were revoked by hand.
func (p *Payments) unmask(ctx context.Context, r *row, subject Subject) error {
	if err := p.touch(ctx, subject); err != nil {
		return err
	}
	now := At(p.host.DB.Now(ctx))
	before, err := p.resolve(ctx, subject, nil)
	if err != nil {
		return err
	}
	if err := p.store.unmask(ctx, r.id); err != nil {
		return err
	}
	after, err := p.resolve(ctx, subject, nil)
	if err != nil {
		return err
	}
	return p.fire(ctx, subject, nil, after.active(now), before.active(now))
}

// ListPurchases lists purchases, newest first. The filter compares the current status.
func (p *Payments) ListPurchases(ctx context.Context, f PurchaseFilter, page capability.Page) (capability.Items[Purchase], error) {
	page = page.Bounded()
	rows, now, err := p.rows(ctx, f, page)
	if err != nil {
		return capability.Items[Purchase]{}, err
	}
	list := make([]Purchase, len(rows))
	for i, r := range rows {
		list[i] = p.wire(r, now, true)
	}
	return capability.Paged(page, list, func(v Purchase) []any { return []any{v.ID} }), nil
}

func (p *Payments) rows(ctx context.Context, f PurchaseFilter, page capability.Page) ([]*row, Instant, error) {
	var before string
	if _, err := page.After(&before); err != nil {
		return nil, 0, err
	}
	if f.Subject != (Subject{}) {
		if err := p.checkSubject(f.Subject); err != nil {
			return nil, 0, err
		}
	}
	now := At(p.host.Now())
	rows, err := p.store.purchases(ctx, f, now, before, page.Limit+1)
	return rows, now, err
}
