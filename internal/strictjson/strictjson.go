// Package strictjson decodes untrusted JSON: one value of valid UTF-8, no member twice, no member
// the target does not name exactly, no null in an array whose items cannot be null, bounded depth
// and names. encoding/json alone lets duplicates through and folds letter case. The check is one
// pass whose cost grows with the length of the input alone; a value that cannot fit the target is
// refused where it begins.
package strictjson

import (
	"bytes"
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"
)

// The bounds of a value.
const (
	// MaxDepth bounds how deep arrays and objects may nest.
	MaxDepth = 32
	// MaxName bounds the name of a member, in bytes as sent.
	MaxName = 512
)

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

// Valid returns an error if data is not well-formed JSON, of any shape.
func Valid(data []byte) error { return check(data, nil) }

// Member is one of the members of an object.
type Member struct {
	Name string
	// Value is the JSON of the member, a slice of the input.
	Value []byte
}

// Members is [Valid], and returns the members of data if it is an object.
func Members(data []byte) ([]Member, error) {
	w := walker{data: data, keep: true, members: make([]Member, 0, 4)}
	err := w.check(nil)
	return w.members, err
}

// Text decodes a member that is a text; ok is false where it is something else.
func (m Member) Text() (text string, ok bool) {
	if m.Value[0] != '"' {
		return "", false
	}
	if bytes.IndexByte(m.Value, '\\') < 0 {
		return string(m.Value[1 : len(m.Value)-1]), true
	}
	err := json.Unmarshal(m.Value, &text)
	return text, err == nil
}

func check(data []byte, t reflect.Type) error {
	w := walker{data: data}
	return w.check(t)
}

