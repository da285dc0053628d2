package testers

import (
	"cmp"
	"context"
	"errors"
	"strings"
	"time"
	"unicode"

	"github.com/kitbackend/kit/audit"
	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/email"
	"github.com/kitbackend/kit/hooks"
	"github.com/kitbackend/kit/internal/id"
	"github.com/kitbackend/kit/internal/optional"
)

const (
	maxInvited = 100
	maxName    = 100
)

// The actors of events.
const (
	byStaff  = "staff"
	byTester = "tester"
	bySystem = "system"
)

// dayOf returns the number of UTC days since 1970.
func dayOf(at time.Time) int64 { return at.Unix() / 86400 }

func dateOf(d int64) string { return time.Unix(d*86400, 0).UTC().Format(time.DateOnly) }

func optionalDate(d int64) *string {
	if d == 0 {
		return nil
	}
	return optional.Text(dateOf(d))
}

// plain reports whether text has no control characters and no characters that reorder displayed
// text.
func plain(text string) bool {
	return !strings.ContainsFunc(text, func(r rune) bool { return unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) })
}

// streak returns the number of days a member is opted in, including today.
func (t *Testers) streak(m Member, today int64) int {
	if m.State != StateOptedIn {
		return 0
	}
	days := today - m.optedOn + 1
	if t.cfg.Forecast.ResetPolicy == ResetPolicyCarry {
		days += m.total
	}
	return int(max(0, days))
}

// move changes the state of a member and writes the row and its event.
func (t *Testers) move(ctx context.Context, m *Member, to State, kind, actor string, now time.Time) error {
	if m.State == StateOptedIn && to != StateOptedIn {
		m.total += max(0, dayOf(now)-m.optedOn)
		m.optedOn = 0
	}
	if to == StateOptedIn && m.State != StateOptedIn {
		m.optedOn = dayOf(now)
	}
	if (to == StateOptedIn || to == StateAccepted) && m.consent == 0 {
		m.consent = now.UnixMilli()
	}
	if to != StateLapsed {
		m.lapse = ""
	}
	m.State, m.stateAt = to, now.UnixMilli()
	if err := t.store.update(ctx, *m); err != nil {
		return err
	}
	return t.store.insertEvent(ctx, *m, kind, actor, now)
}

func (t *Testers) record(ctx context.Context, action string, m Member, detail map[string]any) error {
	if detail == nil {
		detail = map[string]any{}
	}
	detail["cohort"] = m.CohortID
	return t.peers.Audit.Record(ctx, audit.Event{Action: "testers/" + action, Subject: audit.Target{Type: "tester", ID: m.ID}, Detail: detail})
}

// openCohort locks a cohort and refuses if it is closed.
func (t *Testers) openCohort(ctx context.Context, cohortID string) (Cohort, error) {
	cohortID = cmp.Or(cohortID, DefaultCohort)
	if !cohortForm.MatchString(cohortID) {
		return Cohort{}, ErrCohortNotFound
	}
	c, found, err := t.store.lockCohort(ctx, cohortID)
	switch {
	case err != nil:
		return Cohort{}, err
	case !found:
		return Cohort{}, ErrCohortNotFound
	case c.Status == StatusClosed:
		return Cohort{}, ErrCohortClosed
	}
	return c, nil
}

// Invite invites at most 100 people; the first invitation to [DefaultCohort] creates it. Each
// person is invited separately; the refusal of a single person is returned as the error. Refuses
// with testers/cohort_not_found, cohort_closed, not_configured, already_on_roster, withdrawn,
// roster_full, email/invalid_address, email/rate_limited and kit/invalid_request.
func (t *Testers) Invite(ctx context.Context, cohortID string, people []Tester) (InviteResult, error) {
	result := InviteResult{Invited: []Member{}, Refused: []Refused{}}
	if len(people) == 0 || len(people) > maxInvited {
		return result, capability.ErrInvalidRequest.Saying("testers has 1 to %d entries.", maxInvited)
	}
	cohortID = cmp.Or(cohortID, DefaultCohort)
	if cohortID == DefaultCohort {
		if err := t.ensureDefault(ctx); err != nil {
			return result, err
		}
	}
	for _, p := range people {
		m, err := t.invite(ctx, cohortID, p)
		refusal := capability.AsError(err)
		switch {
		case err == nil:
			result.Invited = append(result.Invited, m)
		case len(people) == 1, refusal.Status >= 500, ErrCohortNotFound.Is(refusal), ErrCohortClosed.Is(refusal):
			return result, err
		default:
			result.Refused = append(result.Refused, Refused{p.Email, refusal.Code})
		}
	}
	return result, nil
}

