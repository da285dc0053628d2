package testers

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/email"
	"github.com/kitbackend/kit/internal/wait"
)

// Reasons of [Skipped].
const (
	skippedCooldown    = "cooldown"
	skippedNotEligible = "not_eligible"
	skippedUnreachable = "unreachable"
	skippedWithdrawn   = "withdrawn"
	skippedCap         = "daily_cap"
)

// Nudge reminds testers. The result reports each named member; if only one is named, cooldown and
// withdrawal are errors. Without names it reminds every member to whom the kind applies, in order
// of their impact on the forecast. Refuses with testers/cohort_not_found, cohort_closed,
// not_configured, member_not_found, withdrawn, nudge_cooldown, copy_not_allowed and
// kit/invalid_request.
func (t *Testers) Nudge(ctx context.Context, r NudgeRequest) (NudgeResult, error) {
	result := NudgeResult{Sent: []string{}, Skipped: []Skipped{}}
	if !r.Kind.isNudge() {
		return result, capability.ErrInvalidRequest.Saying("kind is confirm, store, inactive or closing.")
	}
	if len(r.MemberIDs) > maxInvited {
		return result, capability.ErrInvalidRequest.Saying("memberIds has at most %d entries.", maxInvited)
	}
	r.CohortID = cmp.Or(r.CohortID, DefaultCohort)
	c, err := t.Cohort(ctx, r.CohortID, Include{Members: true, Forecast: true})
	switch {
	case err != nil:
		return result, err
	case c.Status == StatusClosed:
		return result, ErrCohortClosed
	case c.StoreURL == "":
		return result, ErrNotConfigured
	}
	if r.Copy != nil {
		if err := t.checkCopy(*r.Copy, c.StoreURL); err != nil {
			return result, err
		}
	}
	targets, err := t.targets(c, r, t.db.Now(ctx))
	if err != nil {
		return result, err
	}
	for _, memberID := range targets {
		reason, err := t.nudge(ctx, memberID, r, len(r.MemberIDs) == 1)
		if err != nil {
			return result, err
		}
		if reason == "" {
			result.Sent = append(result.Sent, memberID)
		} else {
			result.Skipped = append(result.Skipped, Skipped{memberID, reason})
		}
	}
	return result, nil
}

// targets returns the ids of the members that a request is for.
func (t *Testers) targets(c Cohort, r NudgeRequest, now time.Time) ([]string, error) {
	known := make(map[string]bool)
	impact := make(map[string]float64)
	for _, e := range c.Forecast.Estimates.Members {
		impact[e.MemberID] = e.ImpactIfActive
	}
	var all []string
	for _, m := range c.Members {
		known[m.ID] = true
		if t.eligible(m, c, r.Kind, now) {
			all = append(all, m.ID)
		}
	}
	slices.SortStableFunc(all, func(a, b string) int { return cmp.Compare(impact[b], impact[a]) })
	if len(r.MemberIDs) == 0 {
		return all, nil
	}
	var named []string
	for _, memberID := range r.MemberIDs {
		if !known[memberID] {
			return nil, ErrMemberNotFound
		}
		if !slices.Contains(named, memberID) {
			named = append(named, memberID)
		}
	}
	return named, nil
}

// eligible reports whether a kind of reminder applies to a described member.
func (t *Testers) eligible(m Member, c Cohort, kind MailKind, now time.Time) bool {
	n := t.cfg.Nudges
	switch kind {
	case MailConfirm:
		return m.State == StateInvited && m.stateAge(now) >= n.ConfirmAfter
	case MailStore:
		return m.State == StateAccepted && m.stateAge(now) >= n.StoreAfter
	case MailInactive:
		idle := m.Activity == PresenceInactive ||
			(m.Activity == PresenceNeverLinked && dayOf(now)-m.optedOn >= int64(t.cfg.Activity.ActiveWithinDays))
		return m.State == StateOptedIn && idle
	default:
		return m.State == StateOptedIn && c.elapsed > 0 && c.elapsed < int64(c.WindowDays) &&
			int64(c.WindowDays)-c.elapsed <= int64(n.ClosingWithinDays)
	}
}

// nudge reminds one member, or returns the reason why not.
func (t *Testers) nudge(ctx context.Context, memberID string, r NudgeRequest, alone bool) (reason string, err error) {
	err = t.db.InTx(ctx, func(ctx context.Context) error {
		now := t.db.Now(ctx)
		c, err := t.openCohort(ctx, r.CohortID)
		if err != nil {
			return err
		}
		m, found, err := t.store.lockMember(ctx, memberID)
		if err != nil {
			return err
		}
		if !found {
			return ErrMemberNotFound
		}
		described, err := t.described(ctx, []Member{m})
		if err != nil {
			return err
		}
		m = described[0]
		if reason, err = t.obstacle(ctx, c, m, r.Kind, now, alone); err != nil || reason != "" {
			return err
		}
		if err := t.send(ctx, c, &m, r.Kind, r.Copy); err != nil {
			return err
		}
		m.nudgeKind, m.nudgeAt = r.Kind, now.UnixMilli()
		if c.nudgeDay != dayOf(now) {
			c.nudgeDay, c.nudges = dayOf(now), 0
		}
		c.nudges++
		if err := t.store.setWindow(ctx, c); err != nil {
			return err
		}
		if err := t.store.update(ctx, m); err != nil {
			return err
		}
		if err := t.store.insertEvent(ctx, m, "nudged_"+string(r.Kind), byStaff, now); err != nil {
			return err
		}
		return t.record(ctx, "nudged", m, map[string]any{"kind": r.Kind})
	})
	if email.ErrRateLimited.Is(err) {
		return skippedCooldown, nil
	}
	return reason, err
}

// obstacle returns the reason why a member is not reminded now, or "".
func (t *Testers) obstacle(ctx context.Context, c Cohort, m Member, kind MailKind, now time.Time, alone bool) (string, error) {
	next := time.UnixMilli(m.nudgeAt).Add(t.cfg.Nudges.Cooldown)
	switch {
	case m.State == StateWithdrawn && alone:
		return "", ErrWithdrawn
	case m.State == StateWithdrawn:
		return skippedWithdrawn, nil
	case m.nudgeAt > 0 && now.Before(next) && alone:
		return "", ErrNudgeCooldown.With(Cooldown{capability.Millis(next.UnixMilli()), wait.Seconds(next.Sub(now))})
	case m.nudgeAt > 0 && now.Before(next):
		return skippedCooldown, nil
	case !t.eligible(m, c, kind, now):
		return skippedNotEligible, nil
	case c.nudgeDay == dayOf(now) && c.nudges >= int64(t.cfg.Nudges.DailyCap):
		return skippedCap, nil
	}
	held, err := t.peers.Email.HeldBack(ctx, email.CategoryList, m.key)
	if err == nil && len(held) > 0 {
		return skippedUnreachable, nil
	}
	return "", err
}
