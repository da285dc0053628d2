package kit_test

import (
	"fmt"
	"math/rand/v2"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/kitbackend/kit"
	"github.com/kitbackend/kit/internal/npmtest"
	"github.com/kitbackend/kit/kittest"
)

// walkSteps is how many calls of each row the walker makes; KIT_WALK_SEED takes
// it other ways.
const walkSteps = 6

// TestWalkStaysWithinTheDocument calls every row with bodies and queries drawn
// from their schemas, some of them spoilt, on things that earlier calls made:
// each status and body must be one the document allows.
func TestWalkStaysWithinTheDocument(t *testing.T) {
	k := composed(t)
	k.Anonymous().Get("/control-plane/ping") // connects
	document := readDocument(t, k)
	seed := uint64(1)
	if text := os.Getenv("KIT_WALK_SEED"); text != "" {
		n, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		seed = n
	}
	w := &walker{Rand: rand.New(rand.NewPCG(seed, 1)), document: document, ids: []string{"ada", "bob", "coins", "arcade", "duel", "notes"}}
	defer func() {
		if t.Failed() {
			t.Logf("seed %d", seed)
		}
	}()
	wrong := make(map[string]bool) // rows that were reported
	w.walk(k, walkSteps, admittedBy, func(r kit.Route, call string, got *kittest.Response) {
		if wrong[r.Method+r.Path] {
			return
		}
		t.Run(r.Method+" "+r.Path, func(t *testing.T) {
			if document.check(t, r, got); t.Failed() {
				wrong[r.Method+r.Path] = true
				t.Log(call)
			}
		})
	})
}

// TestWalkThroughAProxy takes the walker through a validating proxy that nobody
// here wrote: it finds no response that the document does not allow.
func TestWalkThroughAProxy(t *testing.T) {
	k := composed(t)
	k.Anonymous().Get("/control-plane/ping") // connects
	upstream := httptest.NewServer(k)
	defer upstream.Close()
	through := httputil.NewSingleHostReverseProxy(npmtest.Proxy(t, "testdata/openapi.golden.json", upstream.URL))
	w := &walker{Rand: rand.New(rand.NewPCG(2, 1)), document: readDocument(t, k), ids: []string{"ada", "bob", "coins", "arcade", "duel", "notes"}}
	calls := 0
	w.walk(k, 2, func(k *kittest.Kit, r kit.Route) *kittest.Client { return admittedBy(k, r).Via(through) }, func(_ kit.Route, call string, got *kittest.Response) {
		calls++
		for _, v := range npmtest.Violations(t, got.Header.Get(npmtest.ViolationHeader)) {
			if v.OfResponse() { // requests are spoilt on purpose
				t.Errorf("%s: %d %.300s: %s", call, got.Status, got.Body, v)
			}
		}
	})
	t.Logf("%d calls", calls)
}

// walk calls every row so many times and shows what it returned.
func (w *walker) walk(k *kittest.Kit, steps int, by func(*kittest.Kit, kit.Route) *kittest.Client, see func(r kit.Route, call string, got *kittest.Response)) {
	for range steps {
		for _, r := range k.Routes() {
			op := w.document.paths[braced(r.Path)][strings.ToLower(r.Method)]
			if op == nil || strings.HasSuffix(r.Path, "*") || strings.HasSuffix(r.Path, "/socket") || strings.HasSuffix(r.Path, "/presence") {
				continue
			}
			k.Clock.Advance(time.Second)
			path, body := w.path(r.Path, op), w.body(op)
			got := by(k, r).Do(r.Method, path, body)
			see(r, fmt.Sprintf("%s %s %v", r.Method, path, body), got)
			w.remember(got)
		}
	}
}

type walker struct {
	*rand.Rand
	document described
	ids      []string
}

// path fills in parameters with ids that earlier responses held, and adds a query.
func (w *walker) path(pattern string, op *operation) string {
	parts := strings.Split(pattern, "/")
	for i, part := range parts {
		if strings.HasPrefix(part, ":") {
			parts[i] = url.PathEscape(w.ids[w.IntN(len(w.ids))])
		}
	}
	query := url.Values{}
	for _, p := range op.Parameters {
		if p.In == "query" && w.IntN(3) == 0 {
			query.Set(p.Name, fmt.Sprint(w.value(p.Schema, 0)))
		}
	}
	return strings.Join(parts, "/") + "?" + query.Encode()
}

func (w *walker) body(op *operation) any {
	schema := op.RequestBody.Content["application/json"].Schema
	if schema == nil {
		return nil
	}
	return w.value(schema, 0)
}

// maxDepth bounds drawn values.
const maxDepth = 5

// value draws one that the schema allows, or now and then one it does not.
func (w *walker) value(s *jsonschema.Schema, depth int) any {
	if name, ok := strings.CutPrefix(s.Ref, "#/$defs/"); ok {
		s = w.document.components[name]
	}
	if len(s.AnyOf) > 0 {
		return w.value(s.AnyOf[w.IntN(len(s.AnyOf))], depth)
	}
	if w.IntN(25) == 0 {
		return []any{nil, true, -1, "", strings.Repeat("x", 3000), map[string]any{}, []any{}}[w.IntN(7)]
	}
	if len(s.Enum) > 0 {
		return s.Enum[w.IntN(len(s.Enum))]
	}
	kind := s.Type
	if len(s.Types) > 0 {
		kind = s.Types[w.IntN(len(s.Types))]
	}
	switch kind {
	case "integer":
		return []int64{0, 1, 2, 50, 1 << 40}[w.IntN(5)]
	case "number":
		return w.Float64() * 100
	case "boolean":
		return w.IntN(2) == 0
	case "null":
		return nil
	case "array":
		list := []any{}
		for range w.IntN(3) {
			if depth < maxDepth {
				list = append(list, w.value(s.Items, depth+1))
			}
		}
		return list
	case "object":
		return w.object(s, depth)
	case "string":
		if s.Format == "date-time" {
			return "2026-11-22T12:00:00.000Z"
		}
		return append([]string{"hello", "ada@example.org", "https://example.com/x", "text/plain"}, w.ids...)[w.IntN(4+len(w.ids))]
	default:
		return map[string]any{"take": 1}
	}
}

func (w *walker) object(s *jsonschema.Schema, depth int) any {
	value := map[string]any{}
	if depth > maxDepth {
		return value
	}
	for _, name := range propertyNames(s.Properties) {
		if slices.Contains(s.Required, name) || w.IntN(2) == 0 {
			value[name] = w.value(s.Properties[name], depth+1)
		}
	}
	if s.AdditionalProperties != nil && len(s.Properties) == 0 && s.AdditionalProperties.Not == nil {
		value["a"] = w.value(s.AdditionalProperties, depth+1)
	}
	return value
}

// propertyNames keeps a walk of one seed the same.
func propertyNames(properties map[string]*jsonschema.Schema) []string {
	names := make([]string, 0, len(properties))
	for name := range properties {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// remember keeps the ids of a response for later paths.
func (w *walker) remember(got *kittest.Response) {
	if got.Status >= 300 || len(got.Body) == 0 || got.Body[0] != '{' {
		return
	}
	var value map[string]any
	got.JSON(&value)
	for name, v := range value {
		if text, ok := v.(string); ok && text != "" && len(text) < 100 && (name == "id" || strings.HasSuffix(name, "Id") || name == "code" || name == "token") {
			w.ids = append(w.ids, text)
		}
	}
	if over := len(w.ids) - 60; over > 0 {
		w.ids = append(w.ids[:6:6], w.ids[6+over:]...)
	}
}
