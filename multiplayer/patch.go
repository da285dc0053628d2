package multiplayer

import (
	"bytes"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// operation is an operation of RFC 6902: add, remove or replace.
type operation struct {
	Op   string `json:"op"`
	Path string `json:"path"`
	// Value is absent from remove.
	Value json.RawMessage `json:"value,omitempty"`
}

// encodePatch encodes a [patchFrame] with at least one operation.
func encodePatch(from, to int64, ops []operation) json.RawMessage {
	b := append(make([]byte, 0, 256), `{"type":"patch","from":`...)
	b = append(strconv.AppendInt(b, from, 10), `,"to":`...)
	b = append(strconv.AppendInt(b, to, 10), `,"ops":[`...)
	for i, op := range ops {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendText(append(append(append(b, `{"op":"`...), op.Op...), `","path":`...), op.Path)
		if op.Value != nil {
			b = append(append(b, `,"value":`...), op.Value...)
		}
		b = append(b, '}')
	}
	return append(b, "]}"...)
}

// appendText appends a text as JSON.
func appendText(b []byte, text string) []byte {
	plain := func(c byte) bool {
		return ' ' <= c && c <= '~' && c != '"' && c != '\\' && c != '<' && c != '>' && c != '&'
	}
	for _, c := range []byte(text) {
		if !plain(c) {
			quoted, _ := json.Marshal(text) // a text always encodes
			return append(b, quoted...)
		}
	}
	return append(append(append(b, '"'), text...), '"')
}

// changes returns the operations that change a player's view of a session into a later one. Members
// that never change during a session are not compared, and others are encoded only if they differ.
func changes(from, to *View) (ops []operation, err error) {
	d := make(differ, 0, 8)
	compare := func(name string, from, to any) {
		old, failed := json.Marshal(from)
		fresh, failedToo := json.Marshal(to)
		if err = errors.Join(err, failed, failedToo); err == nil {
			d = d.value("/"+name, old, fresh)
		}
	}
	if from.Phase != to.Phase {
		compare("phase", from.Phase, to.Phase)
	}
	if from.Version != to.Version {
		d = append(d, operation{"replace", "/version", strconv.AppendInt(nil, to.Version, 10)})
	}
	if !slices.Equal(from.Players, to.Players) {
		compare("players", from.Players, to.Players)
	}
	switch was, is := from.TurnDeadline, to.TurnDeadline; {
	case was != nil && is != nil && was.Equal(is.Time):
	case is != nil:
		raw, failed := is.MarshalJSON()
		d, err = append(d, operation{"replace", "/turnDeadline", raw}), errors.Join(err, failed)
	case was != nil:
		compare("turnDeadline", was, is)
	}
	if from.Fairness != to.Fairness {
		compare("fairness", from.Fairness, to.Fairness)
	}
	if from.State == nil || to.State == nil {
		compare("state", from.State, to.State)
	} else {
		d = d.value("/state", from.State, to.State)
	}
	if from.Result != nil || to.Result != nil {
		compare("result", from.Result, to.Result)
	}
	return d, err
}

// differ collects operations.
type differ []operation

// value adds the operations that change one JSON document into another, both as encoded by
// encoding/json: without space.
func (d differ) value(path string, from, to []byte) differ {
	if bytes.Equal(from, to) {
		return d
	}
	if from[0] == to[0] { // if both are strings, numbers or literals, the whole value is replaced
		switch from[0] {
		case '{':
			return d.object(path, from, to)
		case '[':
			return d.array(path, elements(from), elements(to))
		}
	}
	return append(d, operation{"replace", path, to})
}

// object compares members pairwise if both objects have the same names in the same order, as the
// encodings of one struct do.
func (d differ) object(path string, from, to []byte) differ {
	before := len(d)
	for i, j := 1, 1; from[i] != '}' || to[j] != '}'; {
		var old, now member
		old, i = nextMember(from, i)
		now, j = nextMember(to, j)
		if !bytes.Equal(old.name, now.name) {
			return d[:before].others(path, byName(from), byName(to))
		}
		if !bytes.Equal(old.value, now.value) {
			d = d.value(old.path(path), old.value, now.value)
		}
	}
	return d
}

func (d differ) others(path string, from, to map[string][]byte) differ {
	for _, name := range slices.Sorted(maps.Keys(from)) {
		if _, kept := to[name]; !kept {
			d = append(d, operation{Op: "remove", Path: path + pointer(name)})
		}
	}
	for _, name := range slices.Sorted(maps.Keys(to)) {
		if old, known := from[name]; known {
			d = d.value(path+pointer(name), old, to[name])
		} else {
			d = append(d, operation{"add", path + pointer(name), to[name]})
		}
	}
	return d
}

// array skips the common prefix and suffix, so that removing a card from a hand is one operation;
// the elements between are changed in place.
func (d differ) array(path string, from, to [][]byte) differ {
	start := 0
	for start < min(len(from), len(to)) && bytes.Equal(from[start], to[start]) {
		start++
	}
	end := 0
	for end < min(len(from), len(to))-start && bytes.Equal(from[len(from)-1-end], to[len(to)-1-end]) {
		end++
	}
	common := min(len(from), len(to)) - end
	for i := start; i < common; i++ {
		d = d.value(path+"/"+strconv.Itoa(i), from[i], to[i])
	}
	for i := len(from) - end - 1; i >= common; i-- {
		d = append(d, operation{Op: "remove", Path: path + "/" + strconv.Itoa(i)})
	}
	for i := common; i < len(to)-end; i++ {
		d = append(d, operation{"add", path + "/" + strconv.Itoa(i), to[i]})
	}
	return d
}

var escape = strings.NewReplacer("~", "~0", "/", "~1")

// pointer encodes a member's name as a part of a path, RFC 6901.
func pointer(name string) string { return "/" + escape.Replace(name) }

// member is a member of an encoded object; name includes the quotes.
type member struct{ name, value []byte }

// text returns the decoded name.
func (m member) text() (name string) {
	if bytes.IndexByte(m.name, '\\') < 0 {
		return string(m.name[1 : len(m.name)-1])
	}
	if json.Unmarshal(m.name, &name) != nil {
		panic("multiplayer: a view is JSON")
	}
	return name
}

// path returns the path of the member of the object at a path.
func (m member) path(object string) string {
	if bytes.ContainsAny(m.name, `\~/`) {
		return object + pointer(m.text())
	}
	return object + "/" + string(m.name[1:len(m.name)-1])
}

// byName splits an object encoded by encoding/json.
func byName(object []byte) map[string][]byte {
	m := make(map[string][]byte)
	for i := 1; object[i] != '}'; {
		var one member
		one, i = nextMember(object, i)
		m[one.text()] = one.value
	}
	return m
}

// nextMember returns the member that begins at i, or after the comma at i, and its end. At the end
// of the object it returns no member.
func nextMember(object []byte, i int) (m member, end int) {
	switch object[i] {
	case '}':
		return m, i
	case ',':
		i++
	}
	colon := textEnd(object, i)
	end = valueEnd(object, colon+1)
	return member{object[i:colon], object[colon+1 : end]}, end
}

// elements splits an array encoded by encoding/json.
func elements(array []byte) (list [][]byte) {
	for i := 1; array[i] != ']'; {
		if array[i] == ',' {
			i++
		}
		end := valueEnd(array, i)
		list = append(list, array[i:end])
		i = end
	}
	return list
}

// valueEnd returns the end of the value that begins at i.
func valueEnd(data []byte, i int) int {
	for deep := 0; ; {
		switch data[i] {
		case '"':
			i = textEnd(data, i)
			continue
		case '{', '[':
			deep++
		case '}', ']':
			if deep == 0 {
				return i
			}
			if deep--; deep == 0 {
				return i + 1
			}
		case ',':
			if deep == 0 {
				return i
			}
		}
		i++
	}
}

// textEnd returns the end of the string whose first quote is at i.
func textEnd(data []byte, i int) int {
	for i++; data[i] != '"'; i++ {
		if data[i] == '\\' {
			i++
		}
	}
	return i + 1
}