func (w *walker) check(t reflect.Type) error {
	if !utf8.Valid(w.data) {
		return problem("The body is not valid UTF-8.")
	}
	if err := w.value(t, 0); err != nil {
		return err
	}
	if w.space(); w.at < len(w.data) {
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

// walker reads JSON once, from left to right. The way down to the current
// member is kept as marks, and written out only for an error.
type walker struct {
	data []byte
	at   int
	way  [MaxDepth + 1]mark
	deep int
	// members are those of the outermost object, where they are to be kept.
	keep    bool
	members []Member
}

// mark is one step down: a member's name as sent, or an index.
type mark struct {
	name  []byte
	index int
}

var errSyntax = problem("The body is not valid JSON.")

// value checks the next value against t; a nil t takes any value.
func (w *walker) value(t reflect.Type, depth int) error {
	w.space()
	if w.at == len(w.data) {
		return errSyntax
	}
	switch c := w.data[w.at]; {
	case c == '{' || c == '[':
		return w.composite(c, t, depth)
	case c == '"':
		_, err := w.text()
		return err
	case c == '-' || '0' <= c && c <= '9':
		return w.number()
	default:
		return w.word()
	}
}

func (w *walker) composite(open byte, t reflect.Type, depth int) error {
	if depth == MaxDepth {
		return problem("The body nests deeper than %d levels.", MaxDepth)
	}
	t = shape(t)
	if t != nil && !takes(t, open) {
		return w.mismatch(t)
	}
	w.at++
	w.deep = depth + 1
	defer func() { w.deep = depth }()
	if open == '{' {
		return w.object(t, depth)
	}
	return w.array(t, depth)
}

// takes reports whether a value that begins with { or [ can decode into t.
func takes(t reflect.Type, open byte) bool {
	switch t.Kind() {
	case reflect.Interface:
		return true
	case reflect.Struct, reflect.Map:
		return open == '{'
	case reflect.Slice:
		return open == '[' && t.Elem().Kind() != reflect.Uint8
	case reflect.Array:
		return open == '['
	default:
		return false
	}
}

func (w *walker) mismatch(t reflect.Type) error {
	if w.deep == 0 {
		return problem("The body must be %s.", kindName(t))
	}
	return problem("%s must be %s.", w.path(), kindName(t))
}

func (w *walker) array(t reflect.Type, depth int) error {
	item := element(t, reflect.Slice, reflect.Array)
	for i := 0; ; i++ {
		if w.space(); w.take(']') && i == 0 {
			return nil
		}
		w.way[depth] = mark{index: i}
		if w.at < len(w.data) && w.data[w.at] == 'n' && !nullable(item) {
			return w.mismatch(item)
		}
		if err := w.value(item, depth+1); err != nil {
			return err
		}
		if done, err := w.next(']'); done || err != nil {
			return err
		}
	}
}

func (w *walker) object(t reflect.Type, depth int) error {
	member := element(t, reflect.Map)
	var known map[string]reflect.Type
	if t != nil && t.Kind() == reflect.Struct {
		known = fields(t)
	}
	seen := names{}
	for first := true; ; first = false {
		if w.space(); first && w.take('}') {
			return nil
		}
		name, err := w.name(depth)
		if err != nil {
			return err
		}
		w.way[depth] = mark{name: name}
		if !seen.add(name) {
			return problem("%s is given twice.", w.path())
		}
		if known != nil {
			var ok bool
			if member, ok = known[string(name)]; !ok {
				return problem("%s is not a member of this request.", w.path())
			}
		}
		if w.space(); !w.take(':') {
			return errSyntax
		}
		w.space()
		start := w.at
		if err := w.value(member, depth+1); err != nil {
			return err
		}
		if w.keep && depth == 0 {
			w.members = append(w.members, Member{string(name), w.data[start:w.at]})
		}
		if done, err := w.next('}'); done || err != nil {
			return err
		}
	}
}

// aName stands for a name that is not known yet.
var aName = []byte("a name")

// name reads a member's name and decodes it.
func (w *walker) name(depth int) ([]byte, error) {
	if w.at == len(w.data) || w.data[w.at] != '"' {
		return nil, errSyntax
	}
	start := w.at
	w.way[depth] = mark{name: aName}
	escaped, err := w.text()
	if err != nil {
		return nil, err
	}
	raw := w.data[start+1 : w.at-1]
	if len(raw) > MaxName {
		return nil, problem("The name of a member is longer than %d bytes.", MaxName)
	}
	if !escaped {
		return raw, nil
	}
	var name string
	if err := json.Unmarshal(w.data[start:w.at], &name); err != nil {
		return nil, errSyntax
	}
	return []byte(name), nil
}

// next reads what follows an item: a comma, or the end.
func (w *walker) next(end byte) (done bool, err error) {
	w.space()
	switch {
	case w.take(','):
		return false, nil
	case w.take(end):
		return true, nil
	default:
		return false, errSyntax
	}
}

// text reads a string and reports whether it holds escapes. It refuses NUL,
// which PostgreSQL cannot store.
func (w *walker) text() (escaped bool, err error) {
	for w.at++; w.at < len(w.data); w.at++ {
		switch c := w.data[w.at]; {
		case c == '"':
			w.at++
			return escaped, nil
		case c < ' ':
			return false, errSyntax
		case c == '\\':
			escaped = true
			if err := w.escape(); err != nil {
				return false, err
			}
		}
	}
	return false, errSyntax
}

// escape reads an escape up to its last character.
func (w *walker) escape() error {
	w.at++
	if w.at == len(w.data) {
		return errSyntax
	}
	switch w.data[w.at] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return nil
	case 'u':
	default:
		return errSyntax
	}
	if w.at+4 >= len(w.data) {
		return errSyntax
	}
	code, err := strconv.ParseUint(string(w.data[w.at+1:w.at+5]), 16, 16)
	if err != nil {
		return errSyntax
	}
	if code == 0 {
		return problem("%s holds a NUL character.", w.path())
	}
	w.at += 4
	return nil
}

// number reads a number as RFC 8259 section 6 has it.
func (w *walker) number() error {
	w.take('-')
	switch {
	case w.take('0'):
	case w.digits() == 0:
		return errSyntax
	}
	if w.take('.') && w.digits() == 0 {
		return errSyntax
	}
	if w.take('e') || w.take('E') {
		if !w.take('+') {
			w.take('-')
		}
		if w.digits() == 0 {
			return errSyntax
		}
	}
	return nil
}

func (w *walker) digits() (n int) {
	for w.at < len(w.data) && '0' <= w.data[w.at] && w.data[w.at] <= '9' {
		w.at++
		n++
	}
	return n
}

func (w *walker) word() error {
	rest := w.data[w.at:]
	for _, word := range [...]string{"true", "false", "null"} {
		if len(rest) >= len(word) && string(rest[:len(word)]) == word {
			w.at += len(word)
			return nil
		}
	}
	return errSyntax
}

func (w *walker) take(c byte) bool {
	if w.at < len(w.data) && w.data[w.at] == c {
		w.at++
		return true
	}
	return false
}

func (w *walker) space() {
	for w.at < len(w.data) {
		switch w.data[w.at] {
		case ' ', '\t', '\n', '\r':
			w.at++
		default:
			return
		}
	}
}

// path returns the walker's position, such as "list[0].name".
func (w *walker) path() string {
	var b strings.Builder
	for i, m := range w.way[:w.deep] {
		switch {
		case m.name == nil:
			b.WriteString("[" + strconv.Itoa(m.index) + "]")
		case i > 0:
			b.WriteByte('.')
			fallthrough
		default:
			b.Write(m.name)
		}
	}
	if b.Len() == 0 {
		return "The body"
	}
	return clip(b.String())
}

// names holds the names of one object: the first few in a list, which is faster than a map for
// usual requests.
type names struct {
	few  [8][]byte
	n    int
	many map[string]bool
}

// add reports whether the name is new.
func (s *names) add(name []byte) bool {
	if s.many != nil {
		if s.many[string(name)] {
			return false
		}
		s.many[string(name)] = true
		return true
	}
	for _, known := range s.few[:s.n] {
		if bytes.Equal(known, name) {
			return false
		}
	}
	if s.n < len(s.few) {
		s.few[s.n] = name
		s.n++
		return true
	}
	s.many = map[string]bool{string(name): true}
	for _, known := range s.few {
		s.many[string(known)] = true
	}
	return true
}

var (
	unmarshaler     = reflect.TypeFor[json.Unmarshaler]()
	textUnmarshaler = reflect.TypeFor[encoding.TextUnmarshaler]()
	text            = reflect.TypeFor[string]()
)

// shape strips pointers; a type that decodes itself has no shape of ours, and
// one that decodes text takes a string.
func shape(t reflect.Type) reflect.Type {
	for t != nil && t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch {
	case t == nil || reflect.PointerTo(t).Implements(unmarshaler):
		return nil
	case reflect.PointerTo(t).Implements(textUnmarshaler):
		return text
	default:
		return t
	}
}

// nullable reports whether null is a value of a type. encoding/json leaves any other item of an array
// at zero: a client whose number is not one, which JavaScript writes as null, would store a zero.
func nullable(t reflect.Type) bool {
	if t == nil {
		return true
	}
	switch t.Kind() {
	case reflect.Pointer, reflect.Interface, reflect.Slice, reflect.Map:
		return true
	default:
		return shape(t) == nil
	}
}

func element(t reflect.Type, kinds ...reflect.Kind) reflect.Type {
	if t == nil || !slices.Contains(kinds, t.Kind()) {
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

// clip shortens a member name, so that a hostile one cannot fill the response.
func clip(name string) string {
	const most = 80
	if len(name) > most {
		name = strings.ToValidUTF8(name[:most], "") + "…"
	}
	return strconv.Quote(name)
}
