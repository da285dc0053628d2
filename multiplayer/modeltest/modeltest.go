// Package modeltest tests that a multiplayer model keeps the rules of multiplayer.Definition: that
// it is pure, that its states survive being stored, that it never panics, and that it hides what it
// should.
//
//	func TestDuel(t *testing.T) {
//		modeltest.Run(t, modeltest.Suite{
//			Model: duel.Model, Game: multiplayer.Game{Key: "duel", Kind: "duel"},
//			Move: func(v multiplayer.View, r *rand.Rand) any { return map[string]int{"guess": r.IntN(6) + 1} },
//		})
//	}
//
// The suite plays random games and repeats every transition on equal input: with GOMAXPROCS set to
// 1, and in a bubble of testing/synctest whose clock shows another year. This finds models that
// read the clock or another source of randomness, keep state between calls or depend on the
// iteration order of a map: sooner or later they return different bytes.
package modeltest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/multiplayer"
)

// Suite configures how a model is played.
type Suite struct {
	Model multiplayer.Model
	Game  multiplayer.Game
	// Move returns an action for the player whose view it is given: anything that encodes as JSON,
	// legal or not, or nil for no action. r must be its only source of randomness.
	Move func(v multiplayer.View, r *rand.Rand) any
	// Hidden, optional, returns texts that must not appear in the viewer's view of the state before
	// the end.
	Hidden func(state json.RawMessage, viewer string) []string
	// Games is how many games are played, 20 by default; Steps is the most actions of a game, 200
	// by default.
	Games, Steps int
}

// repeats is how often a transition is repeated. The iteration order of a map of two keys is the
// same every time in one of 2^repeats cases.
const repeats = 12

// Run plays the games and reports the first fault of each.
func Run(t *testing.T, s Suite) {
	t.Helper()
	for seed := range uint64(orDefault(s.Games, 20)) {
		if problem := s.play(t, seed); problem != nil {
			t.Errorf("game %d: %v", seed, problem)
		}
	}
}

func orDefault(n, otherwise int) int {
	if n > 0 {
		return n
	}
	return otherwise
}

// game is one game under way.
type game struct {
	Suite
	t      *testing.T
	r      *rand.Rand
	first  *multiplayer.Simulation
	sim    *multiplayer.Simulation
	now    time.Time
	script []move
	next   int // the number of the next new player
}

// move is one transition, which can be repeated.
type move struct {
	what  string
	apply func(*multiplayer.Simulation) error
}

// play plays a game and returns the first fault.
func (s Suite) play(t *testing.T, seed uint64) error {
	g := &game{Suite: s, t: t, r: rand.New(rand.NewPCG(seed, 1)), now: time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)}
	if err := g.begin(); err != nil {
		return err
	}
	for range orDefault(s.Steps, 200) {
		if err := g.look(); err != nil {
			return err
		}
		if g.sim.Phase().Terminal() {
			break
		}
		if err := g.step(); err != nil {
			return err
		}
	}
	if err := g.again(); err != nil {
		return err
	}
	return checkMoney(g.sim.Effects())
}

// begin starts the session, repeatedly like every transition.
func (g *game) begin() error {
	seed := make([]byte, multiplayer.SeedSize)
	for i := range seed {
		seed[i] = byte(g.r.Uint32())
	}
	players := make([]string, max(g.Game.Players, 2))
	if g.Game.Players == 1 {
		players = players[:1]
	}
	for i := range players {
		players[i] = g.newcomer()
	}
	start := func() (*multiplayer.Simulation, error) {
		return multiplayer.Simulate(g.Model, g.Game, seed, g.now, players...)
	}
	var err error
	if g.sim, err = start(); err != nil {
		return err
	}
	g.first = g.sim.Clone()
	return g.repeat("Init", g.sim, start)
}

func (g *game) newcomer() string {
	g.next++
	return fmt.Sprint("player-", g.next)
}

// step makes one transition of a random player.
func (g *game) step() error {
	g.now = g.now.Add(time.Duration(g.r.IntN(5000)) * time.Millisecond)
	m, err := g.choose()
	if err != nil || m.apply == nil {
		return err
	}
	before, after := g.sim.Clone(), g.sim.Clone()
	refused := m.apply(after)
	if err := unexpected(m.what, refused); err != nil {
		return err
	}
	err = g.repeat(m.what, after, func() (*multiplayer.Simulation, error) {
		other := before.Clone()
		if err := m.apply(other); fmt.Sprint(err) != fmt.Sprint(refused) {
			return nil, fmt.Errorf("on equal input it once returns the error %q and once %q", fmt.Sprint(refused), fmt.Sprint(err))
		}
		return other, nil
	})
	if err == nil && refused == nil {
		g.sim, g.script = after, append(g.script, m)
	}
	return err
}

// garbage holds data that hostile clients send.
var garbage = []string{`null`, `0`, `-1e300`, `""`, `"\u0000"`, `[]`, `{}`, `[[[[[]]]]]`, `{"a":{"b":[1,2,3]}}`, `true`, `1.5`}

