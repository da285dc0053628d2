package multiplayer_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/database/databasetest"
	"github.com/kitbackend/kit/kittest"
	"github.com/kitbackend/kit/multiplayer"
)

// TestNothingHiddenGetsOut plays random games with players who also try to make the model put
// hidden data in errors and panics. Everything that a player receives before the end, and the whole
// log, is searched for the hands of others and for the seed.
func TestNothingHiddenGetsOut(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		games := 10
		if testing.Short() {
			games = 3
		}
		players := []string{"ada", "bob", "cid", "dan", "eve"}
		r.give(1_000_000, players...)
		for seed := range uint64(games) {
			c := &canary{rig: r, rng: rand.New(rand.NewPCG(seed, 7)), players: players}
			c.id = r.create([]string{"duel", "staked", "table"}[seed%3], "ada").ID
			for range 120 {
				c.look()
				if c.over {
					break
				}
				c.step()
			}
			r.replays(c.id)
		}
		if logged := r.log.text(); strings.Contains(logged, "card-") || !strings.Contains(logged, "panicked") {
			t.Errorf("the log holds cards, or nothing of the panics:\n%.2000s", logged)
		}
	})
}

// riskState is passed on as arguments, which a stack trace would show.
type riskState struct {
	Secret int64  `json:"secret"`
	Pad    [8]int `json:"pad"`
}

//go:noinline
func burst(s riskState, err error) riskState {
	if s.Secret != 0 {
		panic(err)
	}
	return s
}

// TestModelsTellNoMoreThanTheyMean checks that only the refusal in a model's error is disclosed,
// without the errors around it, and of a panic only its place.
func TestModelsTellNoMoreThanTheyMean(t *testing.T) {
	type context = multiplayer.Context[struct{}]
	const secret = 0x5ec4e75ec4e7
	model := multiplayer.Define(multiplayer.Definition[struct{}, riskState]{
		Kind: "risk", MinPlayers: 1,
		Init: func(context) (riskState, []multiplayer.Effect, error) { return riskState{Secret: secret}, nil, nil },
		Apply: func(_ context, s riskState, m multiplayer.Move) (riskState, []multiplayer.Effect, error) {
			about := fmt.Errorf("it is %x", s.Secret)
			switch string(m.Data) {
			case `"around"`:
				return s, nil, fmt.Errorf("%w: %w", about, multiplayer.Illegal("Not that."))
			case `"inside"`:
				return s, nil, multiplayer.ErrInvalidMove.Saying("Not that.").Because(about)
			}
			return burst(s, about), nil, nil
		},
		IsComplete: func(context, riskState) bool { return false },
		Resolve:    func(context, riskState) multiplayer.Outcome { return multiplayer.Outcome{} },
		Redact:     func(context, riskState, string, bool) any { return nil },
	})
	r := node(t, databasetest.Memory(t), kittest.NewClock(), multiplayer.Config{Models: []multiplayer.Model{model},
		Games: []multiplayer.Game{{Key: "risk", Kind: "risk", Players: 1}}})
	id := r.create("risk", "ada").ID
	for _, how := range []string{"around", "inside", "panic"} {
		err := errorOf(r.play(id, "ada", how))
		if err == nil || strings.Contains(err.Error(), "5ec4e75ec4e7") {
			t.Errorf("%s: %v", how, err)
		}
		if how != "panic" && capability.AsError(err).Message != "Not that." {
			t.Errorf("%s: %v", how, err)
		}
	}
	if text := r.log.text(); strings.Contains(text, "5ec4e75ec4e7") || !strings.Contains(text, "secrecy_test.go:") {
		t.Errorf("the log holds the secret, or not where the panic was: %s", text)
	}
}

// canary is a game that is checked for leaks.
type canary struct {
	*rig
	rng     *rand.Rand
	id      string
	players []string
	over    bool
	secrets map[string][]string // by the player from whom they are hidden
}

// look reads the whole session from the database, and then checks every view.
func (c *canary) look() {
	c.t.Helper()
	var seed, phase string
	var stored *string
	c.ok(c.db.QueryRow(c.t.Context(), `SELECT seed, phase, state FROM multiplayer_session WHERE id = $1`, c.id).Scan(&seed, &phase, &stored))
	c.over = multiplayer.Phase(phase).Terminal()
	var s trickState
	if stored != nil {
		c.ok(json.Unmarshal([]byte(*stored), &s))
	}
	c.secrets = map[string][]string{}
	for _, viewer := range c.players {
		c.secrets[viewer] = []string{seed}
		for id, hand := range s.Hands {
			if id != viewer {
				c.secrets[viewer] = append(c.secrets[viewer], hand...)
			}
		}
	}
	for _, viewer := range c.players {
		v, err := c.View(c.t.Context(), c.id, viewer)
		c.told(viewer, v, err)
	}
	if strings.Contains(c.log.text(), seed) {
		c.t.Error("the log holds a seed")
	}
}

// told searches a response to a player.
func (c *canary) told(viewer string, result any, err error) {
	c.t.Helper()
	raw, failed := json.Marshal(result)
	c.ok(failed)
	text := string(raw)
	if err != nil {
		refusal := capability.AsError(err)
		text += fmt.Sprint(err.Error(), refusal.Message, refusal.Details)
	}
	if v, ok := result.(multiplayer.View); c.over || ok && v.Phase.Terminal() {
		return
	}
	for _, secret := range c.secrets[viewer] {
		if secret != "" && strings.Contains(text, secret) {
			c.t.Errorf("%s is told %q in %.500s", viewer, secret, text)
		}
	}
}

func (c *canary) step() {
	c.clock.Advance(time.Duration(c.rng.IntN(2000)) * time.Millisecond)
	user := c.players[c.rng.IntN(len(c.players))]
	ctx := c.t.Context()
	switch dice := c.rng.IntN(20); {
	case dice < 3:
		v, err := c.Join(ctx, c.id, user)
		c.told(user, v, err)
	case dice == 3:
		c.told(user, nil, c.Leave(ctx, c.id, user))
	case dice == 4 && c.rng.IntN(10) == 0:
		v, err := c.Close(ctx, c.id, user)
		c.told(user, v, err)
	default:
		ack, err := c.play(c.id, user, trickMove{Card: c.rng.IntN(4) - 1, Complain: dice == 5, Panic: dice == 6})
		if err == nil && slices.Contains([]int{5, 6}, dice) {
			c.t.Error("a complaint was accepted")
		}
		c.told(user, ack, err)
	}
}
