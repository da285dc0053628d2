package multiplayer

import (
	"encoding"
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/google/jsonschema-go/jsonschema"
)

// schemaOf resolves the given schema or, if it is nil, the one inferred from the type.
func schemaOf[T any](given *jsonschema.Schema) (*jsonschema.Resolved, error) {
	schema := given
	if schema == nil {
		var err error
		schema, err = jsonschema.For[T](&jsonschema.ForOptions{TypeSchemas: map[reflect.Type]*jsonschema.Schema{
			reflect.TypeFor[[]byte]():          {Types: []string{"null", "string"}},
			reflect.TypeFor[json.RawMessage](): {},
		}})
		if err != nil {
			return nil, err
		}
		admitNilMaps(schema)
	}
	return schema.Resolve(&jsonschema.ResolveOptions{ValidateDefaults: true})
}

// admitNilMaps lets a map be null, which is how Go encodes a nil map; the inference admits null for
// slices only.
func admitNilMaps(s *jsonschema.Schema) {
	if s == nil {
		return
	}
	if s.Type == "object" && s.Properties == nil && s.AdditionalProperties != nil && s.AdditionalProperties.Not == nil {
		s.Type, s.Types = "", []string{"null", "object"}
	}
	for _, property := range s.Properties {
		admitNilMaps(property)
	}
	admitNilMaps(s.Items)
	admitNilMaps(s.AdditionalProperties)
}

// hold validates JSON against a schema.
func hold(schema *jsonschema.Resolved, data json.RawMessage) error {
	var value any
	if err := json.Unmarshal(data, &value); err != nil {
		return err
	}
	return schema.Validate(value)
}

var (
	marshaler     = reflect.TypeFor[json.Marshaler]()
	textMarshaler = reflect.TypeFor[encoding.TextMarshaler]()
)

// encodesAsTyped reports whether every value of a type encodes to JSON that matches the schema
// inferred from the type: no part of it has an encoding of its own. The type is not recursive,
// because the inference refuses recursive types.
func encodesAsTyped(t reflect.Type) bool {
	switch {
	case t == reflect.TypeFor[time.Time](), t == reflect.TypeFor[json.RawMessage](), t == reflect.TypeFor[[]byte]():
		return true
	case encodesItself(t):
		return false
	}
	switch t.Kind() {
	case reflect.Interface:
		return false
	case reflect.Pointer, reflect.Slice, reflect.Array:
		return encodesAsTyped(t.Elem())
	case reflect.Map:
		return t.Key().Kind() == reflect.String && !encodesItself(t.Key()) && encodesAsTyped(t.Elem())
	case reflect.Struct:
		for i := range t.NumField() {
			if !fieldEncodesAsTyped(t.Field(i)) {
				return false
			}
		}
	}
	return true
}

func fieldEncodesAsTyped(f reflect.StructField) bool {
	name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
	if name == "-" && options == "" || !f.IsExported() && !f.Anonymous {
		return true
	}
	return !slices.Contains(strings.Split(options, ","), "string") && encodesAsTyped(f.Type)
}

func encodesItself(t reflect.Type) bool {
	p := reflect.PointerTo(t)
	return p.Implements(marshaler) || p.Implements(textMarshaler)
}

// isFlat reports whether a copy of a value shares no memory with it.
func isFlat(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.Struct:
		for i := range t.NumField() {
			if !isFlat(t.Field(i).Type) {
				return false
			}
		}
		return true
	case reflect.Array:
		return isFlat(t.Elem())
	case reflect.Pointer, reflect.Map, reflect.Slice, reflect.Interface, reflect.Func, reflect.Chan, reflect.UnsafePointer:
		return false
	default:
		return true
	}
}
