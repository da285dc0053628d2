package vector_test

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kitbackend/kit/vector"
)

// keeps is the definition of a filter, evaluated on its JSON.
func keeps(filter map[string]any, metadata map[string]any) bool {
	for name, value := range filter {
		var holds bool
		switch name {
		case "and", "or":
			holds = name == "and"
			for _, inner := range value.([]any) {
				if one := keeps(inner.(map[string]any), metadata); one != (name == "and") {
					holds = one
				}
			}
		case "not":
			holds = !keeps(value.(map[string]any), metadata)
		default:
			operators, ok := value.(map[string]any)
			if !ok {
				operators = map[string]any{"eq": value}
			}
			holds = true
			for operator, operand := range operators {
				got, there := metadata[name]
				holds = holds && tests(operator, got, there, operand)
			}
		}
		if !holds {
			return false
		}
	}
	return true
}

func tests(operator string, got any, there bool, operand any) bool {
	switch operator {
	case "exists":
		return there == operand.(bool)
	case "ne":
		return !tests("eq", got, there, operand)
	case "nin":
		return !tests("in", got, there, operand)
	case "in":
		for _, one := range operand.([]any) {
			if tests("eq", got, there, one) {
				return true
			}
		}
		return false
	}
	switch want := operand.(type) {
	case bool:
		is, ok := got.(bool)
		return ok && is == want
	case string:
		is, ok := got.(string)
		return ok && map[string]bool{"eq": is == want, "gt": is > want, "gte": is >= want, "lt": is < want, "lte": is <= want}[operator]
	case float64:
		is, ok := got.(float64)
		return ok && map[string]bool{"eq": is == want, "gt": is > want, "gte": is >= want, "lt": is < want, "lte": is <= want}[operator]
	}
	return false
}

// FuzzFilter compares the engine's evaluation of filters, and that of walks, with the definition.
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
		if len(filter) == 0 {
			return
		}
		want := make([]bool, len(metadata))
		for i := range metadata {
			want[i] = keeps(filter, metadata[i])
		}
		if diff := cmp.Diff(want, fast) + cmp.Diff(want, slow); diff != "" {
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
