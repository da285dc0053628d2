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

// operation is one of RFC 6902: add, remove or replace.
type operation struct {
	Op   string `json:"op"`
	Path string `json:"path"`
	// Value is absent from remove.
	Value json.RawMessage `json:"value,omitempty"`
}

// changes returns the operations that turn a player's view of a session into a
// later one. Members that a session never changes are not looked at, and the
// two that can be large are encoded only where they differ.
func changes(from, to View) (ops []operation, err error) {
	var d differ
	compare := func(name string, from, to any) {
		old, failed := json.Marshal(from)
		fresh, failedToo := json.Marshal(to)
		if err = errors.Join(err, failed, failedToo); err == nil {
			d = d.value("/"+name, old, fresh)
		}
	}
	compare("phase", from.Phase, to.Phase)
	compare("version", from.Version, to.Version)
	if !slices.Equal(from.Players, to.Players) {
		compare("players", from.Players, to.Players)
	}
	compare("turnDeadline", from.TurnDeadline, to.TurnDeadline)
	compare("fairness", from.Fairness, to.Fairness)
	if !bytes.Equal(from.State, to.State) {
		compare("state", from.State, to.State)
	}
	compare("result", from.Result, to.Result)
	return d, err
}

// differ collects operations.
type differ []operation

// value adds what turns one JSON document into another, both as encoding/json
// writes them.
func (d differ) value(path string, from, to []byte) differ {
	if bytes.Equal(from, to) {
		return d
	}
	if from[0] == to[0] { // of two texts, numbers or words it makes no difference
		switch from[0] {
		case '{':
			return d.object(path, members(from), members(to))
		case '[':
			return d.array(path, elements(from), elements(to))
		}
	}
	return append(d, operation{"replace", path, to})
}

func (d differ) object(path string, from, to map[string]json.RawMessage) differ {
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

// array leaves alone what both have at their begin and end, so that a card
// taken out of a hand is one operation; what is between is changed in place.
func (d differ) array(path string, from, to []json.RawMessage) differ {
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

// pointer writes a member's name as a part of a path, RFC 6901.
func pointer(name string) string { return "/" + escape.Replace(name) }

func members(object []byte) (m map[string]json.RawMessage) {
	if json.Unmarshal(object, &m) != nil {
		panic("multiplayer: a view is JSON")
	}
	return m
}

func elements(array []byte) (e []json.RawMessage) {
	if json.Unmarshal(array, &e) != nil {
		panic("multiplayer: a view is JSON")
	}
	return e
}
