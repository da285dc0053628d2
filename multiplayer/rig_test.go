package multiplayer_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/hooks"
	"github.com/kitbackend/kit/jobs"
	"github.com/kitbackend/kit/kittest"
	"github.com/kitbackend/kit/leaderboard"
	"github.com/kitbackend/kit/ledger"
	"github.com/kitbackend/kit/multiplayer"
	"github.com/kitbackend/kit/pubsub"
	"github.com/kitbackend/kit/rating"
)

// trickRules configure the game of the tests: every player holds hidden cards and plays one a
// round; the highest takes the trick.
type trickRules struct {
	Stake int64 `json:"stake"`
	Cards int   `json:"cards"`
}

type trickState struct {
	Hands  map[string][]string `json:"hands"`
	Table  map[string]string   `json:"table"`
	Tricks map[string]int      `json:"tricks"`
	Round  int                 `json:"round"`
	Seated int                 `json:"seated"`
	Stakes map[string]string   `json:"stakes"`
}

type trickContext = multiplayer.Context[trickRules]

type trickMove struct {
	Card int `json:"card"`
	// Complain and Panic put hidden state where it must not be disclosed.
	Complain bool `json:"complain,omitempty"`
	Panic    bool `json:"panic,omitempty"`
}

func deal(c trickContext, s *trickState, id string) []multiplayer.Effect {
	hand := make([]string, c.Config.Cards)
	for i := range hand {
		// A power of two, so that no word is drawn again: a card is one word.
		hand[i] = fmt.Sprintf("card-%015d", c.Random.Int(0, 1<<49-1))
	}
	s.Hands[id], s.Tricks[id] = hand, 0
	if c.Config.Stake == 0 {
		return nil
	}
	s.Seated++
	s.Stakes[id] = c.Ref(fmt.Sprintf("stake/%d/%s", s.Seated, id))
	return []multiplayer.Effect{multiplayer.Hold(id, "coins", c.Config.Stake, s.Stakes[id])}
}

func trickDefinition() multiplayer.Definition[trickRules, trickState] {
	return multiplayer.Definition[trickRules, trickState]{
		Kind: "tricks", MinPlayers: 2, MaxPlayers: 8,
		Init: func(c trickContext) (trickState, []multiplayer.Effect, error) {
			s := trickState{Hands: map[string][]string{}, Table: map[string]string{}, Tricks: map[string]int{}, Stakes: map[string]string{}}
			var effects []multiplayer.Effect
			for _, id := range c.Players {
				effects = append(effects, deal(c, &s, id)...)
			}
			return s, effects, nil
		},
		Apply: playCard,
		IsComplete: func(_ trickContext, s trickState) bool {
			for _, hand := range s.Hands {
				if len(hand) > 0 {
					return false
				}
			}
			return true
		},
		Resolve: resolveTricks,
		Redact: func(_ trickContext, s trickState, viewer string, revealed bool) any {
			for id := range s.Hands {
				if id != viewer && !revealed {
					s.Hands[id] = make([]string, len(s.Hands[id]))
				}
			}
			return s
		},
		OnJoin: func(c trickContext, s trickState, id string) (trickState, []multiplayer.Effect, error) {
			effects := deal(c, &s, id)
			return s, effects, nil
		},
		OnLeave: func(_ trickContext, s trickState, id string) (trickState, []multiplayer.Effect, error) {
			var effects []multiplayer.Effect
			if ref := s.Stakes[id]; ref != "" {
				effects = append(effects, multiplayer.Release(ref))
			}
			for _, m := range []map[string]string{s.Table, s.Stakes} {
				delete(m, id)
			}
			delete(s.Hands, id)
			delete(s.Tricks, id)
			return s, effects, nil
		},
	}
}

