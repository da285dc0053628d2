package multiplayer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/hooks"
	"github.com/kitbackend/kit/leaderboard"
	"github.com/kitbackend/kit/ledger"
	"github.com/kitbackend/kit/rating"
)

var (
	errNoLedger = errors.New("multiplayer: a model declares ledger effects, and the ledger is not composed")
	errSettled  = errors.New("multiplayer: a model declares another effect under a ref that this session has settled")
	errRefused  = errors.New("multiplayer: the ledger refuses")
)

// settle performs the effects of a transition in the ledger, in the transaction of the session, and
// with the last transition of a session releases every hold that is still open. Effects that this
// session has settled before are skipped.
func (m *Multiplayer) settle(ctx context.Context, s *session, actor string, effects []Effect) error {
	if m.peers.Ledger == nil {
		if len(effects) > 0 {
			return errNoLedger
		}
		return nil
	}
	var holds []Effect
	if s.phase.Terminal() || slices.ContainsFunc(effects, Effect.settles) {
		var err error
		if holds, err = m.store.openHolds(ctx, s.id); err != nil {
			return err
		}
	}
	for _, e := range effects {
		if e.Kind == EffectHold {
			holds = append(holds, e)
		}
	}
	left := leftOpen(s, holds, effects)
	for _, e := range lockOrder(slices.Concat(effects, left), holds) {
		claimed, err := m.claim(ctx, s, e)
		if err != nil {
			return err
		}
		if !claimed {
			continue
		}
		err = m.perform(ctx, e)
		// An in-process caller of the ledger may have settled a hold that is left open.
		if err != nil && !(errors.Is(err, ledger.ErrHoldNotOpen) && slices.Contains(left, e)) {
			return uncovered(e, actor, err)
		}
	}
	return nil
}

// leftOpen returns, at the end of a session, the releases of the holds that its effects do not end.
func leftOpen(s *session, holds, effects []Effect) (left []Effect) {
	if !s.phase.Terminal() {
		return nil
	}
	ended := make(map[string]bool)
	for _, e := range effects {
		if e.settles() {
			ended[e.Ref] = true
		}
	}
	for _, hold := range holds {
		if !ended[hold.Ref] {
			ended[hold.Ref] = true
			left = append(left, Release(hold.Ref))
		}
	}
	return left
}

// lockOrder sorts effects by account, so that sessions that share players do not deadlock. The
// order of effects on different accounts does not matter. A transfer concerns two accounts and
// keeps its place: only the effects between two transfers are sorted.
func lockOrder(effects, holds []Effect) []Effect {
	accounts := make(map[string]Effect, len(holds))
	for _, hold := range holds {
		accounts[hold.Ref] = hold
	}
	byAccount := func(a, b Effect) int {
		if a.settles() {
			a = accounts[a.Ref]
		}
		if b.settles() {
			b = accounts[b.Ref]
		}
		return cmp.Or(strings.Compare(a.UserID, b.UserID), strings.Compare(a.Currency, b.Currency))
	}
	ordered := slices.Clone(effects)
	for rest := ordered; len(rest) > 0; {
		n := slices.IndexFunc(rest, func(e Effect) bool { return e.Kind == EffectTransfer })
		if n < 0 {
			n = len(rest)
		}
		slices.SortStableFunc(rest[:n], byAccount)
		rest = rest[min(n+1, len(rest)):]
	}
	return ordered
}

// claim reports whether an effect is new. An effect that is not new must equal the first one of its
// ref; and a hold must still be open, or a player who comes back would play without a stake.
func (m *Multiplayer) claim(ctx context.Context, s *session, e Effect) (bool, error) {
	claimed, first, err := m.store.claim(ctx, s.id, e, s.version)
	if err != nil || claimed {
		return claimed, err
	}
	if e.Kind == EffectHold {
		open, err := m.store.openHolds(ctx, s.id)
		if err != nil {
			return false, err
		}
		if !slices.ContainsFunc(open, func(hold Effect) bool { return hold.Ref == e.Ref }) {
			return false, errSettled
		}
	}
	if first != e {
		return false, errSettled
	}
	return false, nil
}

