package payments

import "time"

// Status is the status of a purchase, one of the nine of the specification.
type Status string

// The statuses. Whether one grants and whether money arrived are independent.
const (
	StatusActive    Status = "active"
	StatusInGrace   Status = "in_grace"
	StatusOnHold    Status = "on_hold"
	StatusCanceled  Status = "canceled"
	StatusExpired   Status = "expired"
	StatusNeverPaid Status = "never_paid"
	StatusRefunded  Status = "refunded"
	StatusRevoked   Status = "revoked"
	StatusPaused    Status = "paused"
)

// Grants reports whether the status gives access; in_grace does by policy.
func (s Status) Grants(grace bool) bool {
	return s == StatusActive || s == StatusCanceled || s == StatusInGrace && grace
}

// MoneyArrived reports whether a purchase of this status has been paid for.
func (s Status) MoneyArrived() bool {
	switch s {
	case StatusActive, StatusCanceled, StatusExpired, StatusPaused:
		return true
	default:
	}
	return false
}

// mayRenew reports whether a purchase of this status can be charged again.
func (s Status) mayRenew() bool {
	return s != StatusExpired && s != StatusNeverPaid && s != StatusRevoked
}

// Terms are the settings of rail, catalog and configuration that decide a status.
type Terms struct {
	Kind ProductKind
	// Duration is that of a one-time product; Start is when it began to count,
	// after purchases of the same product before it.
	Duration time.Duration
	Start    Instant
	// ReportsCompleted and Leeway are the rail's; NeverUnpaid is ios_store's.
	ReportsCompleted, NeverUnpaid bool
	Leeway                        time.Duration
	// Grace says that in_grace grants.
	Grace bool
}

// Projection is the status of a purchase at an instant, by its facts.
type Projection struct {
	Status       Status
	Grants       bool
	MoneyArrived bool
	// AccessUntil is the end of the paid access, 0 if it has none. GrantsUntil is when Grants
	// becomes false by itself, 0 for never.
	AccessUntil, GrantsUntil Instant
	// ChangesAt is when Status becomes Then by itself, 0 for never.
	ChangesAt Instant
	Then      Status
	// GraceUntil is set in grace only, ResumeAt while paused only.
	GraceUntil, ResumeAt Instant
	PeriodType           PeriodType
	WillRenew            bool
	BillingIssueSince    Instant
}

// Project returns the projection of facts at an instant. It depends on its arguments alone.
func Project(f Facts, t Terms, now Instant) Projection {
	p := decide(f, t, now)
	if p.Status == StatusNeverPaid && t.NeverUnpaid {
		p.Status = StatusExpired
	}
	if p.Then == StatusNeverPaid && t.NeverUnpaid {
		p.Then = StatusExpired
	}
	p.Grants, p.MoneyArrived = p.Status.Grants(t.Grace), p.Status.MoneyArrived()
	if !p.Grants {
		p.GrantsUntil = 0
	} else if p.GrantsUntil == 0 {
		p.GrantsUntil = p.ChangesAt
	}
	if l := f.Lifecycle.Value; l != nil {
		p.PeriodType = l.PeriodType
		p.WillRenew = l.WillRenew && p.Status.mayRenew() && f.ReplacedBy == ""
		if p.Status == StatusInGrace || p.Status == StatusOnHold {
			p.BillingIssueSince = l.BillingIssueSince
		}
	}
	if p.PeriodType == "" {
		p.PeriodType = PeriodNormal
	}
	return p
}

