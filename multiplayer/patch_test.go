package multiplayer

import (
	"bytes"
	"encoding/json"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/kitbackend/kit/capability"
)

// apply applies a patch, as a client would.
func apply(t rapid.TB, document any, ops []operation) any {
	for _, op := range ops {
		var value any
		if op.Op != "remove" {
			if err := json.Unmarshal(op.Value, &value); err != nil {
				t.Fatal(err)
			}
		}
		if op.Path == "" {
			document = value
			continue
		}
		document = applyAt(t, document, strings.Split(op.Path[1:], "/"), op.Op, value)
	}
	return document
}

func applyAt(t rapid.TB, node any, path []string, op string, value any) any {
	name := strings.NewReplacer("~1", "/", "~0", "~").Replace(path[0])
	switch n := node.(type) {
	case map[string]any:
		_, known := n[name]
		switch {
		case len(path) > 1:
			n[name] = applyAt(t, n[name], path[1:], op, value)
		case known == (op == "add"):
			t.Fatalf("%s of %q", op, name)
		case op == "remove":
			delete(n, name)
		default:
			n[name] = value
		}
		return n
	case []any:
		i, err := strconv.Atoi(name)
		if err != nil || i > len(n) || i == len(n) && op != "add" {
			t.Fatalf("%s of %q in %d", op, name, len(n))
		}
		switch {
		case len(path) > 1:
			n[i] = applyAt(t, n[i], path[1:], op, value)
		case op == "remove":
			return slices.Delete(n, i, i+1)
		case op == "add":
			return slices.Insert(n, i, value)
		default:
			n[i] = value
		}
		return n
	}
	t.Fatalf("%s below %v", op, node)
	return nil
}

func document(depth int) *rapid.Generator[any] {
	name := rapid.SampledFrom([]string{"", "a", "b", "a/b", "~", "~1", "é"})
	leaf := rapid.SampledFrom([]any{nil, true, false, 0.0, 1.0, -2.5, "", "a", "b", "<"})
	if depth == 0 {
		return leaf
	}
	return rapid.OneOf(
		leaf,
		rapid.Map(rapid.MapOfN(name, document(depth-1), 0, 5), func(m map[string]any) any { return m }),
		rapid.Map(rapid.SliceOfN(document(depth-1), 0, 6), func(s []any) any { return s }),
	)
}

// TestPatchLaw checks that a patch changes the old view into the new view.
func TestPatchLaw(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		from, to := document(4).Draw(t, "from"), document(4).Draw(t, "to")
		rawFrom, _ := json.Marshal(from)
		rawTo, _ := json.Marshal(to)
		ops := differ(nil).value("", rawFrom, rawTo)
		got, _ := json.Marshal(apply(t, from, ops))
		if !bytes.Equal(got, rawTo) {
			t.Fatalf("from %s\nto  %s\ngot %s\nby  %+v", rawFrom, rawTo, got, ops)
		}
		if bytes.Equal(rawFrom, rawTo) && len(ops) > 0 {
			t.Fatalf("nothing changed, yet %+v", ops)
		}
	})
}

func TestPatchIsSmall(t *testing.T) {
	for _, tt := range []struct{ from, to, want string }{
		{`{"hand":[1,2,3,4],"turn":0}`, `{"hand":[1,3,4],"turn":1}`, `[{"op":"remove","path":"/hand/1"},{"op":"replace","path":"/turn","value":1}]`},
		{`{"log":["a"]}`, `{"log":["a","b"]}`, `[{"op":"add","path":"/log/1","value":"b"}]`},
		{`{"a":{"x":1,"y":2}}`, `{"a":{"x":1,"y":null}}`, `[{"op":"replace","path":"/a/y","value":null}]`},
		{`[1,2,3,4]`, `[1,9,9,9,4]`, `[{"op":"replace","path":"/1","value":9},{"op":"replace","path":"/2","value":9},{"op":"add","path":"/3","value":9}]`},
		{`{"a/b":1,"m~n":1}`, `{"a/b":2}`, `[{"op":"remove","path":"/m~0n"},{"op":"replace","path":"/a~1b","value":2}]`},
		{`1`, `{}`, `[{"op":"replace","path":"","value":{}}]`},
	} {
		got, err := json.Marshal(differ(nil).value("", []byte(tt.from), []byte(tt.to)))
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(tt.want, string(got)); d != "" {
			t.Error(tt.from, tt.to, d)
		}
	}
}

