package strictjson_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kitbackend/kit/internal/strictjson"
)

type inner struct {
	Name string `json:"name"`
}

type embedded struct {
	Shared string `json:"shared"`
}

type target struct {
	embedded
	Amount int64             `json:"amount"`
	Ref    string            `json:"ref"`
	Inner  *inner            `json:"inner"`
	List   []inner           `json:"list"`
	Map    map[string]int    `json:"map"`
	Free   json.RawMessage   `json:"free"`
	Vector []float32         `json:"vector"`
	Maybe  []*int            `json:"maybe"`
	Any    []any             `json:"any"`
	Raw    []json.RawMessage `json:"raw"`
	Hidden string            `json:"-"`
}

func TestDecodeAccepts(t *testing.T) {
	var got target
	err := strictjson.Decode([]byte(` {"amount": 9007199254740993, "ref":"a","inner":{"name":"x"},
		"list":[{"name":"y"}],"map":{"k":1},"free":{"Any":[1]},"shared":"s",
		"vector":null,"maybe":[null],"any":[null],"raw":[null]} `), &got)
	if err != nil {
		t.Fatal(err)
	}
	want := target{embedded{"s"}, 9007199254740993, "a", &inner{"x"}, []inner{{"y"}}, map[string]int{"k": 1}, json.RawMessage(`{"Any":[1]}`), nil, []*int{nil}, []any{nil}, []json.RawMessage{[]byte("null")}, ""}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(target{})); diff != "" {
		t.Error(diff)
	}
}

func TestDecodeRefuses(t *testing.T) {
	for name, c := range map[string]struct{ body, says string }{
		"empty":                       {``, "not valid JSON"},
		"cut off":                     {`{"amount":1`, "not valid JSON"},
		"bare word":                   {`amount`, "not valid JSON"},
		"trailing value":              {`{"amount":1}{"amount":2}`, "goes on"},
		"trailing bracket":            {`{"amount":1}}`, "goes on"},
		"duplicate":                   {`{"amount":1,"amount":2}`, `"amount" is given twice`},
		"escaped duplicate":           {`{"amount":1,"\u0061mount":2}`, `"amount" is given twice`},
		"nested duplicate":            {`{"inner":{"name":"a","name":"b"}}`, `"inner.name" is given twice`},
		"duplicate in free":           {`{"free":{"a":1,"a":2}}`, "given twice"},
		"unknown":                     {`{"amuont":1}`, `"amuont" is not a member`},
		"other letter case":           {`{"Amount":1}`, `"Amount" is not a member`},
		"unknown in list":             {`{"list":[{"nam":1}]}`, `"list[0].nam" is not a member`},
		"hidden field":                {`{"Hidden":"x"}`, "not a member"},
		"wrong type":                  {`{"amount":"1"}`, `"amount" must be an integer in range`},
		"fraction":                    {`{"amount":1.5}`, "integer"},
		"overflow":                    {`{"amount":9223372036854775808}`, "integer in range"},
		"array for object":            {`[]`, "must be an object"},
		"string for object":           {`{"inner":"x"}`, `"inner" must be an object`},
		"NUL":                         {`{"ref":"a\u0000b"}`, "NUL"},
		"NUL in a name":               {`{"map":{"\u0000":1}}`, "NUL"},
		"invalid UTF-8":               {"{\"ref\":\"\xff\"}", "UTF-8"},
		"array where a scalar stands": {`{"amount":[[[[1]]]]}`, `"amount" must be an integer in range`},
		"object where text stands":    {`{"list":[{"name":{"a":1,"a":2}}]}`, `"list[0].name" must be a string`},
		"deep in free":                {`{"free":` + strings.Repeat("[", 40) + strings.Repeat("]", 40) + `}`, "nests deeper"},
		"very deep, cut off":          {`{"free":` + strings.Repeat("[", 1_000_000), "nests deeper"},
		"hostile long name":           {`{"` + strings.Repeat("x", 500) + `":1}`, "…"},
		"very long name":              {`{"` + strings.Repeat("x", 10_000) + `":1}`, "longer than 512 bytes"},
		"leading zero":                {`{"amount":01}`, "not valid JSON"},
		"bad escape":                  {`{"ref":"\x"}`, "not valid JSON"},
		"control character":           {"{\"ref\":\"a\nb\"}", "not valid JSON"},
		"null for a number":           {`{"vector":[1,null,0]}`, `"vector[1]" must be a number`},
		"null for an object":          {`{"list":[ null]}`, `"list[0]" must be an object`},
		"trailing comma":              {`{"amount":1,}`, "not valid JSON"},
	} {
		t.Run(name, func(t *testing.T) {
			var got target
			err := strictjson.Decode([]byte(c.body), &got)
			if err == nil || !strings.Contains(err.Error(), c.says) {
				t.Fatalf("got %v, want an error that says %q", err, c.says)
			}
			if len(err.Error()) > 200 {
				t.Errorf("the message has %d bytes", len(err.Error()))
			}
		})
	}
}

