package openapi

import (
	"slices"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"
)

// exampleWriter appends example values. open are the components that the value is inside of, which
// it does not enter again.
type exampleWriter struct {
	schemas *schemas
	open    []string
}

// append appends a value that a schema allows; equal schemas result in equal bytes.
func (w *exampleWriter) append(buf []byte, s *jsonschema.Schema) []byte {
	if out, ok := w.value(buf, "", s); ok {
		return out
	}
	return append(buf, "null"...)
}

// value appends a value for the member of that name, or reports false if every value would be
// infinite.
func (w *exampleWriter) value(buf []byte, name string, s *jsonschema.Schema) ([]byte, bool) {
	switch {
	case s.Ref != "":
		return w.component(buf, name, strings.TrimPrefix(s.Ref, schemaRef))
	case len(s.AnyOf) > 0:
		for _, choice := range s.AnyOf {
			if out, ok := w.value(buf, name, choice); ok {
				return out, true
			}
		}
		return buf, false
	case len(s.Enum) > 0:
		return appendChoice(buf, s.Enum[0]), true
	case name == "nextCursor":
		return append(buf, "null"...), true
	}
	kind, null := s.Type, false
	if kind == "" && len(s.Types) > 0 {
		kind, null = s.Types[0], slices.Contains(s.Types, "null")
	}
	if kind == "object" || kind == "" {
		if out, ok := w.object(buf, s); ok || !null {
			return out, ok
		}
		return append(buf, "null"...), true
	}
	return w.plain(buf, name, kind, s), true
}

func (w *exampleWriter) component(buf []byte, member, name string) ([]byte, bool) {
	if slices.Contains(w.open, name) {
		return buf, false
	}
	w.open = append(w.open, name)
	defer func() { w.open = w.open[:len(w.open)-1] }()
	return w.value(buf, member, w.schemas.components[name])
}

// object appends every member that has an example; the example of any JSON value is {}.
func (w *exampleWriter) object(buf []byte, s *jsonschema.Schema) ([]byte, bool) {
	o := begin(buf)
	for _, name := range s.PropertyOrder {
		if !w.member(o, name, name, s.Properties[name]) && slices.Contains(s.Required, name) {
			return buf, false
		}
	}
	if more := s.AdditionalProperties; more != nil && more.Not == nil && len(s.Properties) == 0 {
		w.member(o, "key", "", more)
	}
	return o.end(), true
}

// member appends a member with a value for name, or nothing if there is none.
func (w *exampleWriter) member(o *objectWriter, key, name string, s *jsonschema.Schema) bool {
	before := *o
	o.key(key)
	value, ok := w.value(o.buf, name, s)
	if !ok {
		*o = before
		return false
	}
	o.buf = value
	return true
}

func (w *exampleWriter) plain(buf []byte, name, kind string, s *jsonschema.Schema) []byte {
	switch kind {
	case "array":
		if items, ok := w.value(append(buf, '['), strings.TrimSuffix(name, "s"), s.Items); ok {
			return append(items, ']')
		}
		return append(buf, "[]"...)
	case "integer":
		return append(buf, '1')
	case "number":
		return append(buf, "0.5"...)
	case "boolean":
		return append(buf, "true"...)
	case "string":
		return appendText(buf, exampleText(name, s))
	default:
		return append(buf, "null"...)
	}
}

// exampleText returns an example of a string for a member of that name.
func exampleText(name string, s *jsonschema.Schema) string {
	lower := strings.ToLower(name)
	switch {
	case s.Format == "date-time":
		return "2026-11-22T12:00:00.000Z"
	case s.ContentEncoding == "base64":
		return "a2l0"
	case lower == "userid":
		return "ada"
	case lower == "id", strings.HasSuffix(name, "Id"), strings.HasSuffix(name, "ID"):
		return "01kaxg5m4e7q2t9w3z6c8f1h0k"
	case strings.Contains(lower, "email"), strings.HasSuffix(lower, "address"):
		return "ada@example.com"
	case strings.HasSuffix(lower, "url"):
		return "https://example.com/"
	case lower == "currency":
		return "coins"
	case lower == "contenttype":
		return "image/png"
	case name == "":
		return "text"
	default:
		return name
	}
}
