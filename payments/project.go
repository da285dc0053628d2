package payments

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"

	"github.com/kitbackend/kit/audit"
	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/hooks"
)

// States of the acknowledgment that a rail requires.
const (
	ackNone    = "none"
	ackPending = "pending"
	ackDone    = "done"
	ackRefused = "refused"
)

// Bounds of the observations of one call.
const (
	maxTransactionID = 200
	maxRawRef        = 4000
	maxObservations  = 1000
)

// change is the input and the state of one call of apply, for the rows of one rail.
type change struct {
	rail *rail
	// claimed is the subject that every row without one gets; zero for none.
	claimed Subject
	// token is the token of claimed from before the rail was called, "" for a call without a user.
	token string
	// move reports whether a row of another subject is given to claimed too; nil
	// moves none.
	move func(*row, Instant) bool
	// checked says that the rail was called, for reconcile.
	checked bool
	actor   audit.Actor
	// rows are by transaction id. Those of other rails, which follow one that has
	// changed, have the rail behind it.
	rows   map[string]*row
	before map[string]granted
	// heirs are rows that were read because they replaced one of the others.
	heirs map[string]bool
	now   Instant
}

func (c *change) begin(now Instant) {
	c.now, c.rows, c.before, c.heirs = now, make(map[string]*row), make(map[string]granted), make(map[string]bool)
}

// granted holds the entitlements of a row before it was changed.
type granted struct {
	subject Subject
	product string
	grants  bool
	until   Instant
	status  Status
}

// apply merges observations of a rail and writes all their consequences in the transaction of ctx:
// statuses, charges, ledger, entitlements and the events about them.
func (p *Payments) apply(ctx context.Context, c *change, observations []Observation) error {
	c.begin(At(p.host.DB.Now(ctx)))
	observations, err := p.known(ctx, c.rail.ID, observations)
	if err != nil {
		return err
	}
	if err := p.lockRows(ctx, c, observations); err != nil {
		return err
	}
	for _, o := range observations {
		r := c.rows[o.TransactionID]
		r.facts = Merge(r.facts, o)
		// A replaced purchase stays replaced, whether or not this is the newest statement.
		if l := o.Lifecycle; l != nil && l.State != StatePending && l.State != StateAbandoned {
			if old := c.rows[l.Replaces]; old != nil && old != r {
				old.facts = old.facts.replaced(r.transactionID)
			}
		}
	}
	if err := p.lockHeirs(ctx, c); err != nil {
		return err
	}
	if c.token != "" {
		if err := p.stillThere(ctx, c.claimed, c.token); err != nil {
			return err
		}
	}
	bound := make(map[string]bool)
	for _, transactionID := range sorted(c.rows) {
		if err := p.bindAfter(ctx, c, c.rows[transactionID], bound); err != nil {
			return err
		}
	}
	return p.settleRows(ctx, c)
}

// known removes observations with OnlyKnown whose purchase is not known.
func (p *Payments) known(ctx context.Context, rail RailID, list []Observation) ([]Observation, error) {
	kept := make([]Observation, 0, len(list))
	for _, o := range list {
		if o.OnlyKnown {
			if _, ok, err := p.store.find(ctx, rail, o.TransactionID); err != nil {
				return nil, err
			} else if !ok {
				continue
			}
		}
		kept = append(kept, o)
	}
	return kept, nil
}

// maxHeirs bounds the length of a chain of replaced purchases.
const maxHeirs = 16

// lockHeirs reads the purchases without a subject that replaced the rows of a change, because they
// were reported before the purchase whose subject they inherit. It does not lock one that has a
// subject, which never loses it: what is reported about that locks both in the other order.
func (p *Payments) lockHeirs(ctx context.Context, c *change) error {
	next := sorted(c.rows)
	for len(next) > 0 && len(c.heirs) < maxHeirs {
		heir := c.rows[next[0]].facts.ReplacedBy
		next = next[1:]
		if heir == "" || c.rows[heir] != nil {
			continue
		}
		if known, ok, err := p.store.find(ctx, c.rail.ID, heir); err != nil {
			return err
		} else if ok && known.subject != (Subject{}) {
			continue
		}
		if err := p.lockRow(ctx, c, heir); err != nil {
			return err
		}
		if c.rows[heir].subject != (Subject{}) {
			delete(c.rows, heir)
			delete(c.before, heir)
			continue
		}
		c.heirs[heir] = true
		next = append(next, heir)
	}
	return nil
}