func (t *Testers) ensureDefault(ctx context.Context) error {
	_, found, err := t.store.cohort(ctx, DefaultCohort)
	if err != nil || found {
		return err
	}
	return t.SetCohort(ctx, CohortConfig{ID: DefaultCohort})
}

func (t *Testers) invite(ctx context.Context, cohortID string, p Tester) (m Member, err error) {
	key, err := email.Canonical(p.Email)
	if err != nil {
		return m, err
	}
	if strings.ContainsAny(p.Email, "<>\"") {
		return m, capability.ErrInvalidRequest.Saying("email is an address without a name.")
	}
	if err := capability.CheckText("name", p.Name, 0, maxName); err != nil || !plain(p.Name) {
		return m, cmp.Or(err, error(capability.ErrInvalidRequest.Saying("name is not plain text.")))
	}
	hashes, err := t.hashes(ctx, key)
	if err != nil {
		return m, err
	}
	err = t.db.InTx(ctx, func(ctx context.Context) error {
		now := t.db.Now(ctx)
		c, err := t.openCohort(ctx, cohortID)
		if err != nil {
			return err
		}
		for _, hash := range hashes {
			if err := t.store.lockAddress(ctx, hash); err != nil {
				return err
			}
		}
		if gone, err := t.store.buried(ctx, hashes); err != nil || gone {
			return cmp.Or(err, error(ErrWithdrawn))
		}
		known, found, err := t.store.memberByAddress(ctx, c.ID, key)
		switch {
		case err != nil:
			return err
		case found && known.State == StateWithdrawn:
			return ErrWithdrawn
		case found && known.State != StateRemoved:
			return ErrAlreadyThere
		}
		if err := t.room(ctx, c); err != nil {
			return err
		}
		if found {
			m = known
			m.Name, m.consent, m.total, m.generation, m.nudgeAt = cmp.Or(p.Name, m.Name), 0, 0, m.generation+1, 0
		} else {
			m = Member{ID: id.New(now), CohortID: c.ID, key: key, hash: hashes[0], Email: strings.TrimSpace(p.Email), Name: p.Name, State: StateInvited}
			if added, err := t.store.insertMember(ctx, m, now); err != nil || !added {
				return cmp.Or(err, error(ErrAlreadyThere))
			}
		}
		if err := t.send(ctx, c, &m, MailInvite, nil); err != nil {
			return err
		}
		if err := t.move(ctx, &m, StateInvited, "invited", byStaff, now); err != nil {
			return err
		}
		return t.record(ctx, "invited", m, nil)
	})
	if err != nil {
		return Member{}, err
	}
	return t.one(ctx, m)
}

// room refuses if the roster is full. The cohort is locked.
func (t *Testers) room(ctx context.Context, c Cohort) error {
	counts, err := t.store.counts(ctx, c.ID)
	if err != nil {
		return err
	}
	n := 0
	for state, of := range counts {
		if state.onRoster() {
			n += of
		}
	}
	if n >= c.MaxRosterSize {
		return ErrRosterFull
	}
	return nil
}

// find locks and returns the member that ref identifies.
func (t *Testers) find(ctx context.Context, cohortID string, ref Ref) (m Member, err error) {
	var found bool
	switch {
	case (ref.Email == "") == (ref.MemberID == ""):
		return m, capability.ErrInvalidRequest.Saying("Name one tester, by email or by memberId.")
	case ref.MemberID != "":
		if capability.CheckText("memberId", ref.MemberID, 1, 64) != nil {
			return m, ErrMemberNotFound
		}
		m, found, err = t.store.lockMember(ctx, ref.MemberID)
	default:
		key, failed := email.Canonical(ref.Email)
		if failed != nil {
			return m, failed
		}
		m, found, err = t.store.memberByAddress(ctx, cohortID, key)
	}
	if err == nil && (!found || m.CohortID != cohortID) {
		err = ErrMemberNotFound
	}
	return m, err
}

