package main

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kitbackend/kit/kittest"
	"github.com/kitbackend/kit/ledger"
	"github.com/kitbackend/kit/multiplayer"
	"github.com/kitbackend/kit/multiplayer/modeltest"
)

func TestBoardScores(t *testing.T) {
	for _, tt := range []struct {
		board board
		want  int
	}{
		{board{{}, {}, {}}, 0},
		{board{{4}, {4, 4}, {4, 4, 4}}, 4 + 16 + 36},
		{board{{1, 2, 1}, {6, 5}, {}}, 4 + 2 + 11},
	} {
		if got, _ := tt.board.score(); got != tt.want {
			t.Errorf("%v: %d, want %d", tt.board, got, tt.want)
		}
	}
}

func newKit(t *testing.T) *kittest.Kit {
	t.Helper()
	return kittest.New(t, options("http://localhost:8080")...)
}

// play begins a session and plays it to its end with the moves that choose returns for the view of
// a player.
func play(t *testing.T, k *kittest.Kit, key string, choose func(view multiplayer.View) string, players ...string) multiplayer.View {
	t.Helper()
	for _, p := range players {
		k.User(p).Post("/arcade/welcome", nil).Want(200, "")
	}
	game, err := k.Multiplayer().Game(key)
	if err != nil {
		t.Fatal(err)
	}
	s, err := k.Multiplayer().Start(t.Context(), multiplayer.Start{Game: game, Players: players})
	if err != nil {
		t.Fatal(err)
	}
	for turn := 0; ; turn++ {
		for _, p := range players {
			view, err := k.Multiplayer().View(t.Context(), s.ID, p)
			if err != nil {
				t.Fatal(err)
			}
			if view.Phase.Terminal() {
				return view
			}
			move := choose(view)
			if move == "" {
				continue
			}
			if _, err := k.Multiplayer().Act(t.Context(), s.ID, p, multiplayer.Action{Data: json.RawMessage(move)}); err != nil {
				t.Fatalf("%s: %s: %v", p, move, err)
			}
		}
		if turn > 1000 {
			t.Fatal("the game does not end")
		}
	}
}

func state[V any](t *testing.T, view multiplayer.View) (v V) {
	t.Helper()
	if err := json.Unmarshal(view.State, &v); err != nil {
		t.Fatal(err)
	}
	return v
}

// anyColumn plays into a column that is not full.
func anyColumn(t *testing.T, dice *rand.Rand) func(multiplayer.View) string {
	return func(view multiplayer.View) string {
		s := state[bonesView](t, view)
		me := slices.Index(view.Players, view.You)
		if s.Turn != me {
			return ""
		}
		for {
			if c := dice.IntN(columns); len(s.Boards[me][c]) < height {
				return fmt.Sprintf(`{"place":%d}`, c)
			}
		}
	}
}

// anyCard plays a card that fits, draws, or passes.
func anyCard(t *testing.T) func(multiplayer.View) string {
	return func(view multiplayer.View) string {
		s := state[eightsView](t, view)
		if s.Turn != view.You {
			return ""
		}
		for _, card := range s.Hand {
			if card[0] == '8' {
				return fmt.Sprintf(`{"play":%q,"suit":"H"}`, card)
			}
			if card[0] == s.Top[0] || card[1:] == s.Suit {
				return fmt.Sprintf(`{"play":%q}`, card)
			}
		}
		if !s.Drew && s.Deck > 0 {
			return `{"draw":true}`
		}
		return `{"pass":true}`
	}
}