// bindAfter binds a purchase after those that it replaces, whose subject it
// inherits.
func (p *Payments) bindAfter(ctx context.Context, c *change, r *row, bound map[string]bool) error {
	if bound[r.transactionID] {
		return nil
	}
	bound[r.transactionID] = true
	if l := r.facts.Lifecycle.Value; l != nil && c.rows[l.Replaces] != nil {
		if err := p.bindAfter(ctx, c, c.rows[l.Replaces], bound); err != nil {
			return err
		}
	}
	return p.bind(ctx, c, r)
}

// lockRows reads the purchases that observations are about and those that they
// replace, in the order of their keys.
func (p *Payments) lockRows(ctx context.Context, c *change, observations []Observation) error {
	ids := make(map[string]bool)
	for _, o := range observations {
		ids[o.TransactionID] = true
		if o.Lifecycle != nil && o.Lifecycle.Replaces != "" && len(o.Lifecycle.Replaces) <= maxTransactionID {
			ids[o.Lifecycle.Replaces] = true
		}
	}
	for _, transactionID := range sorted(ids) {
		if err := p.lockRow(ctx, c, transactionID); err != nil {
			return err
		}
	}
	return nil
}

func (p *Payments) lockRow(ctx context.Context, c *change, transactionID string) error {
	r, err := p.store.lock(ctx, c.rail.ID, transactionID, p.environment)
	if err != nil {
		return err
	}
	c.rows[transactionID] = r
	c.before[transactionID] = granted{r.subject, r.productKey, r.p.Grants, r.p.AccessUntil, r.p.Status}
	if r.fresh || r.createdAt == c.now && r.checkedAt == 0 && r.facts.Lifecycle.Value == nil {
		c.before[transactionID] = granted{}
	}
	return nil
}

// bind assigns a purchase without a subject to the one that its rail or the caller names. A
// purchase with a subject is not changed.
func (p *Payments) bind(ctx context.Context, c *change, r *row) (err error) {
	if r.subject == (Subject{}) {
		if r.subject, err = p.named(ctx, c, r); err != nil || r.subject == (Subject{}) {
			return err
		}
	}
	if c.move != nil && r.subject != c.claimed && !c.heirs[r.transactionID] {
		p.project(c.rail, r, c.now) // whether it is active is for the facts just merged to say
		if c.move(r, c.now) {
			r.subject = c.claimed
			p.takeAlong(r, c.now)
			if err := p.store.moveMasks(ctx, r.id, r.subject); err != nil {
				return err
			}
		}
	}
	return p.keepCustomer(ctx, c.rail, r)
}

// named finds the subject of a purchase: by the account token that a checkout or
// an app gave the rail, by the rail's customer where that is one person, by the
// purchase it replaces, and last by the one that claims it.
func (p *Payments) named(ctx context.Context, c *change, r *row) (Subject, error) {
	if token := r.facts.AccountToken.Value; token != nil {
		if known, ok, err := p.store.subjectOfToken(ctx, strings.ToLower(*token)); err != nil || ok {
			return known.subject, err
		}
	}
	if customer := r.facts.customer(); customer != "" && !c.rail.CustomersByEmail {
		if subject, ok, err := p.store.customerSubject(ctx, r.rail, customer); err != nil || ok {
			return subject, err
		}
	}
	if l := r.facts.Lifecycle.Value; l != nil && l.Replaces != "" {
		if old := c.rows[l.Replaces]; old != nil && old.subject != (Subject{}) {
			return old.subject, nil
		}
	}
	return c.claimed, nil
}

func (p *Payments) keepCustomer(ctx context.Context, rail *rail, r *row) error {
	customer := r.facts.customer()
	if customer == "" || len(customer) > maxTransactionID || rail.CustomersByEmail {
		return nil
	}
	return p.store.addCustomer(ctx, r.rail, customer, r.subject)
}

// customerOf returns the customer that a subject is at a rail, "" where there is
// none that is certainly the subject alone.
func (p *Payments) customerOf(ctx context.Context, rail *rail, subject Subject) (string, error) {
	if rail.CustomersByEmail {
		return p.store.ownCustomer(ctx, rail.ID, subject)
	}
	return p.store.customer(ctx, rail.ID, subject)
}

