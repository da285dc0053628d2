package payments

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/internal/bearer"
	"github.com/kitbackend/kit/internal/optional"
	"github.com/kitbackend/kit/internal/refusal"
)

// Entitlement is one key that a subject has, and its sources.
type Entitlement struct {
	Key    string `json:"key"`
	Active bool   `json:"active"`
	// ExpiresAt is the latest end of its sources, null where one has none. In grace
	// that is the end of the window, null where the rail reports none.
	ExpiresAt *capability.Time `json:"expiresAt"`
	// InGrace says that only purchases in grace grant it.
	InGrace bool `json:"inGrace"`
	// PeriodType, WillRenew and BillingIssueSince are those of the source that
	// lasts longest.
	PeriodType        PeriodType       `json:"periodType"`
	WillRenew         bool             `json:"willRenew"`
	BillingIssueSince *capability.Time `json:"billingIssueSince"`
	Sources           []Source         `json:"sources"`
}

// Source is a purchase or a grant that gives an entitlement.
type Source struct {
	// Type is "purchase" or "grant".
	Type              string           `json:"type"`
	ID                string           `json:"id"`
	Rail              RailID           `json:"rail,omitempty"`
	ProductKey        string           `json:"productKey,omitempty"`
	Status            Status           `json:"status,omitempty"`
	ExpiresAt         *capability.Time `json:"expiresAt"`
	PeriodType        PeriodType       `json:"periodType,omitempty"`
	WillRenew         bool             `json:"willRenew"`
	BillingIssueSince *capability.Time `json:"billingIssueSince,omitempty"`

	until Instant // when it stops by itself, 0 for never
}

// Entitlements are the entitlements of a subject.
type Entitlements struct {
	Subject      Subject       `json:"subject"`
	Entitlements []Entitlement `json:"entitlements"`
	// AccountTokens are the tokens by which apps name the subject to the stores.
	AccountTokens map[RailID]string `json:"accountTokens,omitempty"`
	AsOf          capability.Time   `json:"asOf"`
}

// sources holds the sources of one subject by key, ended ones included.
type sources map[string][]Source

// active returns the keys that are granted at an instant.
func (s sources) active(now Instant) map[string]bool {
	keys := make(map[string]bool)
	for key, list := range s {
		for _, source := range list {
			if source.until == 0 || now < source.until {
				keys[key] = true
			}
		}
	}
	return keys
}

// resolve reads the entitlements of a subject, from the purchases for which keep is true; nil keeps
// all.
func (p *Payments) resolve(ctx context.Context, subject Subject, keep func(*row) bool) (sources, error) {
	rows, err := p.store.granting(ctx, subject, p.catalog.entitling)
	if err != nil {
		return nil, err
	}
	masked, err := p.store.masked(ctx, subject)
	if err != nil {
		return nil, err
	}
	grants, err := p.store.grants(ctx, subject)
	if err != nil {
		return nil, err
	}
	return p.collect(rows, grants, masked, keep), nil
}

// collect makes sources of the rows of one subject.
func (p *Payments) collect(rows []*row, grants []grantRow, masked map[mask]bool, keep func(*row) bool) sources {
	found := make(sources)
	for _, r := range rows {
		if !r.p.Status.Grants(!p.cfg.NoGraceAccess) || keep != nil && !keep(r) {
			continue
		}
		end := r.p.AccessUntil
		if r.p.Status == StatusInGrace {
			end = r.p.ChangesAt // what was paid for is over
		}
		for _, key := range p.catalog.byKey[r.productKey].Entitlements {
			if !masked[mask{r.id, key}] {
				found[key] = append(found[key], Source{Type: "purchase", ID: r.id, Rail: r.rail, ProductKey: r.productKey, Status: r.p.Status,
					ExpiresAt: optional.Time(end), PeriodType: r.p.PeriodType, WillRenew: r.p.WillRenew,
					BillingIssueSince: optional.Time(r.p.BillingIssueSince), until: r.p.ChangesAt})
			}
		}
	}
	for _, g := range grants {
		found[g.entitlement] = append(found[g.entitlement], Source{Type: "grant", ID: g.id, ExpiresAt: optional.Time(g.expiresAt), until: g.expiresAt})
	}
	return found
}

// Entitlements returns the current entitlements of a subject with their sources. Refuses with
// payments/subject_kind_mismatch.
func (p *Payments) Entitlements(ctx context.Context, subject Subject) (e Entitlements, err error) {
	if err := p.checkSubject(subject); err != nil {
		return e, err
	}
	var found sources
	err = p.host.DB.Read(ctx, func(ctx context.Context) (err error) {
		found, err = p.resolve(ctx, subject, nil)
		return err
	})
	if err != nil {
		return e, err
	}
	return found.of(subject, At(p.host.Now())), nil
}