func (m *Multiplayer) perform(ctx context.Context, e Effect) (err error) {
	l := m.peers.Ledger
	entry := ledger.Entry{UserID: e.UserID, Currency: e.Currency, Amount: e.Amount, Ref: e.Ref, Memo: e.Memo}
	switch e.Kind {
	case EffectHold:
		_, err = l.Hold(ctx, entry)
	case EffectCapture:
		if e.Amount == 0 && !e.All {
			return ledger.ErrInvalidAmount
		}
		_, err = l.Capture(ctx, e.Ref, ledger.CaptureOptions{Amount: e.Amount, Memo: e.Memo})
	case EffectRelease:
		_, err = l.Release(ctx, e.Ref)
	case EffectCredit:
		_, err = l.Credit(ctx, entry)
	case EffectDebit:
		_, err = l.Debit(ctx, entry)
	case EffectTransfer:
		_, err = l.Transfer(ctx, ledger.TransferEntry{
			From: e.UserID, To: e.To, Currency: e.Currency, Amount: e.Amount, Ref: e.Ref, Memo: e.Memo})
	}
	return err
}

// uncovered distinguishes an effect that a player cannot pay from one that the model should not
// have declared. It does not disclose the balance of another player.
func uncovered(e Effect, actor string, err error) error {
	var refused *capability.Error
	switch {
	case errors.Is(err, ledger.ErrAccountNotFound):
		refused = ledger.ErrInsufficientFunds.With(ledger.Shortfall{Required: e.Amount})
	case errors.Is(err, ledger.ErrInsufficientFunds):
		refused = capability.AsError(err)
	case errors.As(err, &refused):
		return capability.ErrInternal.Because(fmt.Errorf("%w a %s of the model: %w", errRefused, e.Kind, err))
	default:
		return err
	}
	if e.UserID != actor {
		refused = ledger.ErrInsufficientFunds.Saying("A player does not cover the stake.")
	}
	return refused.Because(&Uncovered{UserID: e.UserID})
}

// conclude writes the outcome of a session at its end, in the same transaction: it rates the
// players, submits their points and stores the result.
func (m *Multiplayer) conclude(ctx context.Context, s *session) (*Result, error) {
	result := *s.result
	if places := result.places(); s.phase == PhaseResolved && len(places) > 0 {
		changes, err := m.rate(ctx, s, &result)
		if err != nil {
			return nil, err
		}
		result.Rating = changes
		if err := m.score(ctx, s, places); err != nil {
			return nil, err
		}
	}
	if err := m.store.finish(ctx, s, &result); err != nil {
		return nil, err
	}
	ended := hooks.MatchEnded{SessionID: s.id, Game: s.game.Key, Ranks: map[string]int{}, Abandoned: s.phase == PhaseAbandoned}
	for _, p := range result.places() {
		ended.Ranks[p.userID] = p.place
	}
	return &result, m.host.Hooks.MatchEnded.Fire(ctx, ended)
}

// rate records the outcome if rating composes the same game. An outcome that rating refuses leaves
// the players unrated; it does not keep the game from ending.
func (m *Multiplayer) rate(ctx context.Context, s *session, r *Result) ([]rating.Change, error) {
	if m.peers.Rating == nil {
		return nil, nil
	}
	o := rating.Outcome{Ranks: r.Ranks, Key: "session/" + s.id}
	for _, team := range r.Teams {
		o.Teams = append(o.Teams, rating.Team{Place: team.Place, UserIDs: team.UserIDs})
	}
	rated, err := m.peers.Rating.Record(ctx, s.game.Key, o)
	switch {
	case errors.Is(err, rating.ErrGameNotFound):
		return nil, nil
	case errors.Is(err, rating.ErrUnsupportedPlayerCount), errors.Is(err, capability.ErrInvalidRequest):
		m.log.Warn("multiplayer: an outcome was not rated", slog.String("session", s.id), slog.String("code", capability.AsError(err).Code))
		return nil, nil
	case errors.Is(err, rating.ErrOtherAlgorithm), errors.Is(err, rating.ErrBroken): // it can be recorded later, under the same key
		m.log.Error("multiplayer: an outcome was not rated", slog.String("session", s.id), slog.Any("error", err))
		return nil, nil
	}
	return rated.Players, err
}

// score submits the points of the outcome in the order of user ids, so that transactions do not
// deadlock.
func (m *Multiplayer) score(ctx context.Context, s *session, places []place) error {
	scoring := s.game.Leaderboard
	if scoring == nil || m.peers.Leaderboard == nil {
		return nil
	}
	for _, p := range places {
		_, err := m.peers.Leaderboard.Submit(ctx, leaderboard.Submission{
			Board: scoring.Board, UserID: p.userID, Score: scoring.Points.of(places, p)})
		var refused *capability.Error
		if errors.As(err, &refused) {
			m.log.Warn("multiplayer: points were not taken", slog.String("session", s.id), slog.String("code", refused.Code))
		} else if err != nil {
			return err
		}
	}
	return nil
}
