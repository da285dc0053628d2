package testers

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// maxMissed limits the missed days that are reconstructed.
const maxMissed = 400

// passAt is when the daily pass of a day is due.
const passAt = 5 * time.Minute

// Daily runs the pass of the day over all cohorts: it lapses members presumed gone, records the
// day's count, reconstructs missed days from the events, and sends automatic nudges if configured.
// A cohort that fails does not affect the others. Daily may run any number of times a day, on
// several nodes concurrently: a day is counted once.
func (t *Testers) Daily(ctx context.Context) error {
	after := ""
	var failures []error
	for {
		cohorts, err := t.store.cohorts(ctx, after, 50)
		if err != nil || len(cohorts) == 0 {
			return errors.Join(append(failures, err)...)
		}
		for _, c := range cohorts {
			after = c.ID
			if c.Status == StatusClosed {
				continue
			}
			err := t.pass(ctx, c.ID)
			if err == nil {
				err = t.nudgeByItself(ctx, c.ID)
			}
			if err != nil {
				failures = append(failures, fmt.Errorf("cohort %s: %w", c.ID, err))
			}
		}
	}
}

func (t *Testers) nudgeByItself(ctx context.Context, cohortID string) error {
	if !t.cfg.Nudges.Auto {
		return nil
	}
	for _, kind := range []MailKind{MailClosing, MailStore, MailConfirm, MailInactive} {
		if _, err := t.Nudge(ctx, NudgeRequest{CohortID: cohortID, Kind: kind}); err != nil {
			if ErrNotConfigured.Is(err) || ErrCohortClosed.Is(err) {
				return nil
			}
			return err
		}
	}
	return nil
}

// pass is the daily pass of one cohort.
func (t *Testers) pass(ctx context.Context, cohortID string) error {
	return t.db.InTx(ctx, func(ctx context.Context) error {
		now := t.db.Now(ctx)
		c, found, err := t.store.lockCohort(ctx, cohortID)
		if err != nil || !found || c.Status == StatusClosed {
			return err
		}
		if err := t.rewind(ctx, &c, dayOf(now)); err != nil {
			return err
		}
		if err := t.makeUp(ctx, &c, dayOf(now)); err != nil {
			return err
		}
		members, err := t.store.lockMembers(ctx, c.ID, MaxShown)
		if err != nil {
			return err
		}
		if members, err = t.described(ctx, members); err != nil {
			return err
		}
		for i := range members {
			if err := t.presume(ctx, &members[i], now); err != nil {
				return err
			}
		}
		c.lastPass = now.UnixMilli()
		if c.lastDay < dayOf(now) {
			estimate, err := t.estimate(ctx, c, members)
			if err != nil {
				return err
			}
			snap := Snapshot{day: dayOf(now), OptedIn: estimate.Observed.OptedIn, streak: int64(estimate.Observed.WithFullStreak), probability: -1}
			if p := estimate.Estimates.SuccessProbability; p != nil {
				snap.probability = *p
			}
			if err := t.count(ctx, &c, snap); err != nil {
				return err
			}
		}
		return t.store.setWindow(ctx, c)
	})
}

// count records a day and advances the window.
func (t *Testers) count(ctx context.Context, c *Cohort, snap Snapshot) error {
	enough := snap.OptedIn >= c.TargetSize
	switch {
	case enough && c.elapsed == 0:
		c.elapsed, c.started = 1, snap.day
	case enough:
		c.elapsed++
	case c.elapsed > 0 && t.cfg.Forecast.ResetPolicy == ResetPolicyReset:
		c.elapsed, c.started, c.lastReset = 0, 0, snap.day
		c.resets++
	}
	c.lastDay = snap.day
	snap.elapsed, snap.version = c.elapsed, t.cfg.Forecast.ModelVersion
	_, err := t.store.insertSnapshot(ctx, c.ID, snap)
	return err
}

// rewind removes the days that were counted while the clock was ahead.
func (t *Testers) rewind(ctx context.Context, c *Cohort, today int64) error {
	if c.lastDay <= today {
		return nil
	}
	last, err := t.store.rewind(ctx, c.ID, today)
	if err != nil {
		return err
	}
	c.lastDay, c.elapsed = last.day, last.elapsed
	switch {
	case c.elapsed == 0:
		c.started = 0
	case c.started == 0 || c.started > c.lastDay:
		c.started = c.lastDay - c.elapsed + 1
	}
	if c.lastReset > today {
		c.lastReset = 0
		c.resets--
	}
	return nil
}

// seat is the state of a member on a past day.
type seat struct {
	state State
	on    int64
	total int64
}

// makeUp counts the days between the last pass and today, from the events.
func (t *Testers) makeUp(ctx context.Context, c *Cohort, today int64) error {
	if c.lastDay == 0 || c.lastDay >= today-1 {
		return nil
	}
	next := max(c.lastDay+1, today-maxMissed)
	seats := make(map[string]seat)
	countUntil := func(instant time.Time) error {
		for next < today && instant.After(time.Unix(next*86400, 0).Add(passAt)) {
			if err := t.count(ctx, c, t.standing(seats, c.WindowDays, next)); err != nil {
				return err
			}
			next++
		}
		return nil
	}
	after := ""
	for {
		events, err := t.store.transitions(ctx, c.ID, after, 1000)
		if err != nil {
			return err
		}
		for _, e := range events {
			after = e.ID
			if err := countUntil(e.At.Time); err != nil {
				return err
			}
			seats[e.MemberID] = seats[e.MemberID].moved(e.State, dayOf(e.At.Time))
		}
		if len(events) < 1000 {
			return countUntil(time.Unix(today*86400, 0))
		}
	}
}

func (s seat) moved(to State, day int64) seat {
	switch {
	case s.state == to:
		return s
	case s.state == StateOptedIn:
		s.total += day - s.on
	case to == StateOptedIn:
		s.on = day
	}
	s.state = to
	return s
}

// standing returns the snapshot of a day: the members that were opted in.
func (t *Testers) standing(seats map[string]seat, window int, day int64) Snapshot {
	snap := Snapshot{day: day, probability: -1}
	for _, s := range seats {
		if s.state != StateOptedIn {
			continue
		}
		snap.OptedIn++
		if t.streak(Member{State: s.state, optedOn: s.on, total: s.total}, day) >= window {
			snap.streak++
		}
	}
	return snap
}

// presume lapses a member who is presumed to have left, and records since when mail is
// undeliverable.
func (t *Testers) presume(ctx context.Context, m *Member, now time.Time) error {
	today, a := dayOf(now), t.cfg.Activity
	reason := ""
	switch {
	case !m.State.onRoster() || m.State == StateLapsed:
		return nil
	case m.State != StateOptedIn:
		if m.stateAge(now) > t.cfg.OptInLinkTTL {
			reason = lapseNoAnswer
		}
	case m.Activity == PresenceUnreachable && m.noMail > 0 && today-m.noMail >= int64(a.LapseAfterUnreachableDays):
		reason = lapseUnreachable
	case m.Activity == PresenceInactive && today-max(m.seen, m.optedOn) >= int64(a.LapseAfterInactiveDays):
		reason = lapseInactive
	}
	if reason != "" {
		if err := t.lapse(ctx, m, reason, bySystem, now); err != nil {
			return err
		}
		m.StreakDays = 0
		return nil
	}
	since := int64(0)
	if m.Activity == PresenceUnreachable {
		since = max(m.noMail, 0)
		if since == 0 {
			since = today
		}
	}
	if since == m.noMail {
		return nil
	}
	m.noMail = since
	return t.store.update(ctx, *m)
}
