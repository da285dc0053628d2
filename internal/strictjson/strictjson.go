// Package strictjson decodes JSON that came from outside: one value of valid
// UTF-8, no member twice, no member the target does not name exactly, bounded
// depth. encoding/json alone lets duplicates through and folds letter case.
package strictjson

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"
)

// MaxDepth bounds how deep arrays and objects may nest.
const MaxDepth = 32

// Decode reads data into the pointer. Its error is a sentence for the client;
// it quotes member names, never values.
func Decode(data []byte, into any) error {
	if err := check(data, reflect.TypeOf(into).Elem()); err != nil {
		return err
	}
	if err := json.Unmarshal(data, into); err != nil {
		return describe(err)
	}
	return nil
}

// Valid reports what is wrong with data as JSON of any shape.
func Valid(data []byte) error { return check(data, nil) }

func check(data []byte, t reflect.Type) error {
	if !utf8.Valid(data) {
		return problem("The body is not valid UTF-8.")
	}
	w := walker{dec: json.NewDecoder(bytes.NewReader(data))}
	w.dec.UseNumber()
	if err := w.value(t, "", 0); err != nil {
		return err
	}
	if _, err := w.dec.Token(); !errors.Is(err, io.EOF) {
		return problem("The body goes on after its JSON value.")
	}
	return nil
}

// Problem is a sentence for the client about what is wrong with its JSON.
type Problem string

func (p Problem) Error() string { return string(p) }

func problem(format string, args ...any) error { return Problem(fmt.Sprintf(format, args...)) }

func describe(err error) error {
	var wrong *json.UnmarshalTypeError
	if errors.As(err, &wrong) {
		if wrong.Field == "" {
			return problem("The body must be %s.", kindName(wrong.Type))
		}
		return problem("%s must be %s.", clip(wrong.Field), kindName(wrong.Type))
	}
	return problem("The body is not valid JSON.")
}

func kindName(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return "an integer in range"
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return "a non-negative integer in range"
	case reflect.Float32, reflect.Float64:
		return "a number"
	case reflect.String:
		return "a string"
	case reflect.Bool:
		return "true or false"
	case reflect.Slice, reflect.Array:
		return "an array"
	case reflect.Pointer:
		return kindName(t.Elem())
	default:
		return "an object"
	}
}

type walker struct{ dec *json.Decoder }

// value checks the next value against t; a nil t takes any member.
func (w walker) value(t reflect.Type, path string, depth int) error {
	token, err := w.dec.Token()
	if err != nil {
		return problem("The body is not valid JSON.")
	}
	delim, ok := token.(json.Delim)
	if !ok {
		return w.text(token, path)
	}
	if depth == MaxDepth {
		return problem("The body nests deeper than %d levels.", MaxDepth)
	}
	t = shape(t)
	if delim == '{' {
		return w.object(t, path, depth)
	}
	for i := 0; w.dec.More(); i++ {
		if err := w.value(element(t, reflect.Slice), path+"["+strconv.Itoa(i)+"]", depth+1); err != nil {
			return err
		}
	}
	return w.end()
}

func (w walker) object(t reflect.Type, path string, depth int) error {
	seen := make(map[string]bool)
	for w.dec.More() {
		token, err := w.dec.Token()
		if err != nil {
			return problem("The body is not valid JSON.")
		}
		name := token.(string)
		full := strings.TrimPrefix(path+"."+name, ".")
		if err := w.text(name, full); err != nil {
			return err
		}
		if seen[name] {
			return problem("%s is given twice.", clip(full))
		}
		seen[name] = true
		member := element(t, reflect.Map)
		if t != nil && t.Kind() == reflect.Struct {
			if member, ok := fields(t)[name]; !ok {
				return problem("%s is not a member of this request.", clip(full))
			} else if err := w.value(member, full, depth+1); err != nil {
				return err
			}
			continue
		}
		if err := w.value(member, full, depth+1); err != nil {
			return err
		}
	}
	return w.end()
}

// text refuses NUL, which PostgreSQL cannot store.
func (w walker) text(token json.Token, path string) error {
	if s, ok := token.(string); ok && strings.ContainsRune(s, 0) {
		return problem("%s holds a NUL character.", clip(path))
	}
	return nil
}

func (w walker) end() error {
	if _, err := w.dec.Token(); err != nil {
		return problem("The body is not valid JSON.")
	}
	return nil
}

var unmarshaler = reflect.TypeFor[json.Unmarshaler]()

// shape strips pointers; a type that decodes itself has no shape of ours.
func shape(t reflect.Type) reflect.Type {
	for t != nil && t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t == nil || reflect.PointerTo(t).Implements(unmarshaler) {
		return nil
	}
	return t
}

func element(t reflect.Type, kind reflect.Kind) reflect.Type {
	if t == nil || t.Kind() != kind {
		return nil
	}
	return t.Elem()
}

var fieldCache sync.Map // reflect.Type -> map[string]reflect.Type

// fields maps the exact JSON names of a struct to their types.
func fields(t reflect.Type) map[string]reflect.Type {
	if known, ok := fieldCache.Load(t); ok {
		return known.(map[string]reflect.Type)
	}
	names := make(map[string]reflect.Type)
	for _, f := range reflect.VisibleFields(t) {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if !f.IsExported() || name == "-" || (f.Anonymous && name == "") {
			continue
		}
		if name == "" {
			name = f.Name
		}
		names[name] = f.Type
	}
	fieldCache.Store(t, names)
	return names
}

// clip keeps a hostile member name from filling the answer.
func clip(name string) string {
	const most = 80
	if len(name) > most {
		name = strings.ToValidUTF8(name[:most], "") + "…"
	}
	return strconv.Quote(name)
}