// decide applies the precedence: refunds and revocations first, then the state of the rail, then
// the time.
func decide(f Facts, t Terms, now Instant) Projection {
	l := f.Lifecycle.Value
	arrived, all, chargeback := f.back()
	switch {
	case chargeback:
		return ended(StatusRevoked, l)
	case all:
		return ended(StatusRefunded, l)
	}
	over := StatusExpired
	if !arrived && !t.ReportsCompleted {
		over = StatusNeverPaid
	}
	switch {
	case f.Revoke.Value != nil && !f.Revoke.Value.Reversed:
		return ended(StatusRevoked, l)
	case f.ReplacedBy != "", l == nil:
		return ended(over, l)
	}
	switch l.State {
	case StateActive:
		return running(l, t, now, over)
	case StateGrace:
		return inGrace(f, l, now)
	case StateHold:
		return ended(StatusOnHold, l)
	case StatePaused:
		return paused(l)
	case StateEnded:
		return ended(over, l)
	case StatePending:
		if arrived {
			return ended(StatusOnHold, l)
		}
		return ended(StatusNeverPaid, l)
	default:
		if arrived {
			return ended(StatusExpired, l)
		}
		return ended(StatusNeverPaid, l)
	}
}

// ended returns the projection of a status that time does not change.
func ended(s Status, l *Lifecycle) Projection {
	p := Projection{Status: s}
	if l != nil {
		p.AccessUntil = l.AccessUntil
		if l.EndedAt > 0 && (s == StatusExpired || s == StatusNeverPaid) {
			p.AccessUntil = l.EndedAt
		}
	}
	return p
}

// paused returns the projection of a pause, with its end if the rail reported one.
func paused(l *Lifecycle) Projection {
	p := ended(StatusPaused, l)
	p.ResumeAt = l.ResumeAt
	return p
}

// running returns the projection of a purchase that the rail reports as active. A renewing purchase
// keeps granting for a while past its period, since its renewal may be under way; one that is to be
// paused is not renewed.
func running(l *Lifecycle, t Terms, now Instant, over Status) Projection {
	if t.Kind == KindOneTime && t.Duration > 0 {
		return until(StatusActive, over, max(t.Start, l.PurchasedAt)+Instant(t.Duration.Milliseconds()), 0, now)
	}
	if t.Kind == KindSubscription && !l.WillRenew && !l.Prepaid {
		end := l.AccessUntil
		if l.CancelAt > 0 {
			end = l.CancelAt
		}
		return until(StatusCanceled, over, end, 0, now)
	}
	if l.PauseAt > 0 && l.EndedAt == 0 {
		if now >= l.PauseAt {
			return paused(l)
		}
		return until(StatusActive, StatusPaused, l.PauseAt, 0, now)
	}
	leeway := t.Leeway
	if !l.WillRenew || l.EndedAt > 0 {
		leeway = 0
	}
	end := l.AccessUntil
	if l.EndedAt > 0 {
		end = l.EndedAt
	}
	return until(StatusActive, over, end, leeway, now)
}

func until(s, then Status, end Instant, leeway time.Duration, now Instant) Projection {
	if end == 0 {
		return Projection{Status: s}
	}
	last := end + Instant(leeway.Milliseconds())
	if now >= last {
		return Projection{Status: then, AccessUntil: end}
	}
	return Projection{Status: s, AccessUntil: end, GrantsUntil: last, ChangesAt: last, Then: then}
}

// inGrace returns the projection of a purchase in grace, with the later of the paid period's end
// and the grace window. Only a window that the rail reports ends it.
func inGrace(f Facts, l *Lifecycle, now Instant) Projection {
	paid := f.paidThrough()
	if paid == 0 && l.GraceUntil == 0 {
		paid = l.AccessUntil
	}
	p := Projection{Status: StatusInGrace, AccessUntil: l.AccessUntil, GraceUntil: max(paid, l.GraceUntil)}
	if l.GraceUntil == 0 {
		return p
	}
	if now >= p.GraceUntil {
		return Projection{Status: StatusOnHold, AccessUntil: l.AccessUntil}
	}
	p.GrantsUntil, p.ChangesAt, p.Then = p.GraceUntil, p.GraceUntil, StatusOnHold
	return p
}

// Choices lists the values, for documents.
func (Status) Choices() []string {
	return []string{string(StatusActive), string(StatusInGrace), string(StatusOnHold), string(StatusCanceled), string(StatusExpired), string(StatusNeverPaid), string(StatusRefunded), string(StatusRevoked), string(StatusPaused)}
}
