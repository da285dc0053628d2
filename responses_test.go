package kit_test

import (
	"bytes"
	"encoding/json"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/kitbackend/kit"
	"github.com/kitbackend/kit/kittest"
)

// TestResponsesAreThoseOfTheDocument calls every row as a caller that its guard
// admits and as nobody: each status and body must be one the document allows.
func TestResponsesAreThoseOfTheDocument(t *testing.T) {
	k := composed(t)
	k.Anonymous().Get("/control-plane/ping") // connects
	raw, err := k.OpenAPI()
	if err != nil {
		t.Fatal(err)
	}
	document := readDocument(t, raw)
	for _, r := range k.Routes() {
		if document.paths[braced(r.Path)][strings.ToLower(r.Method)] == nil {
			continue // serves any method, or is the library's
		}
		t.Run(r.Method+" "+r.Path, func(t *testing.T) {
			k.Clock.Advance(time.Minute)
			for _, caller := range []*kittest.Client{k.Anonymous(), admittedBy(k, r)} {
				var body any
				if r.Method != "GET" && r.Method != "HEAD" {
					body = map[string]any{}
				}
				document.check(t, r, caller.Do(r.Method, concrete(r.Path), body))
			}
		})
	}
}

func admittedBy(k *kittest.Kit, r kit.Route) *kittest.Client {
	switch {
	case r.Guard == "control-plane":
		return k.Machine(r.Scope)
	case r.Guard == "user" && strings.Contains(r.Scope, ":"):
		return k.User("ada", r.Scope)
	case r.Guard == "user":
		return k.User("ada")
	default:
		return k.Anonymous()
	}
}

type described struct {
	paths      map[string]map[string]*operation
	responses  map[string]content
	components map[string]*jsonschema.Schema
	resolved   map[*jsonschema.Schema]*jsonschema.Resolved
}

type operation struct {
	Responses  map[string]content `json:"responses"`
	Parameters []struct {
		Name   string
		In     string
		Schema *jsonschema.Schema
	} `json:"parameters"`
	RequestBody content `json:"requestBody"`
}

type content struct {
	Ref     string `json:"$ref"`
	Content map[string]struct {
		Schema   *jsonschema.Schema `json:"schema"`
		Examples map[string]struct {
			Value json.RawMessage `json:"value"`
		} `json:"examples"`
	} `json:"content"`
}

// readDocument reads a document; its components become the definitions of each schema.
func readDocument(t testing.TB, raw []byte) described {
	t.Helper()
	var doc struct {
		Paths      map[string]map[string]*operation `json:"paths"`
		Components struct {
			Responses map[string]content            `json:"responses"`
			Schemas   map[string]*jsonschema.Schema `json:"schemas"`
		} `json:"components"`
	}
	if err := json.Unmarshal(bytes.ReplaceAll(raw, []byte("#/components/schemas/"), []byte("#/$defs/")), &doc); err != nil {
		t.Fatal(err)
	}
	return described{doc.Paths, doc.Components.Responses, doc.Components.Schemas, make(map[*jsonschema.Schema]*jsonschema.Resolved)}
}

var reference = regexp.MustCompile(`"#/\$defs/([^"/]+)"`)

// define collects the components that a schema refers to: to resolve all of them for
// each schema takes seconds.
func (d described) define(t *testing.T, schema *jsonschema.Schema, defs map[string]*jsonschema.Schema) {
	t.Helper()
	text, err := json.Marshal(schema)
	if err != nil {
		t.Fatal(err)
	}
	for _, match := range reference.FindAllSubmatch(text, -1) {
		name := string(match[1])
		component := d.components[name]
		if _, known := defs[name]; known || component == nil {
			continue
		}
		defs[name] = component
		d.define(t, component, defs)
	}
}

func (d described) check(t *testing.T, r kit.Route, got *kittest.Response) {
	t.Helper()
	responses := d.paths[braced(r.Path)][strings.ToLower(r.Method)].Responses
	_, written := responses["default"] // by the handler itself, as a page perhaps
	if written && !strings.HasPrefix(got.Header.Get("Content-Type"), "application/json") {
		return
	}
	allowed, ok := responses[strconv.Itoa(got.Status)]
	if !ok {
		if !written {
			t.Errorf("the document has no response %d: %s", got.Status, got.Body)
		}
		return
	}
	if name, ok := strings.CutPrefix(allowed.Ref, "#/components/responses/"); ok {
		allowed = d.responses[name]
	}
	schema := allowed.Content["application/json"].Schema
	if schema == nil || len(got.Body) == 0 {
		return
	}
	var value any
	got.JSON(&value)
	if err := d.resolve(t, schema).Validate(value); err != nil {
		t.Errorf("%d %s is not what the document says: %v", got.Status, got.Body, err)
	}
}

// resolve makes a schema of the document ready to validate, once.
func (d described) resolve(t *testing.T, schema *jsonschema.Schema) *jsonschema.Resolved {
	t.Helper()
	if resolved := d.resolved[schema]; resolved != nil {
		return resolved
	}
	whole := *schema
	whole.Defs = make(map[string]*jsonschema.Schema)
	d.define(t, schema, whole.Defs)
	resolved, err := whole.Resolve(nil)
	if err != nil {
		t.Fatal(err)
	}
	d.resolved[schema] = resolved
	return resolved
}