func (g *game) choose() (move, error) {
	players := g.sim.Players()
	player, at := players[g.r.IntN(len(players))], g.now
	if g.Game.Mode == multiplayer.ModeTable {
		switch dice := g.r.IntN(100); {
		case dice < 4:
			who := g.newcomer()
			if g.r.IntN(2) == 0 { // or a player who was there before
				who = fmt.Sprint("player-", 1+g.r.IntN(g.next))
			}
			return move{"OnJoin", func(s *multiplayer.Simulation) error { return s.Join(who, at) }}, nil
		case dice < 7 && len(players) > 1:
			return move{"OnLeave", func(s *multiplayer.Simulation) error { return s.Leave(player, at) }}, nil
		case dice < 8:
			return move{"Resolve", func(s *multiplayer.Simulation) error { return s.Close(players[0], at) }}, nil
		}
	}
	if g.r.IntN(10) == 0 {
		data := json.RawMessage(garbage[g.r.IntN(len(garbage))])
		return move{"Apply of " + string(data), func(s *multiplayer.Simulation) error { return s.Act(player, data, at) }}, nil
	}
	view, err := g.sim.View(player)
	if err != nil {
		return move{}, err
	}
	action := g.Move(view, g.r)
	if action == nil {
		return move{}, nil
	}
	data, err := json.Marshal(action)
	return move{"Apply", func(s *multiplayer.Simulation) error { return s.Act(player, data, at) }}, err
}

// unexpected returns err unless it is a refusal, which is no fault of the model.
func unexpected(what string, err error) error {
	var refusal *capability.Error
	if err == nil || errors.As(err, &refusal) {
		return nil
	}
	return fmt.Errorf("%s: %w", what, err)
}

// repeat repeats a transition and compares its results.
func (g *game) repeat(what string, first *multiplayer.Simulation, run func() (*multiplayer.Simulation, error)) error {
	want, err := picture(first)
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	compare := func(how string) error {
		other, err := run()
		if err != nil {
			return fmt.Errorf("%s %s: %w", what, how, err)
		}
		got, err := picture(other)
		if err != nil {
			return fmt.Errorf("%s %s: %w", what, how, err)
		}
		if !bytes.Equal(want, got) {
			return fmt.Errorf("%s %s: on equal input it returns once\n%s\nand once\n%s", what, how, want, got)
		}
		return nil
	}
	for range repeats {
		if err := compare("made again"); err != nil {
			return err
		}
	}
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	if err := compare("on one thread"); err != nil {
		return err
	}
	return g.inAnotherYear(func() error { return compare("by another clock") })
}

// inAnotherYear runs f in a bubble whose clock starts in the year 2000.
func (g *game) inAnotherYear(f func() error) (err error) {
	synctest.Test(g.t, func(*testing.T) { err = f() })
	return err
}

// picture returns everything observable of a session.
func picture(s *multiplayer.Simulation) ([]byte, error) {
	all := struct {
		Phase   multiplayer.Phase
		State   json.RawMessage
		Cursor  int64
		Effects []multiplayer.Effect
		Views   []multiplayer.View
	}{s.Phase(), s.State(), s.Cursor(), s.Effects(), nil}
	for _, player := range s.Players() {
		v, err := s.View(player)
		if err != nil {
			return nil, err
		}
		all.Views = append(all.Views, v)
	}
	return json.Marshal(all)
}

// look checks the state and the players' views of it.
func (g *game) look() error {
	again, err := g.sim.Reencode()
	if err != nil {
		return err
	}
	if !bytes.Equal(again, g.sim.State()) {
		return fmt.Errorf("a state does not survive being stored:\n%s\nbecomes\n%s", g.sim.State(), again)
	}
	if g.Hidden == nil || g.sim.Phase() != multiplayer.PhaseActive {
		return nil
	}
	for _, player := range g.sim.Players() {
		view, err := g.sim.View(player)
		if err != nil {
			return err
		}
		for _, hidden := range g.Hidden(g.sim.State(), player) {
			if hidden != "" && strings.Contains(string(view.State), hidden) {
				return fmt.Errorf("%s sees %q, which is hidden from them, in\n%s", player, hidden, view.State)
			}
		}
	}
	return nil
}

// again replays the whole game from its beginning.
func (g *game) again() error {
	want, err := picture(g.sim)
	if err != nil {
		return err
	}
	return g.inAnotherYear(func() error {
		other := g.first.Clone()
		for _, m := range g.script {
			time.Sleep(time.Hour) //nolint:forbidigo // on the bubble's clock
			if err := m.apply(other); err != nil {
				return fmt.Errorf("%s: played again it is refused: %w", m.what, err)
			}
		}
		got, err := picture(other)
		if err == nil && !bytes.Equal(want, got) {
			err = fmt.Errorf("played again the game ends as\n%s\nand not as\n%s", got, want)
		}
		return err
	})
}

// checkMoney checks effects by the rules of the ledger and of sessions: a ref moves money once, a
// capture or a release follows its hold, and a repeated effect equals the first one.
func checkMoney(effects []multiplayer.Effect) error {
	moved, settled := make(map[string]multiplayer.Effect), make(map[string]multiplayer.Effect)
	for _, e := range effects {
		seen := moved
		if e.Kind == multiplayer.EffectCapture || e.Kind == multiplayer.EffectRelease {
			if moved[e.Ref].Kind != multiplayer.EffectHold {
				return fmt.Errorf("the %s of %q has no hold before it", e.Kind, e.Ref)
			}
			seen = settled
		} else if e.Amount < 1 {
			return fmt.Errorf("the %s of %q has the amount %d", e.Kind, e.Ref, e.Amount)
		}
		if _, over := settled[e.Ref]; over && e.Kind == multiplayer.EffectHold {
			return fmt.Errorf("the hold %q is declared again after its end", e.Ref)
		}
		if first, ok := seen[e.Ref]; ok && first != e {
			return fmt.Errorf("the ref %q is used for two effects, %v and %v", e.Ref, first, e)
		}
		if len(e.Ref) > 200 || strings.Contains(e.Ref, "#") {
			return fmt.Errorf("the ref %q is longer than 200 bytes or contains #", e.Ref)
		}
		seen[e.Ref] = e
	}
	return nil
}
