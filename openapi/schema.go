package openapi

import (
	"encoding"
	"encoding/json"
	"fmt"
	"path"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/kitbackend/kit/capability"
)

// direction is the direction of a value. A type has a schema for each: that of requests refuses
// members that are not listed, unless it is lenient, and a boolean may be omitted, which is false. A
// pointer is null where it may be omitted in a request, and where it may not in a response.
type direction int

const (
	returned direction = iota
	request
	lenient
)

const schemaRef = "#/components/schemas/"

var (
	noneType    = reflect.TypeFor[capability.None]()
	marshaler   = reflect.TypeFor[json.Marshaler]()
	textual     = reflect.TypeFor[encoding.TextMarshaler]()
	unmarshaler = reflect.TypeFor[json.Unmarshaler]()
)

// known are the types with their own encoding whose schema is known.
var known = map[reflect.Type]func() *jsonschema.Schema{
	reflect.TypeFor[capability.Time](): instant,
	reflect.TypeFor[time.Time]():       instant,
	reflect.TypeFor[json.RawMessage](): anything,
	reflect.TypeFor[[]byte]():          func() *jsonschema.Schema { return &jsonschema.Schema{Type: "string", ContentEncoding: "base64"} },
	reflect.TypeFor[json.Number]():     func() *jsonschema.Schema { return &jsonschema.Schema{Type: "number"} },
}

func instant() *jsonschema.Schema { return &jsonschema.Schema{Type: "string", Format: "date-time"} }

func anything() *jsonschema.Schema { return &jsonschema.Schema{Description: "Any JSON value."} }

// component is the key of a named schema.
type component struct {
	t   reflect.Type
	way direction
}

// schemas creates the schema of each type once.
type schemas struct {
	components map[string]*jsonschema.Schema
	names      map[component]string
	plains     map[reflect.Type]*jsonschema.Schema
}

func newSchemas() *schemas {
	return &schemas{
		components: make(map[string]*jsonschema.Schema), names: make(map[component]string),
		plains: make(map[reflect.Type]*jsonschema.Schema),
	}
}

// of returns the schema of a type; that of a named struct is a reference. A type that writes itself
// has the schema of its Shape, if it has this method.
func (s *schemas) of(t reflect.Type, way direction) (*jsonschema.Schema, error) {
	if known := known[t]; known != nil {
		return known(), nil
	}
	if t.Kind() == reflect.Pointer {
		return s.of(t.Elem(), way)
	}
	if shaped, ok := reflect.Zero(t).Interface().(interface{ Shape() any }); ok {
		return s.of(reflect.TypeOf(shaped.Shape()), way)
	}
	if special := writesItself(t, way); special != nil {
		return special, nil
	}
	switch t.Kind() {
	case reflect.Struct:
		return s.named(t, way)
	case reflect.Slice, reflect.Array:
		items, err := s.of(t.Elem(), way)
		if err != nil {
			return nil, err
		}
		return &jsonschema.Schema{Type: "array", Items: items}, nil
	case reflect.Map:
		values, err := s.of(t.Elem(), way)
		if err != nil {
			return nil, err
		}
		return &jsonschema.Schema{Type: "object", AdditionalProperties: values}, nil
	case reflect.Interface:
		return anything(), nil
	default:
		return s.plain(t)
	}
}

// resolved returns the schema that a schema refers to, or the schema itself.
func (s *schemas) resolved(schema *jsonschema.Schema) *jsonschema.Schema {
	if name, ok := strings.CutPrefix(schema.Ref, schemaRef); ok {
		return s.components[name]
	}
	return schema
}

// enumerated is a string type with a fixed set of values.
type enumerated interface{ Choices() []string }

// plain returns a copy of the schema of a number, a string or a boolean, which is created once.
func (s *schemas) plain(t reflect.Type) (*jsonschema.Schema, error) {
	if s.plains[t] == nil {
		schema, err := plain(t)
		if err != nil {
			return nil, err
		}
		s.plains[t] = schema
	}
	schema := *s.plains[t]
	return &schema, nil
}

func plain(t reflect.Type) (*jsonschema.Schema, error) {
	schema, err := jsonschema.ForType(t, nil)
	if err != nil {
		return nil, err
	}
	if e, ok := reflect.Zero(t).Interface().(enumerated); ok {
		schema.Enum = choices(e.Choices())
	}
	switch t.Kind() {
	case reflect.Int, reflect.Int64:
		schema.Format = "int64"
	case reflect.Int32:
		schema.Format = "int32"
	case reflect.Float64:
		schema.Format = "double"
	case reflect.Float32:
		schema.Format = "float"
	default:
	}
	return schema, nil
}

