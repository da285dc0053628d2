package testers

import (
	"context"
	"errors"
	"time"

	"github.com/kitbackend/kit/auth"
	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/email"
	"github.com/kitbackend/kit/internal/optional"
)

const maxVisit = 128

// Seen records that a user used the app, at most once per member and UTC day unless the app version
// is new. It links the user to the members of the user's verified address, and opts a member in
// again who had opted in and lapsed. Refuses with kit/invalid_request.
func (t *Testers) Seen(ctx context.Context, userID string, v Visit) error {
	if err := capability.CheckUserID(userID); err != nil {
		return err
	}
	for _, text := range []string{v.AppVersion, v.SessionID} {
		if err := capability.CheckText("appVersion", text, 0, maxVisit); err != nil || !plain(text) {
			return capability.ErrInvalidRequest.Saying("A version or session is plain text of at most %d bytes.", maxVisit)
		}
	}
	if err := t.linkUser(ctx, userID); err != nil {
		return err
	}
	members, err := t.store.membersOfUser(ctx, userID)
	if err != nil {
		return err
	}
	for _, m := range members {
		if !t.noteworthy(m, v, dayOf(t.db.Now(ctx))) {
			continue
		}
		if err := t.see(ctx, m.ID, v); err != nil {
			return err
		}
	}
	return nil
}

// linkUser links a user to the members of the user's verified address.
func (t *Testers) linkUser(ctx context.Context, userID string) error {
	if t.peers.Auth == nil {
		return nil
	}
	user, err := t.peers.Auth.User(ctx, userID)
	if errors.Is(err, auth.ErrUserNotFound) || (err == nil && (!user.EmailVerified || user.Email == "")) {
		return nil
	}
	if err != nil {
		return err
	}
	key, err := email.Canonical(user.Email)
	if err != nil {
		return nil
	}
	if waiting, err := t.store.linked(ctx, key); err != nil || !waiting {
		return err
	}
	return t.store.link(ctx, userID, key)
}

// noteworthy reports whether a visit changes a member's row.
func (t *Testers) noteworthy(m Member, v Visit, today int64) bool {
	return m.State.onRoster() && (m.seen < today || m.comesBack() || (v.AppVersion != "" && v.AppVersion != optional.TextOf(m.AppVersion)))
}

// comesBack reports whether use of the app proves that a member who had opted in was wrongly
// presumed to have left. One who was invited again since then has days of an earlier opt-in.
func (m Member) comesBack() bool {
	optedIn := m.lapse == lapseUnreachable || m.lapse == lapseInactive || m.lapse == lapseNoAnswer && m.total > 0
	return m.State == StateLapsed && optedIn
}

func (t *Testers) see(ctx context.Context, memberID string, v Visit) error {
	return t.db.InTx(ctx, func(ctx context.Context) error {
		now := t.db.Now(ctx)
		m, found, err := t.store.lockMember(ctx, memberID)
		if err != nil || !found || !t.noteworthy(m, v, dayOf(now)) {
			return err
		}
		m.seen = max(m.seen, dayOf(now))
		if v.AppVersion != "" {
			m.AppVersion = &v.AppVersion
		}
		if v.SessionID != "" {
			m.LastSession = &v.SessionID
		}
		if m.comesBack() {
			return t.move(ctx, &m, StateOptedIn, "seen", byTester, now)
		}
		return t.store.update(ctx, m)
	})
}

// MembershipsOf returns the memberships of a user. Refuses with kit/invalid_request.
func (t *Testers) MembershipsOf(ctx context.Context, userID string) (Memberships, error) {
	list := Memberships{Memberships: []Membership{}}
	if err := capability.CheckUserID(userID); err != nil {
		return list, err
	}
	members, err := t.store.membersOfUser(ctx, userID)
	if err != nil {
		return list, err
	}
	if members, err = t.described(ctx, members); err != nil {
		return list, err
	}
	for _, m := range members {
		c, found, err := t.store.cohort(ctx, m.CohortID)
		if err != nil {
			return list, err
		}
		if !found {
			continue
		}
		list.Memberships = append(list.Memberships, Membership{CohortID: m.CohortID, State: m.State, Activity: m.Activity,
			OptedInOn: m.OptedInOn, StreakDays: m.StreakDays, Window: Window{int(c.elapsed), c.WindowDays}})
	}
	return list, nil
}

// The reasons of lapses.
const (
	lapseNoAnswer    = "no_answer"   // did not say yes, or did not follow the store's link, in time
	lapseUnreachable = "unreachable" // opted in, and mail cannot be delivered
	lapseInactive    = "inactive"    // opted in, and no longer uses the app
	lapseLeft        = "left"        // recorded by staff
)

// stateAge returns how long a member has been in the present state.
func (m Member) stateAge(now time.Time) time.Duration { return now.Sub(time.UnixMilli(m.stateAt)) }