// TestChangesOfAView checks that a patch covers every member that changes; the other members never
// change during a session.
func TestChangesOfAView(t *testing.T) {
	before := View{
		ID: "s", Game: "g", Kind: "k", Mode: ModeTable, Seats: 4, You: "ada", Phase: PhaseActive, Version: 3,
		Players: []string{"ada", "bob"}, Fairness: Fairness{Algorithm: Algorithm, SeedHash: "h", Cursor: 4}, State: json.RawMessage(`{"a":1}`),
	}
	seed, ended := "00", capability.Millis(1)
	after := before
	after.Phase, after.Version, after.Players, after.TurnDeadline = PhaseResolved, 9, []string{"bob", "eve"}, &ended
	after.Fairness.Cursor, after.Fairness.Seed = 7, &seed
	after.State, after.Result = json.RawMessage(`{"a":2,"b":[]}`), &Result{SessionID: "s", EndedAt: ended}
	constant := []string{"ID", "Game", "Kind", "Mode", "Seats", "You"}
	for i, field := range reflect.VisibleFields(reflect.TypeFor[View]()) {
		changed := !reflect.DeepEqual(reflect.ValueOf(before).Field(i).Interface(), reflect.ValueOf(after).Field(i).Interface())
		if changed == slices.Contains(constant, field.Name) {
			t.Errorf("%s is in neither list", field.Name)
		}
	}
	for _, pair := range [][2]View{{before, after}, {after, before}, {before, before}} {
		ops, err := changes(&pair[0], &pair[1])
		if err != nil {
			t.Fatal(err)
		}
		var document any
		raw, _ := json.Marshal(pair[0])
		if err := json.Unmarshal(raw, &document); err != nil {
			t.Fatal(err)
		}
		want, _ := json.Marshal(pair[1])
		var decoded any
		if err := json.Unmarshal(want, &decoded); err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(decoded, apply(t, document, ops)); d != "" {
			t.Error(d)
		}
	}
}

// TestFramesAreJSON checks that patches and acknowledgements are encoded as encoding/json would.
func TestFramesAreJSON(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var ops []operation
		for range rapid.IntRange(1, 4).Draw(t, "operations") {
			op := operation{Op: rapid.SampledFrom([]string{"add", "remove", "replace"}).Draw(t, "op"), Path: rapid.String().Draw(t, "path")}
			if op.Op != "remove" {
				op.Value = json.RawMessage(`{"a":[1]}`)
			}
			ops = append(ops, op)
		}
		want, err := json.Marshal(patchFrame{"patch", 7, 12, ops})
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(string(want), string(encodePatch(7, 12, ops))); d != "" {
			t.Fatal(d)
		}
		ack := Ack{ID: rapid.String().Draw(t, "id"), Version: 9}
		if want, err = json.Marshal(ackFrame{"ack", ack}); err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(string(want), string(ack.frame())); d != "" {
			t.Fatal(d)
		}
	})
}

// TestPatchesAreShared checks that players with equal views receive the same patch, and others
// their own.
func TestPatchesAreShared(t *testing.T) {
	view := func(version int64, state string) *View {
		return &View{You: state, Version: version, Phase: PhaseActive, State: json.RawMessage(state)}
	}
	table := &table{}
	first := table.change(view(1, `{"a":1}`), view(2, `{"a":2}`)).(json.RawMessage)
	later := view(2, `{"a":2}`)
	same := table.change(view(1, `{"a":1}`), later).(json.RawMessage)
	if &first[0] != &same[0] {
		t.Error("the same change was written twice")
	}
	for _, other := range [][2]*View{
		{view(1, `{"a":0}`), view(2, `{"a":2}`)}, {view(1, `{"a":1}`), view(2, `{"a":3}`)},
		{view(1, `{"a":1}`), view(3, `{"a":2}`)}, {view(0, `{"a":1}`), view(2, `{"a":2}`)},
	} {
		if got := table.change(other[0], other[1]).(json.RawMessage); &got[0] == &first[0] {
			t.Errorf("%s to %s got the patch of another change", other[0].State, other[1].State)
		}
	}
}