// TestBonesMovesTheStakes checks that the winner gets both stakes, that a draw returns them, and
// that no coin is created or lost.
func TestBonesMovesTheStakes(t *testing.T) {
	k := newKit(t)
	dice := rand.New(rand.NewPCG(1, 2))
	for i := range 10 {
		ada, bob := fmt.Sprintf("ada-%d", i), fmt.Sprintf("bob-%d", i)
		last := play(t, k, bones, anyColumn(t, dice), ada, bob)
		want := map[string]int64{}
		drawn := last.Result.Ranks[ada] == last.Result.Ranks[bob]
		for p, place := range last.Result.Ranks {
			switch {
			case drawn:
				want[p] = allowance
			case place == 1:
				want[p] = allowance + 25
			default:
				want[p] = allowance - 25
			}
		}
		got := map[string]int64{}
		for _, p := range []string{ada, bob} {
			balance, err := k.Ledger().Balance(t.Context(), p, coins)
			if err != nil || balance.Held != 0 {
				t.Fatalf("%+v %v", balance, err)
			}
			got[p] = balance.Available
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
		if len(last.Result.Rating) != 2 {
			t.Errorf("rated: %+v", last.Result.Rating)
		}
	}
	if report, err := k.Ledger().Verify(t.Context()); err != nil || len(report.Findings) > 0 {
		t.Errorf("%+v %v", report, err)
	}
}

func TestBonesRefusesWhoCannotPay(t *testing.T) {
	k := newKit(t)
	game, err := k.Multiplayer().Game(bones)
	if err != nil {
		t.Fatal(err)
	}
	k.User("rich").Post("/arcade/welcome", nil).Want(200, "")
	if _, err := k.Multiplayer().Start(t.Context(), multiplayer.Start{Game: game, Players: []string{"rich", "poor"}}); !ledger.ErrInsufficientFunds.Is(err) {
		t.Error(err)
	}
	balance, err := k.Ledger().Balance(t.Context(), "rich", coins)
	if err != nil || balance.Held != 0 {
		t.Errorf("%+v %v", balance, err)
	}
}

func TestIllegalMoves(t *testing.T) {
	k := newKit(t)
	for _, p := range []string{"ada", "bob"} {
		k.User(p).Post("/arcade/welcome", nil).Want(200, "")
		k.User(p).Post("/arcade/welcome", nil).Want(200, "") // the daily coins are credited once
	}
	id := map[string]string{}
	for _, key := range []string{bones, eights} {
		game, err := k.Multiplayer().Game(key)
		if err != nil {
			t.Fatal(err)
		}
		s, err := k.Multiplayer().Start(t.Context(), multiplayer.Start{Game: game, Players: []string{"ada", "bob"}})
		if err != nil {
			t.Fatal(err)
		}
		id[key] = s.ID
	}
	act := func(user, key, body, code string, status int) {
		t.Helper()
		k.User(user).Post("/multiplayer/sessions/"+id[key]+"/action", body).Want(status, code)
	}
	duel, err := k.Multiplayer().View(t.Context(), id[bones], "ada")
	if err != nil {
		t.Fatal(err)
	}
	turn := state[bonesView](t, duel).Turn
	mine, theirs := duel.Players[turn], duel.Players[1-turn]
	act(theirs, bones, `{"place":0}`, "multiplayer/invalid_transition", 409)
	for _, body := range []string{`{"place":3}`, `{"place":-1}`, `{}`, `{"place":0,"die":6}`, `{"place":"0"}`, `7`} {
		act(mine, bones, body, "multiplayer/invalid_move", 422)
	}
	act("bob", eights, `{"draw":true}`, "multiplayer/invalid_transition", 409)
	for _, body := range []string{`{"pass":true}`, `{"play":"XX"}`, `{"play":"8"}`, `{}`, `{"play":""}`} {
		act("ada", eights, body, "multiplayer/invalid_move", 422)
	}
	act("ada", eights, `{"draw":true}`, "", 200)
	act("ada", eights, `{"draw":true}`, "multiplayer/invalid_move", 422)
}

// TestModels checks that both models are pure, and that a hand is visible only to its player until
// the end.
func TestModels(t *testing.T) {
	modeltest.Run(t, modeltest.Suite{
		Games: 5, Model: bonesModel(), Game: multiplayer.Game{Key: bones, Kind: bones, Rules: bonesRules{Currency: coins, Stake: 25}},
		Move: func(_ multiplayer.View, r *rand.Rand) any { return map[string]int{"place": r.IntN(columns + 1)} },
	})
	modeltest.Run(t, modeltest.Suite{
		Games: 5, Model: eightsModel(), Game: multiplayer.Game{Key: eights, Kind: eights, Mode: multiplayer.ModeTable, Players: 4},
		Move: func(v multiplayer.View, r *rand.Rand) any {
			s := state[eightsView](t, v)
			switch n := r.IntN(4); {
			case n == 0:
				return map[string]bool{"draw": true}
			case n == 1 || len(s.Hand) == 0:
				return map[string]bool{"pass": true}
			default:
				return map[string]string{"play": s.Hand[r.IntN(len(s.Hand))], "suit": string(suits[r.IntN(4)])}
			}
		},
		Hidden: func(state json.RawMessage, viewer string) (hidden []string) {
			var s eightsState
			if err := json.Unmarshal(state, &s); err != nil {
				t.Fatal(err)
			}
			for player, hand := range s.Hands {
				if player != viewer {
					hidden = append(hidden, quoted(hand)...)
				}
			}
			return append(hidden, quoted(s.Deck)...)
		},
	})
}

func quoted(cards []string) (list []string) {
	for _, card := range cards {
		list = append(list, strconv.Quote(card))
	}
	return list
}

// TestEightsIsATable checks that players can sit down and leave during a game.
func TestEightsIsATable(t *testing.T) {
	k := newKit(t)
	game, err := k.Multiplayer().Game(eights)
	if err != nil {
		t.Fatal(err)
	}
	m := k.Multiplayer()
	s, err := m.Start(t.Context(), multiplayer.Start{Game: game, Players: []string{"ada", "bob"}})
	if err != nil {
		t.Fatal(err)
	}
	if view, err := m.Join(t.Context(), s.ID, "eve"); err != nil || len(state[eightsView](t, view).Hand) != handSize {
		t.Fatalf("%s %v", view.State, err)
	}
	if err := m.Leave(t.Context(), s.ID, "ada"); err != nil { // the player whose turn it is
		t.Fatal(err)
	}
	view, err := m.View(t.Context(), s.ID, "bob")
	if v := state[eightsView](t, view); err != nil || v.Turn != "bob" || v.Deck != 52-1-2*handSize {
		t.Errorf("%+v %v", v, err)
	}
	if err := m.Leave(t.Context(), s.ID, "eve"); err != nil {
		t.Fatal(err)
	}
	if view, err = m.View(t.Context(), s.ID, "bob"); err != nil || view.Phase != multiplayer.PhaseResolved || len(view.Result.Ranks) > 0 {
		t.Errorf("%+v %v", view, err)
	}
}

// TestVerifier checks that the verifier of the page, run by Node, draws the same as Go, accepts
// games that were played, and rejects games that were tampered with.
func TestVerifier(t *testing.T) {
	node := os.Getenv("KIT_TEST_NODE")
	if node == "" {
		t.Skip("KIT_TEST_NODE is not set")
	}
	type draws struct {
		Seed, Hash, Draws string
	}
	var in struct {
		Vectors       []draws
		Games, Forged []multiplayer.View
	}
	for i := range 20 {
		seed := []byte(fmt.Sprintf("seed %02d of tests", i))[:multiplayer.SeedSize]
		r := multiplayer.NewRandom(seed, 0)
		var list []any
		for range 10 {
			list = append(list, r.Next(), r.Int(1, 6), r.Int(0, 51), r.Int(-5, 1<<52), r.Int(0, 1<<53-1))
		}
		deck := newDeck()
		r.Shuffle(len(deck), func(i, j int) { deck[i], deck[j] = deck[j], deck[i] })
		text, err := json.Marshal(append(list, strings.Join(deck, ""), r.Cursor()))
		if err != nil {
			t.Fatal(err)
		}
		in.Vectors = append(in.Vectors, draws{hex.EncodeToString(seed), multiplayer.SeedHash(seed), string(text)})
	}
	k := newKit(t)
	dice := rand.New(rand.NewPCG(3, 4))
	duel := play(t, k, bones, anyColumn(t, dice), "ada", "bob")
	cards := play(t, k, eights, anyCard(t), "ada", "bob")
	in.Games = []multiplayer.View{duel, cards}

	forged := state[bonesState](t, duel)
	forged.Rolls[2] = forged.Rolls[2]%6 + 1
	duel.State, _ = json.Marshal(forged)
	stacked := state[eightsView](t, cards)
	stacked.Start[0], stacked.Start[1] = stacked.Start[1], stacked.Start[0]
	cards.State, _ = json.Marshal(stacked)
	in.Forged = []multiplayer.View{duel, cards}

	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS("static")); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"package.json": `{"type":"module"}`, "test.js": verifierScript} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	body, err := json.Marshal(in)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), node, filepath.Join(dir, "test.js"))
	cmd.Stdin = bytes.NewReader(body)
	if out, err := cmd.CombinedOutput(); err != nil || string(out) != "fair\n" {
		t.Errorf("%v\n%s", err, out)
	}
}

const verifierScript = `
import { readFileSync } from "node:fs"
import assert from "node:assert"
import { Stream, seedHash } from "./fair.js"
import * as bones from "./bones.js"
import * as eights from "./eights.js"
const { Vectors, Games, Forged } = JSON.parse(readFileSync(0))
const deck = [..."CDHS"].flatMap((suit) => [..."A23456789TJQK"].map((rank) => rank + suit))
for (const { Seed, Hash, Draws } of Vectors) {
	assert.equal(await seedHash(Seed), Hash)
	const stream = await Stream.of(Seed), got = []
	for (let i = 0; i < 10; i++) got.push(await stream.next(), await stream.int(1, 6), await stream.int(0, 51), await stream.int(-5, 2 ** 52), await stream.int(0, 2 ** 53 - 1))
	got.push((await stream.shuffle([...deck])).join(""), stream.cursor)
	assert.deepEqual(got, JSON.parse(Draws))
}
for (const [i, game] of [bones, eights].entries()) {
	const { cursor } = await game.verify(Games[i])
	assert.equal(cursor, Games[i].fairness.cursor)
	await assert.rejects(game.verify(Forged[i]))
}
console.log("fair")
`
