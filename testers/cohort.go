package testers

import (
	"context"
	"math"
	"time"

	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/email"
	"github.com/kitbackend/kit/internal/optional"
)

// SetCohort creates a cohort or changes its name, store address and sizes. A cohort of the
// configuration is reset to its declaration at the next start. Refuses with kit/invalid_request.
func (t *Testers) SetCohort(ctx context.Context, cohort CohortConfig) error {
	cohort = t.cfg.complete(cohort)
	if field, reason, _ := cohort.fault(); field != "" {
		return capability.ErrInvalidRequest.Saying("%s %s.", field, reason)
	}
	return t.db.InTx(ctx, func(ctx context.Context) error {
		n, err := t.store.countCohorts(ctx)
		if err != nil {
			return err
		}
		if _, found, err := t.store.cohort(ctx, cohort.ID); err != nil || (!found && n >= 2*maxCohorts) {
			if err == nil {
				err = capability.ErrInvalidRequest.Saying("There are %d cohorts already.", n)
			}
			return err
		}
		return t.store.setCohort(ctx, cohort, t.db.Now(ctx))
	})
}

// CloseCohort ends a test: its members are no longer invited or mailed. [Testers.ReopenCohort]
// reverts it. Both refuse with testers/cohort_not_found.
func (t *Testers) CloseCohort(ctx context.Context, id string) error {
	return t.setStatus(ctx, id, StatusClosed)
}

// ReopenCohort reverts [Testers.CloseCohort].
func (t *Testers) ReopenCohort(ctx context.Context, id string) error {
	return t.setStatus(ctx, id, StatusOpen)
}

func (t *Testers) setStatus(ctx context.Context, id string, status Status) error {
	if !cohortForm.MatchString(id) {
		return ErrCohortNotFound
	}
	found, err := t.store.setStatus(ctx, id, status)
	if err == nil && !found {
		err = ErrCohortNotFound
	}
	return err
}

// Include selects the optional parts of cohorts to return.
type Include struct{ Members, Forecast bool }

// ListCohorts lists cohorts by id. Refuses with kit/invalid_request.
func (t *Testers) ListCohorts(ctx context.Context, with Include, page capability.Page) (capability.Items[Cohort], error) {
	var after string
	if _, err := page.After(&after); err != nil {
		return capability.Items[Cohort]{}, err
	}
	page = page.Bounded()
	rows, err := t.store.cohorts(ctx, after, page.Limit+1)
	if err != nil {
		return capability.Items[Cohort]{}, err
	}
	items := capability.Paged(page, rows, func(c Cohort) []any { return []any{c.ID} })
	for i := range items.Items {
		if err := t.fill(ctx, &items.Items[i], with); err != nil {
			return capability.Items[Cohort]{}, err
		}
	}
	return items, nil
}

// Cohort returns one cohort. Refuses with testers/cohort_not_found.
func (t *Testers) Cohort(ctx context.Context, id string, with Include) (Cohort, error) {
	if !cohortForm.MatchString(id) {
		return Cohort{}, ErrCohortNotFound
	}
	c, found, err := t.store.cohort(ctx, id)
	if err == nil && !found {
		err = ErrCohortNotFound
	}
	if err != nil {
		return Cohort{}, err
	}
	return c, t.fill(ctx, &c, with)
}

// fill sets the computed fields of a cohort that was read.
func (t *Testers) fill(ctx context.Context, c *Cohort, with Include) error {
	counts, err := t.store.counts(ctx, c.ID)
	if err != nil {
		return err
	}
	c.Counts = make(map[State]int)
	for _, state := range []State{StateInvited, StateAccepted, StateOptedIn, StateLapsed, StateRemoved, StateWithdrawn} {
		c.Counts[state] = counts[state]
	}
	members, err := t.store.members(ctx, c.ID, MaxShown)
	if err != nil {
		return err
	}
	if members, err = t.described(ctx, members); err != nil {
		return err
	}
	c.Activity = map[Presence]int{PresenceActive: 0, PresenceInactive: 0, PresenceNeverLinked: 0, PresenceUnreachable: 0}
	sum, n := 0, 0
	for _, m := range members {
		if m.State.onRoster() {
			c.Activity[m.Activity]++
		}
		if m.Health != nil {
			sum, n = sum+*m.Health, n+1
		}
	}
	if n > 0 {
		mean := int(math.Round(float64(sum) / float64(n)))
		c.Health = &mean
	}
	if with.Members {
		c.Members = append([]Member{}, members...)
	}
	if with.Forecast {
		estimate, err := t.estimate(ctx, *c, members)
		c.Forecast = &estimate
		return err
	}
	return nil
}