// Resend mails the next step again with new links; the previous links become invalid. A lapsed
// member is invited again. Refuses with testers/cohort_not_found, cohort_closed, not_configured,
// member_not_found (also if removed), withdrawn, already_on_roster (if opted in: there is nothing
// to send), email/rate_limited and kit/invalid_request.
func (t *Testers) Resend(ctx context.Context, ref Ref) (m Member, err error) {
	err = t.db.InTx(ctx, func(ctx context.Context) error {
		now := t.db.Now(ctx)
		c, err := t.openCohort(ctx, ref.CohortID)
		if err != nil {
			return err
		}
		if m, err = t.find(ctx, c.ID, ref); err != nil {
			return err
		}
		to := m.State
		switch m.State {
		case StateWithdrawn:
			return ErrWithdrawn
		case StateRemoved:
			return ErrMemberNotFound
		case StateOptedIn:
			return ErrAlreadyThere.Saying("The tester has opted in already.")
		case StateLapsed:
			if to = StateInvited; m.consent > 0 {
				to = StateAccepted
			}
		default:
		}
		m.generation++
		kind := MailInvite
		if to == StateAccepted {
			kind = MailStore
		}
		if err := t.send(ctx, c, &m, kind, nil); err != nil {
			return err
		}
		if err := t.move(ctx, &m, to, "resent", byStaff, now); err != nil {
			return err
		}
		return t.record(ctx, "resent", m, nil)
	})
	if err != nil {
		return Member{}, err
	}
	return t.one(ctx, m)
}

// Remove removes a tester from the roster; a withdrawn tester stays withdrawn. Refuses with
// testers/cohort_not_found, member_not_found and kit/invalid_request.
func (t *Testers) Remove(ctx context.Context, ref Ref) (m Member, err error) {
	err = t.db.InTx(ctx, func(ctx context.Context) error {
		now := t.db.Now(ctx)
		c, err := t.openCohort(ctx, ref.CohortID)
		if ErrCohortClosed.Is(err) {
			c.ID, err = cmp.Or(ref.CohortID, DefaultCohort), nil
		}
		if err != nil {
			return err
		}
		if m, err = t.find(ctx, c.ID, ref); err != nil || !m.State.onRoster() {
			return err
		}
		m.generation++
		if err := t.retract(ctx, &m); err != nil {
			return err
		}
		if err := t.move(ctx, &m, StateRemoved, "removed", byStaff, now); err != nil {
			return err
		}
		return t.record(ctx, "removed", m, nil)
	})
	if err != nil {
		return Member{}, err
	}
	return t.one(ctx, m)
}

// follow runs the action of a link on its member.
func (t *Testers) follow(ctx context.Context, l link, userID string, act func(context.Context, Cohort, *Member, time.Time) error) (c Cohort, m Member, err error) {
	err = t.db.InTx(ctx, func(ctx context.Context) error {
		now := t.db.Now(ctx)
		if m, err = t.valid(ctx, l, t.store.member, now); err != nil {
			return err
		}
		if c, err = t.openCohort(ctx, m.CohortID); err != nil {
			return err
		}
		if m, err = t.valid(ctx, l, t.store.lockMember, now); err != nil { // again: visits and withdrawals lock only members
			return err
		}
		if m.user == "" && userID != "" && act != nil {
			m.user = userID
			if err := t.store.update(ctx, m); err != nil {
				return err
			}
		}
		if act == nil {
			return nil
		}
		return act(ctx, c, &m, now)
	})
	return c, m, err
}

// valid returns the member of a valid link; read locks the member or not.
func (t *Testers) valid(ctx context.Context, l link, read func(context.Context, string) (Member, bool, error), now time.Time) (Member, error) {
	m, found, err := read(ctx, l.memberID)
	switch {
	case err != nil:
		return m, err
	case !found || m.generation != l.generation || !m.State.onRoster():
		return m, ErrInvalidToken
	case !l.expires.IsZero() && now.After(l.expires):
		return m, errExpired
	}
	return m, nil
}

// errExpired is the refusal of a link that has expired.
var errExpired = ErrInvalidToken.Saying("The link has expired. Ask for a new one.")

// confirm records consent, of a lapsed member too.
func (t *Testers) confirm(ctx context.Context, _ Cohort, m *Member, now time.Time) error {
	if m.consent > 0 {
		return nil
	}
	if err := t.move(ctx, m, StateAccepted, "accepted", byTester, now); err != nil {
		return err
	}
	return t.record(ctx, "accepted", *m, nil)
}