// settleRows projects the rows of a change, writes them, and updates ledger, entitlements and audit
// trail.
func (p *Payments) settleRows(ctx context.Context, c *change) error {
	for _, transactionID := range sorted(c.rows) {
		r := c.rows[transactionID]
		p.project(c.rail, r, c.now)
		if c.checked && !c.heirs[transactionID] {
			r.checkedAt = c.now
		}
		r.updatedAt = c.now
		if err := p.store.save(ctx, r); err != nil {
			return err
		}
		if err := p.settle(ctx, r); err != nil {
			return err
		}
	}
	if err := p.stack(ctx, c); err != nil {
		return err
	}
	if err := p.recordChanges(ctx, c); err != nil {
		return err
	}
	return p.announce(ctx, c)
}

// project sets the projection of a row's facts at an instant.
func (p *Payments) project(rail *rail, r *row, now Instant) {
	product, known := p.catalog.of(r.rail, r.facts.Lifecycle.Value)
	r.productKey, r.kind = product.Key, product.Kind
	r.ownership = r.facts.ownership()
	r.quantity = 1
	if l := r.facts.Lifecycle.Value; l != nil {
		r.storeProduct = l.ProductID
		r.quantity = max(l.Quantity, 1)
		if !known && l.WillRenew {
			r.kind = KindSubscription
		}
	}
	if known && r.facts.Acknowledge && r.acknowledged == ackNone {
		r.acknowledged = ackPending
	}
	r.p = Project(r.facts, p.terms(rail, product, r), now)
}

func (p *Payments) terms(rail *rail, product Product, r *row) Terms {
	return Terms{
		Kind: r.kind, Duration: product.lasts(r.quantity), Start: r.startsAt, Grace: !p.cfg.NoGraceAccess,
		ReportsCompleted: rail.ReportsCompleted, NeverUnpaid: rail.ID == RailIOSStore, Leeway: rail.RenewalLeeway,
	}
}

// takeAlong lets a pass that is moved begin anew with what is left of it. One that was not stacked
// yet nobody had before: it is its new subject's from its purchase on, as if it had never been moved.
func (p *Payments) takeAlong(r *row, now Instant) {
	product := p.catalog.byKey[r.productKey]
	if product.Duration == 0 || r.startsAt == 0 {
		return
	}
	lasts := Instant(product.lasts(r.quantity).Milliseconds())
	r.facts.Begins, r.facts.Used = now, max(r.facts.Used, min(now-r.startsAt, lasts))
}

// stack lets purchases of a product that does not renew follow each other: each
// begins when the one before it ends, also where that one has left for another
// subject or product.
func (p *Payments) stack(ctx context.Context, c *change) error {
	type stacked struct {
		subject Subject
		product string
	}
	seen := make(map[stacked]bool)
	for _, transactionID := range sorted(c.rows) {
		r, before := c.rows[transactionID], c.before[transactionID]
		for _, key := range []stacked{{before.subject, before.product}, {r.subject, r.productKey}} {
			product := p.catalog.byKey[key.product]
			if product.Duration == 0 || key.subject == (Subject{}) || seen[key] {
				continue
			}
			seen[key] = true
			if err := p.stackOf(ctx, c, product, key.subject); err != nil {
				return err
			}
		}
	}
	return nil
}

