package matchmaking

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/jobs"
	"github.com/kitbackend/kit/multiplayer"
)

type formPayload struct {
	Matches []string `json:"matches"`
}

// enqueueForming enqueues the jobs that create the sessions of matches, on any node.
func (m *Matchmaking) enqueueForming(ctx context.Context, matchIDs []string) error {
	for some := range slices.Chunk(matchIDs, formBatch) {
		if _, err := m.host.Jobs.Enqueue(ctx, formBinding, formPayload{some}); err != nil {
			return err
		}
	}
	return nil
}

// runForm is the job that creates the sessions of matches. All of them and the end of the job
// commit together; if one cannot be created, each is tried by itself.
func (m *Matchmaking) runForm(ctx context.Context, job jobs.Job) error {
	var payload formPayload
	if err := json.Unmarshal(job.Payload, &payload); err != nil {
		return jobs.Permanent(err)
	}
	slices.Sort(payload.Matches) // rows are locked in this order
	err := m.host.DB.InTx(ctx, func(ctx context.Context) error {
		for _, matchID := range payload.Matches {
			if err := m.form(ctx, matchID); err != nil {
				return err
			}
		}
		return jobs.Complete(ctx)
	})
	if err == nil || isPassing(err) && !errors.Is(err, errNoSnapshot) { // errNoSnapshot concerns one match only
		return err
	}
	var failed []error
	for _, matchID := range payload.Matches {
		err := m.host.DB.InTx(ctx, func(ctx context.Context) error { return m.form(ctx, matchID) })
		if isRefusal(err) {
			err = m.fail(ctx, matchID, err)
		}
		failed = append(failed, err)
	}
	return errors.Join(failed...)
}

// isRefusal reports whether a retry would fail again.
func isRefusal(err error) bool {
	var refusal *capability.Error
	return errors.As(err, &refusal) && refusal.Status < 500 || errors.Is(err, errNoSnapshot) && !isPassing(err)
}

// isPassing reports whether an error is temporary and not caused by a match.
func isPassing(err error) bool {
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) ||
		errors.Is(capability.AsError(err), capability.ErrUnavailable)
}

// form creates the session of a match, in a transaction. It does nothing for a match that has a
// session or has failed.
func (m *Matchmaking) form(ctx context.Context, matchID string) error {
	match, backfill, ok, err := m.store.lockMatch(ctx, matchID)
	if err != nil || !ok || match.State != Forming {
		return err
	}
	g, known := m.games[match.GameKey]
	if !known { // not a refusal: another node may have a newer version
		return fmt.Errorf("matchmaking: this node has no game %q", match.GameKey)
	}
	switch gone, err := m.disabled(ctx, match.Players...); {
	case err != nil:
		return err
	case gone != "":
		return &atFault{gone, ErrUserNotFound}
	}
	switch {
	case !m.hasSessions(g):
	case backfill != "":
		match.SessionID = backfill
		for _, userID := range match.Players {
			err := m.seat(ctx, backfill, userID)
			if errors.Is(err, capability.ErrRateLimited) { // the player has as many as one user can have
				err = &atFault{userID, err}
			}
			if err != nil {
				return err
			}
		}
	default:
		match.SessionID = match.ID
		if err := m.start(ctx, g, multiplayer.Start{SessionID: match.ID, Players: match.Players}); err != nil {
			return err
		}
	}
	if err := m.store.settleMatch(ctx, matchID, "formed", match.SessionID); err != nil {
		return err
	}
	if match.SessionID != "" {
		m.push(ctx, matchFound{"match_found", match.SessionID, match.GameKey}, match.Players...)
	}
	return nil
}

// atFault is the error of a match that cannot become a session because of one player.
type atFault struct {
	userID string
	cause  error
}

func (f *atFault) Error() string { return "matchmaking: player " + f.userID + ": " + f.cause.Error() }
func (f *atFault) Unwrap() error { return f.cause }

// culprit returns the player who is at fault, if there is one.
func culprit(err error) (userID string, ok bool) {
	var uncovered *multiplayer.Uncovered
	if errors.As(err, &uncovered) {
		return uncovered.UserID, true
	}
	var f *atFault
	if errors.As(err, &f) {
		return f.userID, true
	}
	return "", false
}

// disabled returns the first of the users who is disabled, "" if none is.
func (m *Matchmaking) disabled(ctx context.Context, userIDs ...string) (string, error) {
	if m.peers.Auth == nil {
		return "", nil
	}
	users, err := m.peers.Auth.UsersByID(ctx, userIDs)
	if err != nil {
		return "", err
	}
	for _, userID := range userIDs {
		if !users[userID].DisabledAt.IsZero() {
			return userID, nil
		}
	}
	return "", nil
}

// fail ends a match that cannot become a session. If one player is at fault, or the seats are gone,
// the others wait again and keep their waiting time.
func (m *Matchmaking) fail(ctx context.Context, matchID string, cause error) error {
	fault, byPlayer := culprit(cause)
	if !byPlayer {
		m.host.Log.ErrorContext(ctx, "matchmaking: a match did not become a session", "match", matchID, "error", cause)
	}
	return m.host.DB.InTx(ctx, func(ctx context.Context) error { return m.dissolve(ctx, matchID, fault, cause) })
}

// dissolve ends a match that is forming, because of one of its players or, if fault is "", of none.
// In the first case the seats that it took from an offer are offered again; in the other case the
// offer is withdrawn. Players who do not wait again are told the cause.
func (m *Matchmaking) dissolve(ctx context.Context, matchID, fault string, cause error) error {
	match, backfill, ok, err := m.store.lockMatch(ctx, matchID)
	if err != nil || !ok || match.State != Forming {
		return err
	}
	if err := m.store.settleMatch(ctx, matchID, "failed", ""); err != nil {
		return err
	}
	if !slices.Contains(match.Players, fault) { // the player is in the session already
		fault = ""
	}
	failed := matchFailed{"match_failed", match.GameKey, capability.AsError(cause).Code}
	switch {
	case fault == "" && backfill == "":
		m.push(ctx, failed, match.Players...)
		return nil
	case fault == "":
		err = m.store.withdraw(ctx, backfill)
	case backfill != "":
		err = m.store.giveSeats(ctx, backfill, len(match.Players))
	}
	if err != nil {
		return err
	}
	if err := m.store.putBack(ctx, match.GameKey, matchID, match.Players, fault); err != nil {
		return err
	}
	left, err := m.store.leftIn(ctx, match.GameKey, matchID, match.Players)
	if err != nil {
		return err
	}
	for _, userID := range left {
		told := failed
		if userID != fault {
			told.Code = ""
		}
		m.push(ctx, told, userID)
	}
	g, known := m.games[match.GameKey]
	if !known { // a node that knows the game schedules the sweep within a minute
		return nil
	}
	return m.scheduleSweep(ctx, g)
}