func (s sources) of(subject Subject, now Instant) Entitlements {
	e := Entitlements{Subject: subject, Entitlements: []Entitlement{}, AsOf: capability.Millis(int64(now))}
	for _, key := range sorted(s) {
		if one, ok := combine(key, s[key], now); ok {
			e.Entitlements = append(e.Entitlements, one)
		}
	}
	return e
}

// ListEntitlements lists subjects that have or had entitlements, by id, with their current ones.
func (p *Payments) ListEntitlements(ctx context.Context, page capability.Page) (capability.Items[Entitlements], error) {
	page = page.Bounded()
	var none capability.Items[Entitlements]
	after := Subject{Type: p.cfg.BillingSubject}
	if _, err := page.After(&after.ID); err != nil {
		return none, err
	}
	var list []Entitlements
	err := p.host.DB.Read(ctx, func(ctx context.Context) (err error) {
		list, err = p.page(ctx, after, page.Limit+1)
		return err
	})
	if err != nil {
		return none, err
	}
	return capability.Paged(page, list, func(e Entitlements) []any { return []any{e.Subject.ID} }), nil
}

func (p *Payments) page(ctx context.Context, after Subject, limit int) ([]Entitlements, error) {
	ids, err := p.store.subjects(ctx, after, limit)
	if err != nil {
		return nil, err
	}
	rows, err := p.store.grantingOf(ctx, after.Type, ids, p.catalog.entitling)
	if err != nil {
		return nil, err
	}
	grants, err := p.store.grantsOf(ctx, after.Type, ids)
	if err != nil {
		return nil, err
	}
	masked, err := p.store.maskedOf(ctx, after.Type, ids)
	if err != nil {
		return nil, err
	}
	byID, givenTo := make(map[string][]*row), make(map[string][]grantRow)
	for _, r := range rows {
		byID[r.subject.ID] = append(byID[r.subject.ID], r)
	}
	for _, g := range grants {
		givenTo[g.subject.ID] = append(givenTo[g.subject.ID], g)
	}
	now := At(p.host.Now())
	list := make([]Entitlements, len(ids))
	for i, each := range ids {
		list[i] = p.collect(byID[each], givenTo[each], masked, nil).of(Subject{after.Type, each}, now)
	}
	return list, nil
}

// combine makes one entitlement from its sources; the source that lasts longest decides when it
// ends.
func combine(key string, list []Source, now Instant) (Entitlement, bool) {
	list = slices.DeleteFunc(slices.Clone(list), func(s Source) bool { return s.until != 0 && now >= s.until })
	if len(list) == 0 {
		return Entitlement{}, false
	}
	lasts := func(s Source) Instant {
		if s.until == 0 {
			return 1<<63 - 1
		}
		return s.until
	}
	slices.SortStableFunc(list, func(a, b Source) int {
		if x, y := lasts(a), lasts(b); x != y {
			return int(min(max(y-x, -1), 1))
		}
		return strings.Compare(a.ID, b.ID)
	})
	best := list[0]
	e := Entitlement{Key: key, Active: true, ExpiresAt: best.ExpiresAt, InGrace: true, PeriodType: best.PeriodType,
		WillRenew: best.WillRenew, BillingIssueSince: best.BillingIssueSince, Sources: list}
	if e.PeriodType == "" {
		e.PeriodType = PeriodNormal
	}
	for _, s := range list {
		e.InGrace = e.InGrace && s.Status == StatusInGrace
	}
	return e, true
}

// Entitled reports whether a subject has an entitlement now. It is cheap enough for every request:
// the entitlements of a subject are cached, and invalidated at once on the node that changes them
// and within a second on others.
func (p *Payments) Entitled(ctx context.Context, subject Subject, key string) (bool, error) {
	now := p.host.Now()
	known, ok := p.cache.get(subject, now)
	if !ok {
		if err := p.checkSubject(subject); err != nil {
			return false, err
		}
		var err error
		if known, err = p.load(ctx, subject, now); err != nil {
			return false, err
		}
	}
	until, has := known[key]
	return has && (until == 0 || now.UnixMilli() < int64(until)), nil
}

// load reads the entitlements of a subject and caches them, unless they changed meanwhile or are
// read in a transaction, which may not commit.
func (p *Payments) load(ctx context.Context, subject Subject, now time.Time) (map[string]Instant, error) {
	ticket := p.cache.begin()
	list, err := p.store.holdings(ctx, subject, p.catalog.entitling)
	if err != nil {
		return nil, err
	}
	masked := make(map[mask]bool)
	for _, h := range list {
		if h.product != "" && h.entitlement != "" {
			masked[mask{h.id, h.entitlement}] = true
		}
	}
	known := make(map[string]Instant)
	for _, h := range list {
		switch {
		case h.product == "":
			keepLongest(known, h.entitlement, h.until)
		case h.status.Grants(!p.cfg.NoGraceAccess):
			for _, key := range p.catalog.byKey[h.product].Entitlements {
				if !masked[mask{h.id, key}] {
					keepLongest(known, key, h.until)
				}
			}
		}
	}
	if !p.host.DB.InTransaction(ctx) {
		p.cache.put(subject, known, now, ticket)
	}
	return known, nil
}