func (p *Payments) stackOf(ctx context.Context, c *change, product Product, subject Subject) error {
	list, err := p.store.siblings(ctx, subject, product.Key)
	if err != nil {
		return err
	}
	list = slices.DeleteFunc(list, func(r *row) bool { return r.facts.Lifecycle.Value == nil })
	taken := false // a pass of the subject was moved
	for key, r := range c.rows {
		before := c.before[key]
		taken = taken || before.subject == subject && r.subject != subject && before.product == product.Key
	}
	bought := func(r *row) Instant { return max(r.facts.Lifecycle.Value.PurchasedAt, r.facts.Begins) }
	slices.SortStableFunc(list, func(a, b *row) int {
		if bought(a) != bought(b) {
			return int(min(max(bought(a)-bought(b), -1), 1))
		}
		return strings.Compare(a.transactionID, b.transactionID)
	})
	var end Instant
	for _, r := range list {
		begins, left := bought(r), Instant(product.lasts(r.quantity).Milliseconds())-r.facts.Used
		if left <= 0 {
			continue // it was used up before it was moved
		}
		if taken { // what follows begins now, and stays where it is if it began before
			begins = max(begins, min(r.startsAt+r.facts.Used, c.now))
		}
		start := max(begins, end)
		if r.p.Status == StatusActive || r.p.Status == StatusExpired {
			end = start + left
		}
		start -= r.facts.Used // all of it ends when what is left does
		rail := p.rails[r.rail]
		if r.startsAt == start && begins == bought(r) || rail == nil {
			continue
		}
		charges, err := p.store.charges(ctx, r)
		if err != nil {
			return err
		}
		key := r.transactionID
		if r.rail != c.rail.ID {
			key += "\x00" + string(r.rail) // two rails may use the same id
		}
		if known := c.rows[key]; known != nil {
			r = known
		} else {
			r.charges = charges
			c.rows[key] = r
			c.before[key] = granted{r.subject, r.productKey, r.p.Grants, r.p.AccessUntil, r.p.Status}
		}
		r.startsAt = start
		if taken {
			r.facts.Begins = begins
		}
		p.project(rail, r, c.now)
		if err := p.store.save(ctx, r); err != nil {
			return err
		}
	}
	return nil
}

// recorded is the detail of an audit event about a purchase.
type recorded struct {
	Rail          RailID `json:"rail"`
	TransactionID string `json:"transactionId"`
	Product       string `json:"product,omitempty"`
	From          Status `json:"from,omitempty"`
	To            Status `json:"to"`
}

// recordChanges records an event for each purchase that is new or whose status or subject has
// changed.
func (p *Payments) recordChanges(ctx context.Context, c *change) error {
	for _, transactionID := range sorted(c.rows) {
		r, before := c.rows[transactionID], c.before[transactionID]
		event := audit.Event{Actor: c.actor, Subject: audit.Target{Type: "purchase", ID: r.id}, Action: "payments/purchase_recorded",
			Detail: recorded{r.rail, shorten(r.transactionID), r.productKey, before.status, r.p.Status}}
		switch {
		case before.subject != (Subject{}) && before.subject != r.subject:
			event.Action = "payments/purchase_rebound"
			event.Targets = []audit.Target{target(before.subject), target(r.subject)}
		case before.status == r.p.Status && before.subject == r.subject:
			continue
		case r.subject != (Subject{}):
			event.Targets = []audit.Target{target(r.subject)}
		}
		if err := p.audit.Record(ctx, event); err != nil {
			return err
		}
	}
	return nil
}

func target(s Subject) audit.Target { return audit.Target{Type: string(s.Type), ID: s.ID} }

func shorten(text string) string { return text[:min(len(text), 64)] }

// announce counts the change of every subject concerned, fires the hooks with the keys gained and
// lost, and invalidates caches. It fires no hooks for an erased subject.
func (p *Payments) announce(ctx context.Context, c *change) error {
	touched := make(map[Subject]bool)
	for transactionID, r := range c.rows {
		before := c.before[transactionID]
		same := before.subject == r.subject && before.product == r.productKey && before.grants == r.p.Grants && before.until == r.p.AccessUntil
		for _, subject := range []Subject{before.subject, r.subject} {
			if subject != (Subject{}) && !subject.erased() && !same {
				touched[subject] = true
			}
		}
	}
	subjects := slices.SortedFunc(maps.Keys(touched), func(a, b Subject) int {
		return strings.Compare(string(a.Type)+"\x00"+a.ID, string(b.Type)+"\x00"+b.ID)
	})
	for _, subject := range subjects {
		if err := p.announceOne(ctx, c, subject); err != nil {
			return err
		}
	}
	return nil
}

// announceOne compares the entitlements that the rows of a change granted a subject before and
// after, given all other sources of the subject.
func (p *Payments) announceOne(ctx context.Context, c *change, subject Subject) error {
	if err := p.touch(ctx, subject); err != nil {
		return err
	}
	if !p.host.Hooks.EntitlementsChanged.Attached() {
		return nil
	}
	masked, err := p.store.masked(ctx, subject)
	if err != nil {
		return err
	}
	own := make(map[string]bool)
	was, is := make(map[string]bool), make(map[string]bool)
	for transactionID, r := range c.rows {
		own[r.id] = true
		if b := c.before[transactionID]; b.subject == subject && b.grants {
			p.addKeys(was, r.id, b.product, masked)
		}
		if r.subject == subject && r.p.Grants {
			p.addKeys(is, r.id, r.productKey, masked)
		}
	}
	if maps.Equal(was, is) {
		return nil
	}
	rest, err := p.resolve(ctx, subject, func(r *row) bool { return !own[r.id] })
	if err != nil {
		return err
	}
	return p.fire(ctx, subject, was, is, rest.active(c.now))
}

