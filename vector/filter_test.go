package vector_test

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kitbackend/kit/vector"
)

// FuzzFilter holds the engine's evaluation of filters to the plain one.
func FuzzFilter(f *testing.F) {
	for _, text := range []string{`{"a":1}`, `{"a":{"gt":1,"lte":3},"b":"x"}`, `{"or":[{"a":"1"},{"not":{"b":{"exists":true}}}]}`,
		`{"c":{"in":[true,1,"true"]}}`, `{"c":{"nin":[false]},"and":[{"a":{"ne":2}},{"b":{"gte":"x"}}]}`, `{"a":-0}`, `{"b":""}`} {
		f.Add(text)
	}
	keys := []string{"a", "b", "c"}
	var metadata []map[string]any
	values := []any{nil, 0.0, 1.0, 2.5, -1.0, "", "1", "x", "y", true, false, []any{1.0}, map[string]any{}}
	for i := range 300 {
		m := make(map[string]any)
		for j, key := range keys {
			if at := (i*(j+3) + i/7) % (len(values) + 2); at < len(values) {
				m[key] = values[at]
			}
		}
		metadata = append(metadata, m)
	}
	f.Fuzz(func(t *testing.T, text string) {
		var filter vector.Filter
		if json.Unmarshal([]byte(text), &filter) != nil {
			return
		}
		fast, slow, err := vector.ByFilter(filter, keys, metadata)
		if err != nil {
			return
		}
		if diff := cmp.Diff(slow, fast); diff != "" {
			t.Errorf("%s: %s", text, diff)
		}
	})
}

func TestFilterHolds(t *testing.T) {
	metadata := []map[string]any{{"a": 1.0, "b": "x"}, {"a": "1"}, {"b": "y", "c": true}, {"a": nil}, {}}
	for text, want := range map[string][]bool{
		`{"a":1}`:                                      {true, false, false, false, false},
		`{"a":"1"}`:                                    {false, true, false, false, false},
		`{"a":{"ne":1}}`:                               {false, true, true, true, true},
		`{"a":{"exists":true}}`:                        {true, true, false, true, false},
		`{"b":{"gt":"x"}}`:                             {false, false, true, false, false},
		`{"b":{"gte":"x","lt":"y"}}`:                   {true, false, false, false, false},
		`{"c":{"in":[true,"x"]}}`:                      {false, false, true, false, false},
		`{"c":{"nin":[true]}}`:                         {true, true, false, true, true},
		`{"not":{"a":{"exists":true}}}`:                {false, false, true, false, true},
		`{"or":[{"a":1},{"c":true}]}`:                  {true, false, true, false, false},
		`{"and":[{"a":1},{"b":"x"}],"c":{"ne":false}}`: {true, false, false, false, false},
	} {
		var filter vector.Filter
		if err := json.Unmarshal([]byte(text), &filter); err != nil {
			t.Fatal(err)
		}
		fast, slow, err := vector.ByFilter(filter, []string{"a", "b", "c"}, metadata)
		if err != nil {
			t.Fatal(err)
		}
		equal(t, fast, want)
		equal(t, slow, want)
	}
}