func playCard(c trickContext, s trickState, m multiplayer.Move) (trickState, []multiplayer.Effect, error) {
	var move trickMove
	if err := m.Decode(&move); err != nil {
		return s, nil, err
	}
	hand := s.Hands[m.UserID]
	switch {
	case move.Complain:
		return s, nil, fmt.Errorf("all hands are %v", s.Hands)
	case move.Panic:
		panic(fmt.Sprintf("all hands are %v", s.Hands))
	case move.Card < 0 || move.Card >= len(hand):
		return s, nil, multiplayer.Illegal("You hold %d cards.", len(hand))
	case s.Table[m.UserID] != "":
		return s, nil, multiplayer.ErrInvalidTransition.Saying("You have played in this round.")
	}
	s.Table[m.UserID] = hand[move.Card]
	s.Hands[m.UserID] = slices.Delete(hand, move.Card, move.Card+1)
	if len(s.Table) < len(c.Players) {
		return s, nil, nil
	}
	best := c.Players[0]
	for _, id := range c.Players {
		if s.Table[id] > s.Table[best] {
			best = id
		}
	}
	s.Tricks[best]++
	s.Round++
	s.Table = map[string]string{}
	return s, nil, nil
}

func resolveTricks(c trickContext, s trickState) multiplayer.Outcome {
	o := multiplayer.Outcome{Ranks: map[string]int{}, Detail: map[string]any{"tricks": s.Tricks}}
	for _, id := range c.Players {
		o.Ranks[id] = 1
		for _, other := range c.Players {
			if s.Tricks[other] > s.Tricks[id] {
				o.Ranks[id]++
			}
		}
	}
	pot, winners := int64(0), int64(0)
	for _, id := range slices.Sorted(maps.Keys(s.Stakes)) {
		o.Effects = append(o.Effects, multiplayer.Capture(s.Stakes[id]))
		pot += c.Config.Stake
		if o.Ranks[id] == 1 {
			winners++
		}
	}
	for _, id := range c.Players {
		if s.Stakes[id] != "" && o.Ranks[id] == 1 && pot >= winners {
			o.Effects = append(o.Effects, multiplayer.Credit(id, "coins", pot/winners, c.Ref("pot/"+id)))
		}
	}
	return o
}

var tricks = multiplayer.Define(trickDefinition())

func trickConfig() multiplayer.Config {
	return multiplayer.Config{
		Models: []multiplayer.Model{tricks},
		Games: []multiplayer.Game{
			{Key: "duel", Kind: "tricks", Rules: trickRules{Cards: 3}},
			{Key: "staked", Kind: "tricks", Rules: trickRules{Stake: 10, Cards: 2}, TurnTimeout: 30 * time.Second,
				Leaderboard: &multiplayer.Scoring{Board: "wins", Points: multiplayer.Points{Win: 3, Draw: 1, Loss: 0}}},
			{Key: "table", Kind: "tricks", Mode: multiplayer.ModeTable, Players: 4, Rules: trickRules{Stake: 5, Cards: 50}},
		},
	}
}

// rig is one node: the capabilities on a database.
type rig struct {
	*multiplayer.Multiplayer
	t      testing.TB
	db     *database.DB
	ledger *ledger.Ledger
	boards *leaderboard.Leaderboard
	rating *rating.Rating
	queue  *jobs.Queue
	hooks  *hooks.Hooks
	clock  *kittest.Clock
	log    *logged
	close  func(context.Context) error
}

// logged stores the log of a node, and passes each line to a test.
type logged struct {
	mu   sync.Mutex
	buf  bytes.Buffer
	line func(text []byte)
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.line != nil {
		l.line(p)
	}
	return l.buf.Write(p)
}

func (l *logged) text() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

// node returns a node on a database, with or without the schema.
func node(t testing.TB, db *database.DB, clock *kittest.Clock, cfg multiplayer.Config) *rig {
	t.Helper()
	r := &rig{t: t, db: db, clock: clock, log: &logged{}}
	if err := r.build(cfg); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return r
}

