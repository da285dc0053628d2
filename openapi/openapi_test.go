package openapi

import (
	"encoding/json"
	"reflect"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/jsonschema-go/jsonschema"

	"github.com/kitbackend/kit/capability"
)

type base struct {
	ID   string `json:"id"`
	Name string `json:"name"`
}

type tree struct {
	base
	Name     string          `json:"name,omitempty"`
	At       capability.Time `json:"at"`
	Ended    *time.Time      `json:"ended"`
	Parent   *tree           `json:"parent,omitempty"`
	Children []tree          `json:"children"`
	Rules    json.RawMessage `json:"rules"`
	Count    *int64          `json:"count"`
	Open     bool            `json:"open"`
	Hidden   string          `json:"-"`
}

func schemaOf(t *testing.T, way direction) map[string]any {
	t.Helper()
	s := newSchemas()
	if _, err := s.of(reflect.TypeFor[tree](), way); err != nil {
		t.Fatal(err)
	}
	name := "OpenapiTree"
	if way == request {
		name += "Input"
	}
	raw, err := json.Marshal(s.components[name])
	if err != nil {
		t.Fatal(err)
	}
	var got map[string]any
	if err := json.Unmarshal(raw, &got); err != nil {
		t.Fatal(err)
	}
	return got
}

type object = map[string]any

func TestSchemaOfResponse(t *testing.T) {
	self := object{"$ref": "#/components/schemas/OpenapiTree"}
	want := object{
		"type": "object",
		"properties": object{
			"id":       object{"type": "string"},
			"name":     object{"type": "string"},
			"at":       object{"type": "string", "format": "date-time"},
			"ended":    object{"type": []any{"string", "null"}, "format": "date-time"},
			"parent":   self,
			"children": object{"type": "array", "items": self},
			"rules":    object{"description": "Any JSON value."},
			"count":    object{"type": []any{"integer", "null"}, "format": "int64"},
			"open":     object{"type": "boolean"},
		},
		"required": []any{"id", "at", "ended", "children", "rules", "count", "open"},
	}
	if diff := cmp.Diff(want, schemaOf(t, returned)); diff != "" {
		t.Error(diff)
	}
}

// TestRequestsRequireMembersWithoutOmitempty, but no boolean, and refuse others.
func TestRequestsRequireMembersWithoutOmitempty(t *testing.T) {
	got := schemaOf(t, request)
	if got["additionalProperties"] != false {
		t.Errorf("additionalProperties: got %v, want false", got["additionalProperties"])
	}
	if diff := cmp.Diff([]any{"id", "at", "ended", "children", "rules", "count"}, got["required"]); diff != "" {
		t.Error(diff)
	}
}

func TestRefusalsFollowFromTheRow(t *testing.T) {
	own := capability.NewError(409, "things/taken", "It is taken.")
	body := capability.JSON(200, func(*capability.Call, base) (base, error) { return base{}, nil })
	none := capability.JSON(200, func(*capability.Call, capability.None) (base, error) { return base{}, nil })
	for name, c := range map[string]struct {
		row  Row
		want []string
	}{
		"a page with a body": {
			Row{Limited: true, Route: capability.Route{Method: "POST", Path: "/things/:id", Guard: capability.User(), Idempotent: true,
				Refusals: []*capability.Error{own, own}, Handle: body}},
			[]string{"kit/invalid_request", "auth/unauthenticated", "auth/csrf", "kit/not_found", "kit/idempotency_conflict",
				"things/taken", "kit/body_too_large", "kit/unsupported_media_type", "kit/rate_limited", "kit/internal", "kit/unavailable"},
		},
		"a machine": {
			Row{Route: capability.Route{Method: "GET", Path: "/things", Guard: capability.ControlPlane("things:read"), Handle: none}},
			[]string{"kit/invalid_request", "controlplane/invalid_credential", "controlplane/insufficient_scope",
				"controlplane/not_connected", "kit/internal", "kit/unavailable"},
		},
		"anybody": {
			Row{Route: capability.Route{Method: "GET", Path: "/things", Guard: capability.Public("a test"), Handle: none}},
			[]string{"kit/invalid_request", "kit/internal", "kit/unavailable"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, e := range Refusals(c.row) {
				got = append(got, e.Code)
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestTypesThatJSONCannotRepresentAreRefused(t *testing.T) {
	type broken struct{ F func() }
	d := Description{Rows: []Row{{Capability: "things", Route: capability.Route{Method: "GET", Path: "/things", Guard: capability.Public("a test"),
		Handle: capability.JSON(200, func(*capability.Call, capability.None) (broken, error) { return broken{}, nil })}}}}
	if _, err := d.JSON(); err == nil {
		t.Error("a function in a response was described")
	}
}

func TestOperationIDsAreUnique(t *testing.T) {
	ids := make(map[string]bool)
	for _, want := range []string{"getThingsById", "getThingsById2", "getThingsById3"} {
		if got := unique(ids, operationID("GET", "/things/:id")); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

// TestWrittenSchemasAreThoseOfTheLibrary compares the output of the one-pass writer with that of
// the library, which shows a member that it omits.
func TestWrittenSchemasAreThoseOfTheLibrary(t *testing.T) {
	s := newSchemas()
	for _, way := range []direction{returned, request} {
		if _, err := s.of(reflect.TypeFor[tree](), way); err != nil {
			t.Fatal(err)
		}
	}
	for _, route := range []capability.Route{
		{Method: "GET", Path: "/things/:id", Guard: capability.User(), Idempotent: true, Query: []capability.Param{
			{Name: "at", Format: "date-time"}, {Name: "kind", Choices: []string{"a", "b"}}, capability.LimitParam}},
	} {
		for i, p := range parameters(route, []string{"id", restParam}) {
			s.components[p.Name+string(rune('0'+i))] = p.Schema
		}
	}
	s.components[refusalName] = refusalBody()
	s.components["Odd"] = &jsonschema.Schema{Description: "\"quoted\" \\ <b> \u00e9\x00\xff\n", AnyOf: []*jsonschema.Schema{{Type: "null"}, {Ref: "#/x"}}}
	for name, schema := range s.components {
		var want, got any
		library, err := json.Marshal(schema)
		if err != nil || json.Unmarshal(library, &want) != nil {
			t.Fatal(name, err)
		}
		own := appendSchema(nil, schema)
		if err := json.Unmarshal(own, &got); err != nil {
			t.Fatalf("%s: %v\n%s", name, err, own)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}
