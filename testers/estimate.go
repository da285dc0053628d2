package testers

import (
	"context"
	"math"
	"time"

	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/internal/optional"
)

// shownDays limits the snapshots in an estimate.
const shownDays = 60

// estimate forecasts a cohort from its described members.
func (t *Testers) estimate(ctx context.Context, c Cohort, members []Member) (Estimate, error) {
	now := t.db.Now(ctx)
	e := Estimate{
		ModelVersion: t.cfg.Forecast.ModelVersion, AsOf: capability.Millis(now.UnixMilli()), Timezone: "UTC", DayBoundary: "00:00 UTC",
		ResetPolicy:    t.cfg.Forecast.ResetPolicy,
		Calibration:    Calibration{Status: "uncalibrated", Basis: "chosen", Note: "The constants are chosen numbers, not fitted to data."},
		Disclaimer:     "An estimate from opt-ins that testers reported themselves. The store decides; this is no promise of access to production.",
		Reconciliation: Reconciliation{Reason: "The store has no interface that lists who opted in: edits.testers returns Google Groups only."},
		Requirement:    Requirement{c.TargetSize, c.WindowDays},
	}
	snapshots, err := t.store.snapshots(ctx, c.ID, dayOf(now)-shownDays)
	if err != nil {
		return e, err
	}
	e.Observed = Observed{
		WindowDaysElapsed: int(c.elapsed), WindowStartedOn: optionalDate(c.started), Resets: int(c.resets),
		LastResetOn: optionalDate(c.lastReset), Snapshots: append([]Snapshot{}, snapshots...),
	}
	for _, m := range members {
		if m.State != StateOptedIn {
			continue
		}
		e.Observed.OptedIn++
		if m.StreakDays >= c.WindowDays {
			e.Observed.WithFullStreak++
		}
	}
	e.Estimates = Estimates{GoalProbability: t.cfg.Forecast.GoalProbability, Curve: []CurvePoint{}, Members: []MemberEstimate{}}
	if reason := t.unknown(c, members, now); reason != "" {
		e.Estimates.SuccessProbabilityReason = &reason
		return e, nil
	}
	t.forecast(&e.Estimates, c, members, now)
	return e, nil
}

// unknown returns the reason why there is no estimate, or "".
func (t *Testers) unknown(c Cohort, members []Member, now time.Time) string {
	if c.Status == StatusClosed {
		return "cohort_closed"
	}
	if now.Sub(time.UnixMilli(max(c.lastPass, c.created))) > t.cfg.Forecast.StaleAfter {
		return "stale_snapshot"
	}
	for _, m := range members {
		if m.State == StateInvited || m.State == StateAccepted || m.State == StateOptedIn {
			return ""
		}
	}
	return "no_roster"
}

// chanceOf returns the chance of one member; as is the presence assumed if the member is opted in.
func (t *Testers) chanceOf(m Member, as Presence, c Cohort, now time.Time) chance {
	f := t.cfg.Forecast
	waited := int(max(0, dayOf(now)-dayOf(time.UnixMilli(m.stateAt))))
	ask := func(j Join) chance {
		return pending(waited, c.WindowDays, j.Ever, j.Daily, f.Hazard.PostJoin, f.HorizonDays)
	}
	switch m.State {
	case StateOptedIn:
		return optedIn(m.StreakDays, c.WindowDays, f.hazard(as), f.HorizonDays)
	case StateAccepted:
		return ask(f.Join.Accepted)
	case StateLapsed:
		return ask(f.Join.Lapsed)
	default:
		return ask(f.Join.Invited)
	}
}

func (f Forecast) hazard(p Presence) float64 {
	switch p {
	case PresenceActive:
		return f.Hazard.Active
	case PresenceUnreachable:
		return f.Hazard.Unreachable
	case PresenceNeverLinked:
		return f.Hazard.NeverLinked
	default:
		return f.Hazard.Inactive
	}
}

// forecast computes the estimates of a cohort for which there is enough data.
func (t *Testers) forecast(e *Estimates, c Cohort, members []Member, now time.Time) {
	f, today := t.cfg.Forecast, dayOf(now)
	var roster []Member
	var chances []chance
	for _, m := range members {
		if m.State.onRoster() {
			roster = append(roster, m)
			chances = append(chances, t.chanceOf(m, m.Activity, c, now))
		}
	}
	days := tails(chances, c.TargetSize, f.HorizonDays)
	curve := curveOf(days)
	at, p := best(curve)
	p6 := round(p)
	e.SuccessProbability = &p6
	e.BestDate = optional.Text(dateOf(today + int64(at)))
	expected := 0.0
	for _, one := range chances {
		expected += one.present[at]
	}
	expected = round(expected)
	e.ExpectedOptedInAtBest = &expected
	for h, q := range curve {
		if q >= f.CompletionProbability && e.CompletionDate == nil {
			e.CompletionDate = optional.Text(dateOf(today + int64(h)))
		}
		e.Curve = append(e.Curve, CurvePoint{dateOf(today + int64(h)), round(q)})
	}
	if len(roster) < c.TargetSize {
		e.Binding = optional.Text("roster_below_target")
	}
	e.Members = append(e.Members, t.memberEstimates(roster, chances, at, p, c, now)...)
	fresh := pending(0, c.WindowDays, f.Join.Accepted.Ever, f.Join.Accepted.Daily, f.Hazard.PostJoin, f.HorizonDays)
	if n, ok := additional(days, fresh, f.GoalProbability); ok {
		e.AdditionalTestersForGoal = &n
	}
}

// memberEstimates compares the success probability of the cohort on its best day with the one it
// would have if a single opted-in member were active.
func (t *Testers) memberEstimates(roster []Member, chances []chance, day int, success float64, c Cohort, now time.Time) (list []MemberEstimate) {
	as, active := make([]float64, len(roster)), make([]float64, len(roster))
	for i, m := range roster {
		as[i] = chances[i].streak[day]
		active[i] = t.chanceOf(m, PresenceActive, c, now).streak[day]
	}
	reached := replaced(as, active, c.TargetSize)
	for i, m := range roster {
		if m.State != StateOptedIn {
			continue
		}
		one := MemberEstimate{MemberID: m.ID, StreakSurvival: round(survival(m.StreakDays, c.WindowDays, t.cfg.Forecast.hazard(m.Activity)))}
		if m.Activity != PresenceActive {
			one.ImpactIfActive = round(reached[i] - success)
		}
		list = append(list, one)
	}
	return list
}

// round keeps six digits, more than the precision of an estimate.
func round(p float64) float64 { return math.Round(p*1e6) / 1e6 }