// optIn records that the member opens the store's page.
func (t *Testers) optIn(ctx context.Context, c Cohort, m *Member, now time.Time) error {
	if c.StoreURL == "" {
		return ErrNotConfigured
	}
	if m.State == StateOptedIn {
		return nil
	}
	if err := t.move(ctx, m, StateOptedIn, "opted_in", byTester, now); err != nil {
		return err
	}
	return t.record(ctx, "opted_in", *m, nil)
}

// Withdraw permanently ends all memberships of an address, as an opt-out link does. Refuses with
// email/invalid_address.
func (t *Testers) Withdraw(ctx context.Context, address string) error {
	key, err := email.Canonical(address)
	if err != nil {
		return err
	}
	hashes, err := t.hashes(ctx, key)
	if err != nil {
		return err
	}
	return t.withdraw(ctx, hashes[0])
}

func (t *Testers) withdraw(ctx context.Context, hash string) error {
	return t.db.InTx(ctx, func(ctx context.Context) error {
		now := t.db.Now(ctx)
		if err := t.store.lockAddress(ctx, hash); err != nil {
			return err
		}
		if err := t.store.bury(ctx, hash, now); err != nil {
			return err
		}
		members, err := t.store.membersOfHash(ctx, hash)
		if err != nil {
			return err
		}
		for _, m := range members {
			if m.State == StateWithdrawn {
				continue
			}
			if err := t.retract(ctx, &m); err != nil {
				return err
			}
			if err := t.move(ctx, &m, StateWithdrawn, "withdrawn", byTester, now); err != nil {
				return err
			}
			if err := t.record(ctx, "withdrawn", m, nil); err != nil {
				return err
			}
		}
		return nil
	})
}

// retract cancels the last mail to a member if it is still queued.
func (t *Testers) retract(ctx context.Context, m *Member) error {
	if m.mailJob == "" {
		return nil
	}
	job, err := t.peers.Email.Job(ctx, m.mailJob)
	if err == nil && job.State == email.StateQueued {
		err = t.peers.Email.Cancel(ctx, m.mailJob)
	}
	m.mailJob = ""
	if errors.Is(err, email.ErrJobNotFound) || errors.Is(err, email.ErrJobNotRetryable) {
		return nil // a worker was faster: the mail is being sent
	}
	return err
}

// unsubscribed withdraws an address that unsubscribed from all mail, in the transaction of the
// change.
func (t *Testers) unsubscribed(ctx context.Context, e hooks.MailSuppressed) error {
	if e.Scope != string(email.ScopeAll) {
		return nil
	}
	key, err := email.Canonical(e.Address)
	if err != nil {
		return nil // a hash, by which no member can be found
	}
	hashes, err := t.hashes(ctx, key)
	if err != nil {
		return err
	}
	if err := t.store.lockAddress(ctx, hashes[0]); err != nil { // before the rows, as everywhere
		return err
	}
	members, err := t.store.membersOfHash(ctx, hashes[0])
	if err != nil || len(members) == 0 {
		return err
	}
	return t.withdraw(ctx, hashes[0])
}

// Left records, on behalf of staff, that a tester has left: the opt-in ends. Refuses as
// [Testers.Resend], and with testers/member_not_found unless the tester is opted in.
func (t *Testers) Left(ctx context.Context, ref Ref) error {
	return t.db.InTx(ctx, func(ctx context.Context) error {
		c, err := t.openCohort(ctx, ref.CohortID)
		if err != nil {
			return err
		}
		m, err := t.find(ctx, c.ID, ref)
		if err != nil {
			return err
		}
		if m.State != StateOptedIn {
			return ErrMemberNotFound.Saying("The tester is not opted in.")
		}
		return t.lapse(ctx, &m, lapseLeft, byStaff, t.db.Now(ctx))
	})
}

func (t *Testers) lapse(ctx context.Context, m *Member, reason, actor string, now time.Time) error {
	m.lapse = reason
	if err := t.move(ctx, m, StateLapsed, "lapsed", actor, now); err != nil {
		return err
	}
	return t.record(ctx, "lapsed", *m, map[string]any{"reason": reason})
}