// described sets the computed fields of members, who may be of different cohorts.
func (t *Testers) described(ctx context.Context, members []Member) ([]Member, error) {
	now := t.db.Now(ctx)
	windows := make(map[string]int)
	reach, err := t.reach(ctx, members)
	if err != nil {
		return nil, err
	}
	if err := t.countFeedback(ctx, members); err != nil {
		return nil, err
	}
	for i := range members {
		m := &members[i]
		if _, known := windows[m.CohortID]; !known {
			c, _, err := t.store.cohort(ctx, m.CohortID)
			if err != nil {
				return nil, err
			}
			windows[m.CohortID] = max(1, c.WindowDays)
		}
		t.describe(m, reach[m.key], windows[m.CohortID], now)
	}
	return members, nil
}

func (t *Testers) one(ctx context.Context, m Member) (Member, error) {
	members, err := t.described(ctx, []Member{m})
	if err != nil {
		return Member{}, err
	}
	return members[0], nil
}

// The deliverability of mail to a member: delivered, undeliverable; in between is Health.SoftReach.
const (
	reachFull = 1.0
	reachNone = 0.0
)

// reach returns the deliverability of mail by address.
func (t *Testers) reach(ctx context.Context, members []Member) (map[string]float64, error) {
	reach := make(map[string]float64, len(members))
	var keys []string
	for _, m := range members {
		keys = append(keys, m.key)
		reach[m.key] = reachFull
	}
	if len(keys) == 0 {
		return reach, nil
	}
	soft, err := t.peers.Email.SoftBouncing(ctx, keys...)
	if err != nil {
		return nil, err
	}
	for key := range soft {
		reach[key] = t.cfg.Health.SoftReach
	}
	held, err := t.peers.Email.HeldBack(ctx, email.CategoryList, keys...)
	for key, s := range held {
		switch s.Reason {
		case email.ReasonHardBounce, email.ReasonSoftBounceLimit, email.ReasonComplaint, email.ReasonInvalidAddress:
			reach[key] = reachNone
		default:
		}
	}
	return reach, err
}

func (t *Testers) describe(m *Member, reach float64, window int, now time.Time) {
	today := dayOf(now)
	switch {
	case reach == reachNone:
		m.Activity = PresenceUnreachable
	case m.user == "":
		m.Activity = PresenceNeverLinked
	case m.seen > 0 && today-m.seen <= int64(t.cfg.Activity.ActiveWithinDays):
		m.Activity = PresenceActive
	default:
		m.Activity = PresenceInactive
	}
	m.StreakDays = t.streak(*m, today)
	m.UserID, m.LapseReason = optional.Text(m.user), optional.Text(m.lapse)
	m.OptedInOn, m.LastSeenOn = optionalDate(m.optedOn), optionalDate(m.seen)
	m.StateSince = capability.Millis(m.stateAt)
	m.ConsentAt, m.LastNudge, m.Health = optional.Time(m.consent), nil, nil
	if m.nudgeAt > 0 {
		m.LastNudge = &Nudged{m.nudgeKind, capability.Millis(m.nudgeAt)}
	}
	if m.State == StateOptedIn && m.user != "" {
		m.Health = t.healthOf(*m, reach, window, today)
	}
}

// healthOf returns the weighted sum of recency, streak and deliverability, from 0 to 100.
func (t *Testers) healthOf(m Member, reach float64, window int, today int64) *int {
	w, recency := t.cfg.Health, 0.0
	if m.seen > 0 {
		recency = math.Pow(2, -float64(max(0, today-m.seen))/w.HalfLifeDays)
	}
	health := int(math.Round(100 * (w.Recency*recency + w.Streak*min(1, float64(m.StreakDays)/float64(window)) + w.Reach*reach)))
	return &health
}