func (p *Payments) addKeys(into map[string]bool, purchaseID, productKey string, masked map[mask]bool) {
	for _, key := range p.catalog.byKey[productKey].Entitlements {
		if !masked[mask{purchaseID, key}] {
			into[key] = true
		}
	}
}

// fire calls the hooks with the keys that a subject gained and lost, except those that its other
// sources grant.
func (p *Payments) fire(ctx context.Context, subject Subject, was, is, rest map[string]bool) error {
	event := hooks.EntitlementsChanged{SubjectType: string(subject.Type), SubjectID: subject.ID, Granted: []string{}, Revoked: []string{}}
	for _, key := range sorted(is) {
		if !was[key] && !rest[key] {
			event.Granted = append(event.Granted, key)
		}
	}
	for _, key := range sorted(was) {
		if !is[key] && !rest[key] {
			event.Revoked = append(event.Revoked, key)
		}
	}
	if len(event.Granted)+len(event.Revoked) == 0 {
		return nil
	}
	return p.host.Hooks.EntitlementsChanged.Fire(ctx, event)
}

// checkObservations checks that observations keep to the rules of [Observation], and reports
// whether all of them are of this deployment's environment.
func (p *Payments) checkObservations(rail *rail, list []Observation) ([]Observation, error) {
	if len(list) > maxObservations {
		return nil, errors.New("payments: a rail returned too many observations at once")
	}
	list = slices.Clone(list) // a rail may keep its own
	for i := range list {
		o := &list[i]
		o.Rail = rail.ID
		if len(o.TransactionID) == 0 || len(o.TransactionID) > maxTransactionID || len(o.RawRef) > maxRawRef || o.Version <= 0 {
			return nil, errors.New("payments: a rail returned an observation without transaction id or version, or one that is too long")
		}
		for _, text := range []string{o.TransactionID, o.RawRef, o.CustomerID, o.AccountToken} {
			if err := capability.CheckText("observation", text, 0, maxRawRef); err != nil {
				return nil, errors.Join(errors.New("payments: a rail returned text that cannot be stored"), err)
			}
		}
		if o.Environment != "" && o.Environment != p.environment {
			return nil, ErrEnvironmentMismatch
		}
		if o.Environment == "" {
			o.Environment = p.environment
		}
	}
	return list, nil
}

// newToken returns a new account token: a UUID, as both stores require.
func newToken() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails: crypto/rand ends the process instead
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

// afterApply runs after the commit: it acknowledges purchases at rails that require it, and leaves
// failures to reconcile.
func (p *Payments) afterApply(ctx context.Context, c *change) {
	for _, transactionID := range sorted(c.rows) {
		r := c.rows[transactionID]
		if r.acknowledged != ackPending || r.subject == (Subject{}) || r.rail != c.rail.ID || c.rail.Acknowledge == nil {
			continue
		}
		if err := p.acknowledge(ctx, c.rail, r); err != nil {
			p.host.Log.WarnContext(ctx, "payments: a purchase is not acknowledged yet", slog.String("rail", string(r.rail)), slog.Any("error", err))
		}
	}
}

// acknowledge acknowledges a purchase at its rail and records that.
func (p *Payments) acknowledge(ctx context.Context, rail *rail, r *row) error {
	access, err := p.access(ctx, rail)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, p.budget)
	defer cancel()
	err = rail.Acknowledge(ctx, access, r.ref())
	state := ackDone
	var refusal *capability.Error
	switch {
	case errors.As(err, &refusal):
		state = ackRefused
	case err != nil:
		return err
	}
	return p.store.setAcknowledged(ctx, r.id, state)
}

func (r *row) ref() Ref {
	ref := Ref{TransactionID: r.transactionID, RawRef: r.facts.rawRef(), ProductID: r.storeProduct, Kind: r.kind, CustomerID: r.facts.customer()}
	return ref
}
