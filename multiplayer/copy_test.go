package multiplayer

import (
	"encoding/json"
	"math/big"
	"reflect"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

type base struct{ Tags []string }

// everything has a part of each kind that is copied.
type everything struct {
	base
	Name   string
	Hands  map[string][]int
	Board  [2][]int
	Last   *struct{ Path []int }
	None   *int
	Free   any
	Raw    json.RawMessage
	Bytes  []byte
	At     time.Time
	Seats  []struct{ Cards map[int]string }
	Empty  []int
	Absent map[string]int
}

const everythingJSON = `{"Tags":["a"],"Name":"n","Hands":{"x":[1,2],"y":null},"Board":[[1],[2]],"Last":{"Path":[1]},"None":null,
	"Free":{"list":[1,"b",{"c":[null,true]}],"none":null},"Raw":{"k":[1]},"Bytes":"AQI=","At":"2026-01-02T03:04:05Z",
	"Seats":[{"Cards":{"1":"one"}},{"Cards":null}],"Empty":[]}`

func decodedEverything(t *testing.T) (s everything) {
	if err := json.Unmarshal([]byte(everythingJSON), &s); err != nil {
		t.Fatal(err)
	}
	return s
}

// TestCopyIsEqualAndSharesNothing changes a copy in every place and finds the original as it was.
func TestCopyIsEqualAndSharesNothing(t *testing.T) {
	c := copierOf(reflect.TypeFor[everything]())
	if !c.ok {
		t.Fatal("there is no copier")
	}
	original, untouched := decodedEverything(t), decodedEverything(t)
	s := fresh(c, original)
	if d := cmp.Diff(untouched, s, cmp.AllowUnexported(everything{}, base{})); d != "" {
		t.Fatal(d)
	}
	s.Tags[0], s.Hands["x"][0], s.Board[1][0], s.Last.Path[0] = "", 9, 9, 9
	s.Free.(map[string]any)["list"].([]any)[2].(map[string]any)["c"].([]any)[0] = 9
	s.Free.(map[string]any)["none"], s.Hands["z"] = 9, nil
	s.Raw[0], s.Bytes[0], s.Seats[0].Cards[1] = ' ', 9, ""
	if d := cmp.Diff(untouched, original, cmp.AllowUnexported(everything{}, base{})); d != "" {
		t.Error("the original has changed:", d)
	}
}

type recursive struct{ Next []recursive }

type decodesItself struct{ list []int }

func (d *decodesItself) UnmarshalJSON(raw []byte) error { return json.Unmarshal(raw, &d.list) }

type flatText int

func (f *flatText) UnmarshalText([]byte) error { *f = 1; return nil }

// TestNoCopierForWhatCannotBeCopied keeps such values from being decoded once.
func TestNoCopierForWhatCannotBeCopied(t *testing.T) {
	for _, unknown := range []reflect.Type{
		reflect.TypeFor[recursive](), reflect.TypeFor[decodesItself](), reflect.TypeFor[map[string]*big.Int](),
		reflect.TypeFor[[]decodesItself](), reflect.TypeFor[struct{ F func() }](), reflect.TypeFor[[1]error](),
		reflect.TypeFor[struct{ time.Timer }](), reflect.TypeFor[map[*int]int](),
	} {
		if copierOf(unknown).ok {
			t.Errorf("%v has a copier", unknown)
		}
	}
	for _, flat := range []reflect.Type{reflect.TypeFor[flatText](), reflect.TypeFor[time.Time](), reflect.TypeFor[struct{ At time.Time }]()} {
		if c := copierOf(flat); !c.ok {
			t.Errorf("%v has no copier", flat)
		}
	}
}

// TestStateIsDecodedOnce holds a model that changes what it is given to the state that is stored.
func TestStateIsDecodedOnce(t *testing.T) {
	type state struct{ Hands map[string]string }
	type rules struct{ Prices []int }
	var seen []rules
	model := Define(Definition[rules, state]{
		Kind: "once",
		Init: func(Context[rules]) (state, []Effect, error) {
			return state{map[string]string{"a": "1", "b": "2"}}, nil, nil
		},
		Apply: func(c Context[rules], s state, _ Move) (state, []Effect, error) {
			c.Config.Prices[0], s.Hands["a"] = 0, ""
			return s, nil, ErrInvalidMove
		},
		IsComplete: func(Context[rules], state) bool { return false },
		Resolve:    func(Context[rules], state) Outcome { return Outcome{} },
		Redact: func(c Context[rules], s state, viewer string, _ bool) any {
			seen = append(seen, rules{append([]int{}, c.Config.Prices...)})
			c.Config.Prices[0] = 0
			for player := range s.Hands {
				if player != viewer {
					delete(s.Hands, player)
				}
			}
			return s
		},
	})
	s := &session{id: "s", game: Game{Kind: "once", Players: 2, Rules: json.RawMessage(`{"Prices":[7]}`)}, version: 1}
	opened, err := json.Marshal(opening{Players: []string{"a", "b"}})
	if err != nil {
		t.Fatal(err)
	}
	s, _, err = s.advance(model, step{kind: stepCreate, data: opened})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, _, err := s.advance(model, step{kind: stepAct, actor: "a"}); err == nil {
			t.Fatal("the model has refused no move")
		}
		for player, want := range map[string]string{"a": `{"Hands":{"a":"1"}}`, "b": `{"Hands":{"b":"2"}}`} {
			v, err := s.view(model, player)
			if err != nil || string(v.State) != want {
				t.Errorf("%s sees %s, %v", player, v.State, err)
			}
		}
	}
	if d := cmp.Diff([]rules{{[]int{7}}, {[]int{7}}, {[]int{7}}, {[]int{7}}}, seen); d != "" {
		t.Error(d)
	}
	known, ok := s.decoded.Load().(*state)
	if !ok || known.Hands["a"] != "1" {
		t.Errorf("the decoded state is not kept as it is stored: %v", known)
	}
}
