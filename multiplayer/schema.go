package multiplayer

import (
	"encoding/json"
	"reflect"

	"github.com/google/jsonschema-go/jsonschema"
)

// schemaOf resolves the given schema or, without one, that of the type.
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

// admitNilMaps lets a map be null, which is how Go encodes one that is nil; the
// inference does so for slices only.
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

// hold holds JSON to a schema.
func hold(schema *jsonschema.Resolved, data json.RawMessage) error {
	var value any
	if err := json.Unmarshal(data, &value); err != nil {
		return err
	}
	return schema.Validate(value)
}