// keepLongest extends until when a key is granted; 0 means forever.
func keepLongest(known map[string]Instant, key string, until Instant) {
	if last, ok := known[key]; !ok || last != 0 && (until == 0 || until > last) {
		known[key] = until
	}
}

// cacheFor bounds how long a node uses cached entitlements if the hint of another node was lost.
const (
	cacheFor   = time.Second
	cacheLimit = 50_000
)

// cache holds the entitlements of subjects with their ends.
type cache struct {
	mu      sync.RWMutex
	entries map[Subject]cached
	// epoch counts invalidations, so that a value read before one is not cached after it.
	epoch uint64
	floor uint64
	gone  map[Subject]uint64
}

type cached struct {
	known map[string]Instant
	at    time.Time
}

func (c *cache) get(subject Subject, now time.Time) (map[string]Instant, bool) {
	c.mu.RLock()
	entry, ok := c.entries[subject]
	c.mu.RUnlock()
	if age := now.Sub(entry.at); !ok || age >= cacheFor || age < 0 {
		return nil, false
	}
	return entry.known, true
}

func (c *cache) begin() uint64 {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.epoch
}

func (c *cache) put(subject Subject, known map[string]Instant, now time.Time, ticket uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if at, ok := c.gone[subject]; ok && at > ticket || ticket < c.floor {
		return
	}
	if len(c.entries) >= cacheLimit {
		clear(c.entries)
	}
	c.entries[subject] = cached{known, now}
}

func (c *cache) forget(subject Subject) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.epoch++
	delete(c.entries, subject)
	if len(c.gone) >= cacheLimit {
		clear(c.gone)
		c.floor = c.epoch
	}
	c.gone[subject] = c.epoch
}

func (c *cache) forgetAll() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.epoch++
	c.floor = c.epoch
	clear(c.entries)
	clear(c.gone)
}

// RequireEntitlement returns a middleware for routes of the application's own:
// it admits signed-in users whose subject has the entitlement. It refuses with
// auth/unauthenticated, auth/csrf and payments/entitlement_required, and needs
// auth composed.
func (p *Payments) RequireEntitlement(key string) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if err := p.admit(r, key); err != nil {
				refusal.Write(p.host.Log, w, r, err)
				return
			}
			next.ServeHTTP(w, r)
		})
	}
}

// Require refuses a call of a capability of the application's own unless its
// caller's subject has an entitlement, with payments/entitlement_required.
func (p *Payments) Require(c *capability.Call, key string) error {
	return p.require(c.Context(), c.Caller.UserID, key)
}

func (p *Payments) require(ctx context.Context, userID, key string) error {
	subject, _, err := p.subjectOf(ctx, userID)
	if err != nil {
		return err
	}
	ok, err := p.Entitled(ctx, subject, key)
	if err == nil && !ok {
		err = ErrEntitlementRequired.With(map[string]string{"entitlement": key})
	}
	return err
}

func (p *Payments) admit(r *http.Request, key string) error {
	if p.users == nil {
		return capability.ErrUnauthenticated
	}
	users := p.users
	if token, given, err := bearer.Token(r); err != nil {
		return err
	} else if given {
		caller, err := users.Bearer(r.Context(), token)
		if err != nil {
			return err
		}
		return p.require(r.Context(), caller.UserID, key)
	}
	caller, ok, err := users.Session(r)
	switch {
	case err != nil:
		return err
	case !ok:
		return capability.ErrUnauthenticated
	}
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		if err := users.CSRF(r, caller); err != nil {
			return err
		}
	}
	return p.require(r.Context(), caller.UserID, key)
}

// touch counts a change of a subject's entitlements and invalidates caches when the transaction
// commits.
func (p *Payments) touch(ctx context.Context, subject Subject) error {
	if err := p.store.ensureSubject(ctx, subject, newToken()); err != nil {
		return err
	}
	if err := p.store.bump(ctx, subject); err != nil {
		return err
	}
	p.forgetAfter(ctx, subject)
	return p.host.PubSub.Publish(ctx, topic, []byte(string(subject.Type)+" "+subject.ID))
}

// checkSubject refuses a subject that cannot hold a purchase here.
func (p *Payments) checkSubject(s Subject) error {
	if s.Type == "" {
		return capability.ErrInvalidRequest.Saying("subjectType is missing.")
	}
	if s.Type != p.cfg.BillingSubject {
		return ErrSubjectKind
	}
	if s.erased() {
		return capability.ErrInvalidRequest.Saying("subjectId is taken by what is left of somebody who was erased.")
	}
	return capability.CheckText("subjectId", s.ID, 1, capability.MaxUserID)
}
