package openapi

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"
)

// objectWriter appends members to a JSON object.
type objectWriter struct {
	buf   []byte
	first bool
}

// begin starts an object at the end of buf.
func begin(buf []byte) *objectWriter { return &objectWriter{buf: append(buf, '{'), first: true} }

// end closes the object and returns the buffer.
func (o *objectWriter) end() []byte { return append(o.buf, '}') }

func (o *objectWriter) key(name string) {
	if !o.first {
		o.buf = append(o.buf, ',')
	}
	o.first = false
	o.buf = append(appendText(o.buf, name), ':')
}

func (o *objectWriter) text(name, value string) {
	if value != "" {
		o.always(name, value)
	}
}

// always writes a string, even if it is empty.
func (o *objectWriter) always(name, value string) {
	o.key(name)
	o.buf = appendText(o.buf, value)
}

func (o *objectWriter) flag(name string, value bool) {
	if value {
		o.key(name)
		o.buf = append(o.buf, "true"...)
	}
}

func (o *objectWriter) object(name string, write func(*objectWriter)) {
	o.key(name)
	inner := begin(o.buf)
	write(inner)
	o.buf = inner.end()
}

// sorted writes a member for each of values, in the order of their names.
func sorted[T any](o *objectWriter, values map[string]T, appendValue func([]byte, T) []byte) {
	for _, name := range slices.Sorted(maps.Keys(values)) {
		o.key(name)
		o.buf = appendValue(o.buf, values[name])
	}
}

// single appends an object with one string member.
func single(buf []byte, name, value string) []byte {
	o := begin(buf)
	o.always(name, value)
	return o.end()
}

func (o *objectWriter) texts(name string, values []string) { array(o, name, values, appendText) }

// array writes a member with an array, unless there are no values.
func array[T any](o *objectWriter, name string, values []T, appendValue func([]byte, T) []byte) {
	if len(values) > 0 {
		list(o, name, values, appendValue)
	}
}

// list writes a member with an array, which may be empty.
func list[T any](o *objectWriter, name string, values []T, appendValue func([]byte, T) []byte) {
	o.key(name)
	o.buf = appendList(o.buf, values, appendValue)
}

func appendList[T any](buf []byte, values []T, appendValue func([]byte, T) []byte) []byte {
	buf = append(buf, '[')
	for i, v := range values {
		if i > 0 {
			buf = append(buf, ',')
		}
		buf = appendValue(buf, v)
	}
	return append(buf, ']')
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
	o.object("properties", func(o *objectWriter) {
		for _, name := range names {
			o.schema(name, s.Properties[name])
		}
	})
}

// appendSchema appends a schema. It supports those members of JSON Schema that this package uses.
func appendSchema(buf []byte, s *jsonschema.Schema) []byte {
	if s.Not != nil && s.Not.Ref == "" && s.Not.Type == "" { // nothing is allowed
		return append(buf, "false"...)
	}
	o := begin(buf)
	o.text("$ref", s.Ref)
	o.text("type", s.Type)
	o.texts("type", s.Types)
	o.text("description", s.Description)
	o.text("format", s.Format)
	o.text("contentEncoding", s.ContentEncoding)
	o.text("pattern", s.Pattern)
	array(o, "enum", s.Enum, appendChoice)
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
	return o.end()
}

// appendChoice appends a value of an enumeration: a string or null.
func appendChoice(buf []byte, value any) []byte {
	if text, ok := value.(string); ok {
		return appendText(buf, text)
	}
	return append(buf, "null"...)
}

// appendText appends a JSON string; invalid UTF-8 is replaced.
func appendText(buf []byte, text string) []byte {
	text = strings.ToValidUTF8(text, "\ufffd")
	buf = append(buf, '"')
	from := 0
	for i := range len(text) {
		c := text[i]
		if c >= ' ' && c != '"' && c != '\\' {
			continue
		}
		buf = append(buf, text[from:i]...)
		switch c {
		case '"', '\\':
			buf = append(buf, '\\', c)
		case '\n':
			buf = append(buf, `\n`...)
		default:
			buf = append(buf, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
		}
		from = i + 1
	}
	return append(append(buf, text[from:]...), '"')
}

const hexDigits = "0123456789abcdef"
