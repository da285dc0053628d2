package openapi

import (
	"encoding/json"
	"maps"
	"slices"
	"strconv"

	"github.com/google/jsonschema-go/jsonschema"
)

// written is a schema that writes itself in one pass. Of what JSON Schema has it
// knows what this package makes.
type written jsonschema.Schema

// MarshalJSON returns the schema with its members in a fixed order.
func (s *written) MarshalJSON() ([]byte, error) {
	return appendSchema(make([]byte, 0, 512), (*jsonschema.Schema)(s)), nil
}

// written are the components, ready to be written.
func (s *schemas) written() map[string]*written {
	all := make(map[string]*written, len(s.components))
	for name, schema := range s.components {
		all[name] = (*written)(schema)
	}
	return all
}

// objectWriter appends members to a JSON object.
type objectWriter struct {
	buf   []byte
	first bool
}

func (o *objectWriter) key(name string) {
	if !o.first {
		o.buf = append(o.buf, ',')
	}
	o.first = false
	o.buf = append(appendText(o.buf, name), ':')
}

func (o *objectWriter) text(name, value string) {
	if value != "" {
		o.key(name)
		o.buf = appendText(o.buf, value)
	}
}

func (o *objectWriter) texts(name string, values []string) { array(o, name, values, appendText) }

// array writes a member with a value for each of values, unless there are none.
func array[T any](o *objectWriter, name string, values []T, appendValue func([]byte, T) []byte) {
	if len(values) == 0 {
		return
	}
	o.key(name)
	o.buf = append(o.buf, '[')
	for i, v := range values {
		if i > 0 {
			o.buf = append(o.buf, ',')
		}
		o.buf = appendValue(o.buf, v)
	}
	o.buf = append(o.buf, ']')
}

func (o *objectWriter) integer(name string, value *int) {
	if value != nil {
		o.key(name)
		o.buf = strconv.AppendInt(o.buf, int64(*value), 10)
	}
}

func (o *objectWriter) number(name string, value *float64) {
	if value != nil {
		o.key(name)
		o.buf = strconv.AppendFloat(o.buf, *value, 'f', -1, 64)
	}
}

func (o *objectWriter) schema(name string, value *jsonschema.Schema) {
	if value != nil {
		o.key(name)
		o.buf = appendSchema(o.buf, value)
	}
}

func (o *objectWriter) schemas(name string, values []*jsonschema.Schema) {
	array(o, name, values, appendSchema)
}

func (o *objectWriter) properties(s *jsonschema.Schema) {
	if len(s.Properties) == 0 {
		return
	}
	names := s.PropertyOrder
	if len(names) != len(s.Properties) {
		names = slices.Sorted(maps.Keys(s.Properties))
	}
	o.key("properties")
	inner := objectWriter{buf: append(o.buf, '{'), first: true}
	for _, name := range names {
		inner.schema(name, s.Properties[name])
	}
	o.buf = append(inner.buf, '}')
}

func appendSchema(buf []byte, s *jsonschema.Schema) []byte {
	if s.Not != nil && s.Not.Ref == "" && s.Not.Type == "" { // nothing is allowed
		return append(buf, "false"...)
	}
	o := objectWriter{buf: append(buf, '{'), first: true}
	o.text("$ref", s.Ref)
	o.text("type", s.Type)
	o.texts("type", s.Types)
	o.text("description", s.Description)
	o.text("format", s.Format)
	o.text("contentEncoding", s.ContentEncoding)
	o.text("pattern", s.Pattern)
	if len(s.Enum) > 0 {
		o.key("enum")
		values, err := json.Marshal(s.Enum)
		if err != nil {
			panic("openapi: an enumeration is texts: " + err.Error())
		}
		o.buf = append(o.buf, values...)
	}
	o.number("minimum", s.Minimum)
	o.number("maximum", s.Maximum)
	o.integer("minLength", s.MinLength)
	o.integer("maxLength", s.MaxLength)
	o.integer("minItems", s.MinItems)
	o.integer("maxItems", s.MaxItems)
	o.schema("items", s.Items)
	o.properties(s)
	o.texts("required", s.Required)
	o.schema("additionalProperties", s.AdditionalProperties)
	o.schemas("anyOf", s.AnyOf)
	o.schemas("allOf", s.AllOf)
	return append(o.buf, '}')
}

// appendText appends a JSON string.
func appendText(buf []byte, text string) []byte {
	for i := range len(text) {
		if c := text[i]; c < ' ' || c == '"' || c == '\\' || c >= 0x80 {
			quoted, err := json.Marshal(text)
			if err != nil {
				panic("openapi: a text: " + err.Error())
			}
			return append(buf, quoted...)
		}
	}
	return append(append(append(buf, '"'), text...), '"')
}