// FuzzDecode holds that whatever is accepted is valid JSON that encoding/json
// decodes to the same value.
func FuzzDecode(f *testing.F) {
	f.Add([]byte(`{"amount":1,"inner":{"name":"x"},"list":[{}],"map":{"a":1}}`))
	f.Add([]byte(`{"free":[[[{"a":null}]]]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		var got, want target
		if allocs := testing.AllocsPerRun(1, func() { _ = strictjson.Valid(data) }); allocs > float64(len(data)+64) {
			t.Fatalf("%d bytes cost %v allocations", len(data), allocs)
		}
		holdMembers(t, data)
		if strictjson.Decode(data, &got) != nil {
			return
		}
		if err := json.Unmarshal(data, &want); err != nil {
			t.Fatalf("accepted what encoding/json refuses: %v", err)
		}
		if diff := cmp.Diff(want, got, cmp.AllowUnexported(target{})); diff != "" {
			t.Fatal(diff)
		}
	})
}

// holdMembers holds that Members takes what Valid takes, and finds in an object
// what encoding/json finds.
func holdMembers(t *testing.T, data []byte) {
	t.Helper()
	members, err := strictjson.Members(data)
	if valid := strictjson.Valid(data); (err == nil) != (valid == nil) {
		t.Fatalf("%q: %v, but %v", data, err, valid)
	}
	var want map[string]json.RawMessage
	if err != nil || json.Unmarshal(data, &want) != nil {
		return
	}
	if len(members) != len(want) {
		t.Fatalf("%q has %d members, not %d", data, len(want), len(members))
	}
	for _, m := range members {
		if string(want[m.Name]) != string(m.Value) {
			t.Fatalf("%q: %q is %q, not %q", data, m.Name, want[m.Name], m.Value)
		}
		var text *string
		if got, ok := m.Text(); ok != (json.Unmarshal(m.Value, &text) == nil && text != nil) || ok && got != *text {
			t.Fatalf("%q: the text %q is %q, %v", data, m.Value, got, ok)
		}
	}
}

func TestMembers(t *testing.T) {
	for _, body := range []string{
		`{}`, `[{"a":1}]`, `null`, ` { "a" : {"b":[1]} , "c\u0041" : "x\ny" } `, `{"a":1,"a":2}`, `{"a":}`, `{"":"\ud800"}`, `{"a":1} x`, `{"é":"é"}`,
	} {
		holdMembers(t, []byte(body))
	}
}

// hostile are bodies whose check once grew with the square of their length.
var hostile = map[string]func(n int) string{
	"items": func(n int) string { return `{"free":[` + strings.Repeat("0,", n/2) + `0]}` },
	"long names": func(n int) string {
		return strings.Repeat(`{"`+strings.Repeat("x", 500)+`":`, 30) + strings.Repeat(" ", n)
	},
	"members":     func(n int) string { return `{"map":{` + manyMembers(n/12) + `"z":1}}` },
	"not a field": func(n int) string { return `{"amount":[` + strings.Repeat("[],", n/3) + `0]}` },
}

func manyMembers(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `"m%06d":1,`, i)
	}
	return b.String()
}

// BenchmarkDecode doubles hostile input: the time of an operation may only double.
func BenchmarkDecode(b *testing.B) {
	for name, body := range hostile {
		for _, size := range []int{64 << 10, 128 << 10, 256 << 10, 512 << 10, 1 << 20} {
			data := []byte(body(size))
			b.Run(fmt.Sprintf("%s/%dKiB", name, size>>10), func(b *testing.B) {
				b.SetBytes(int64(len(data)))
				for b.Loop() {
					var into target
					_ = strictjson.Decode(data, &into)
				}
			})
		}
	}
}
