package multiplayer

import (
	"encoding/json"
	"reflect"
	"testing"
	"time"
)

type stubborn struct{}

func (stubborn) MarshalJSON() ([]byte, error) { return []byte(`"text"`), nil }

type named string

func (named) MarshalText() ([]byte, error) { return nil, nil }

// TestWhatEncodesAsTyped checks that a state is not validated before it is stored if its type
// ensures that it matches the schema.
func TestWhatEncodesAsTyped(t *testing.T) {
	type inner struct {
		Tags map[string][]int `json:"tags,omitempty"`
		at   int
	}
	type sure struct {
		inner
		Map   map[string]inner `json:"map"`
		List  []inner
		Pair  [2]uint8
		Bytes []byte          `json:"bytes"`
		Raw   json.RawMessage `json:"raw,omitzero"`
		At    *time.Time      `json:"at"`
		None  any             `json:"-"`
	}
	if !encodesAsTyped(reflect.TypeFor[sure]()) {
		t.Error("plain members encode as they are typed")
	}
	schema, err := schemaOf[sure](nil)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Unix(1, 0)
	for _, state := range []sure{{}, {inner{map[string][]int{"a": nil}, 1}, map[string]inner{"b": {}}, []inner{{}}, [2]uint8{1, 2}, []byte{1}, []byte(`[{}]`), &now, 1}} {
		raw, err := json.Marshal(state)
		if err == nil {
			err = hold(schema, raw)
		}
		if err != nil {
			t.Errorf("%+v: %v", state, err)
		}
	}
	for _, other := range []reflect.Type{
		reflect.TypeFor[stubborn](), reflect.TypeFor[[]stubborn](), reflect.TypeFor[map[string]*stubborn](), reflect.TypeFor[map[named]int](),
		reflect.TypeFor[struct{ A any }](), reflect.TypeFor[struct {
			N int `json:",string"`
		}](),
	} {
		if encodesAsTyped(other) {
			t.Errorf("%v may encode as something else", other)
		}
	}
}

// TestFlatRules checks that decoded rules are cached only if a model cannot change what another
// call gets.
func TestFlatRules(t *testing.T) {
	type flat struct {
		N     int
		Text  string
		Pairs [2]struct{ On bool }
	}
	if !isFlat(reflect.TypeFor[flat]()) {
		t.Error("a copy shares nothing")
	}
	for _, shared := range []reflect.Type{
		reflect.TypeFor[[]int](), reflect.TypeFor[struct{ M map[string]int }](), reflect.TypeFor[*int](), reflect.TypeFor[[1]any](),
	} {
		if isFlat(shared) {
			t.Errorf("%v: a copy shares something", shared)
		}
	}
}