func (r *rig) build(cfg multiplayer.Config) error {
	r.db.UseClock(r.clock.Now)
	bus := pubsub.NewMemory()
	log := slog.New(slog.NewJSONHandler(r.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	r.queue = jobs.New(r.db, bus, jobs.Options{Log: log, Now: r.clock.Now})
	r.hooks = hooks.New()
	host := capability.Host{Hooks: r.hooks, DB: r.db, Jobs: r.queue, PubSub: bus, Log: log, Now: r.clock.Now, Environment: "test"}
	var errs [4]error
	r.ledger, errs[0] = ledger.New(host, ledger.Config{Currencies: []ledger.Currency{{Code: "coins"}}}, ledger.Peers{})
	r.boards, errs[1] = leaderboard.New(host, leaderboard.Config{Boards: []leaderboard.Board{
		{Key: "wins", Direction: leaderboard.DirectionDescending, Aggregation: leaderboard.AggregationSum}}}, leaderboard.Peers{})
	r.rating, errs[2] = rating.New(host, rating.Config{Games: []rating.Game{{Key: "staked", Algorithm: "elo", XP: &rating.XP{Win: 10}}}}, rating.Peers{})
	r.Multiplayer, errs[3] = multiplayer.New(host, cfg, multiplayer.Peers{Ledger: r.ledger, Leaderboard: r.boards, Rating: r.rating})
	if err := errors.Join(errs[:]...); err != nil {
		return err
	}
	own := r.Capability()
	r.close = own.Close
	sets := []database.Migrations{jobs.Migrations()}
	for _, c := range []capability.Capability{r.ledger.Capability(), r.boards.Capability(), r.rating.Capability(), own} {
		sets = append(sets, database.Migrations{Name: c.Name, FS: c.Migrations})
		if err := r.queue.Register(c.Jobs...); err != nil {
			return err
		}
	}
	return r.db.Migrate(context.Background(), sets...)
}

// give credits players.
func (r *rig) give(amount int64, players ...string) {
	r.t.Helper()
	for _, id := range players {
		_, err := r.ledger.Credit(context.Background(), ledger.Entry{UserID: id, Currency: "coins", Amount: amount, Ref: "gift-" + id})
		r.ok(err)
	}
}

func (r *rig) ok(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
}

// refuses fails the test unless the error is this refusal.
func (r *rig) refuses(want *capability.Error, err error) {
	r.t.Helper()
	if !errors.Is(err, want) {
		r.t.Errorf("got %v, want %s", err, want.Code)
	}
}

func (r *rig) create(game, user string) multiplayer.View {
	r.t.Helper()
	v, err := r.Create(context.Background(), game, user)
	r.ok(err)
	return v
}

func (r *rig) join(id, user string) multiplayer.View {
	r.t.Helper()
	v, err := r.Join(context.Background(), id, user)
	r.ok(err)
	return v
}

func (r *rig) view(id, user string) multiplayer.View {
	r.t.Helper()
	v, err := r.View(context.Background(), id, user)
	r.ok(err)
	return v
}

func (r *rig) play(id, user string, move any) (multiplayer.Ack, error) {
	data, err := json.Marshal(move)
	if err != nil {
		return multiplayer.Ack{}, err
	}
	return r.Act(context.Background(), id, user, multiplayer.Action{Data: data})
}

// finish plays first cards until the session is over.
func (r *rig) finish(id string, players ...string) multiplayer.View {
	r.t.Helper()
	for {
		for _, user := range players {
			v := r.view(id, user)
			if v.Phase.Terminal() {
				return v
			}
			_, err := r.play(id, user, trickMove{}) // refused if it is not their turn, or they hold no card
			if !errors.Is(err, multiplayer.ErrInvalidTransition) && !errors.Is(err, multiplayer.ErrInvalidMove) {
				r.ok(err)
			}
		}
	}
}

// balance fails the test unless the account has this balance and this amount on hold.
func (r *rig) balance(user string, balance, held int64) {
	r.t.Helper()
	b, err := r.ledger.Balance(context.Background(), user, "coins")
	r.ok(err)
	if b.Balance != balance || b.Held != held {
		r.t.Errorf("%s has %d, %d held; want %d, %d", user, b.Balance, b.Held, balance, held)
	}
}

// replays checks the log of a session, and that the ledger adds up.
func (r *rig) replays(id string) {
	r.t.Helper()
	steps, err := r.Replay(context.Background(), id)
	r.ok(err)
	if steps == 0 {
		r.t.Error("the log is empty")
	}
}

func (r *rig) runJobs() int {
	r.t.Helper()
	n, err := r.queue.RunDue(context.Background())
	r.ok(err)
	return n
}