// writesItself returns the schema of a type with its own encoding, which reflection cannot tell: a
// string, or any JSON.
func writesItself(t reflect.Type, way direction) *jsonschema.Schema {
	does := func(method reflect.Type) bool { return t.Implements(method) || reflect.PointerTo(t).Implements(method) }
	switch {
	case way == returned && does(marshaler), way != returned && does(unmarshaler):
		return anything()
	case does(textual):
		return &jsonschema.Schema{Type: "string"}
	default:
		return nil
	}
}

// named adds the component of a struct before its members, which may refer to it.
func (s *schemas) named(t reflect.Type, way direction) (*jsonschema.Schema, error) {
	if t.Name() == "" {
		return s.object(t, way)
	}
	key := component{t, way}
	if name, ok := s.names[key]; ok {
		return &jsonschema.Schema{Ref: schemaRef + name}, nil
	}
	name := s.free(t, way)
	s.names[key] = name
	s.components[name] = &jsonschema.Schema{}
	schema, err := s.object(t, way)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", t, err)
	}
	s.components[name] = schema
	return &jsonschema.Schema{Ref: schemaRef + name}, nil
}

// free returns an unused name: the package and the name of the type, such as LedgerBalance, with
// the suffix Input for a request.
func (s *schemas) free(t reflect.Type, way direction) string {
	name, arguments, _ := strings.Cut(t.Name(), "[")
	for argument := range strings.SplitSeq(strings.TrimSuffix(arguments, "]"), ",") {
		name += "-" + path.Base(argument)
	}
	name = pascal(path.Base(t.PkgPath())) + pascal(name)
	if way != returned {
		name += "Input"
	}
	whole := name
	for n := 2; s.components[name] != nil || name == refusalName || name == libraryRefusalName; n++ {
		name = fmt.Sprintf("%s%d", whole, n)
	}
	return name
}

func (s *schemas) object(t reflect.Type, way direction) (*jsonschema.Schema, error) {
	schema := &jsonschema.Schema{Type: "object"}
	if way == request {
		schema.AdditionalProperties = &jsonschema.Schema{Not: &jsonschema.Schema{}}
	}
	for _, m := range members(t) {
		value, err := s.of(m.t, way)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", m.name, err)
		}
		if m.quoted {
			value = &jsonschema.Schema{Type: "string"}
		}
		if m.t.Kind() == reflect.Pointer && m.optional == (way != returned) {
			value = nullable(value)
		}
		if schema.Properties == nil {
			schema.Properties = make(map[string]*jsonschema.Schema)
		}
		schema.Properties[m.name] = value
		schema.PropertyOrder = append(schema.PropertyOrder, m.name)
		if !m.optional && (way == returned || mustBeGiven(m.t)) {
			schema.Required = append(schema.Required, m.name)
		}
	}
	return schema, nil
}

// mustBeGiven reports whether a request must contain a member that is not tagged omitempty.
func mustBeGiven(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.Bool, reflect.Interface:
		return false
	default:
		return true
	}
}

func nullable(schema *jsonschema.Schema) *jsonschema.Schema {
	switch {
	case schema.Type != "":
		schema.Types, schema.Type = []string{schema.Type, "null"}, ""
		if schema.Enum != nil {
			schema.Enum = append(schema.Enum, nil)
		}
		return schema
	case schema.Ref != "":
		return &jsonschema.Schema{AnyOf: []*jsonschema.Schema{schema, {Type: "null"}}}
	default: // any value, including null
		return schema
	}
}

// member is a field as encoded in JSON.
type member struct {
	name             string
	t                reflect.Type
	optional, quoted bool
}

// members returns the fields of a struct, those of embedded structs in their place; an outer field
// hides an inner one of the same name.
func members(t reflect.Type) []member {
	var list []member
	add := func(m member, outer bool) {
		i := slices.IndexFunc(list, func(other member) bool { return other.name == m.name })
		switch {
		case i < 0:
			list = append(list, m)
		case outer:
			list[i] = m
		}
	}
	for i := range t.NumField() {
		field := t.Field(i)
		tag := field.Tag.Get("json")
		name, rest, _ := strings.Cut(tag, ",")
		inner := field.Type
		if inner.Kind() == reflect.Pointer {
			inner = inner.Elem()
		}
		switch {
		case tag == "-":
		case field.Anonymous && name == "" && inner.Kind() == reflect.Struct && known[inner] == nil:
			for _, m := range members(inner) {
				m.optional = m.optional || field.Type.Kind() == reflect.Pointer
				add(m, false)
			}
		case field.IsExported():
			if name == "" {
				name = field.Name
			}
			options := strings.Split(rest, ",")
			has := func(option string) bool { return slices.Contains(options, option) }
			add(member{name, field.Type, has("omitempty") || has("omitzero"), has("string")}, true)
		}
	}
	return list
}
