package mount

import "strings"

// Owned is the set of paths of the table, by their patterns.
type Owned struct {
	prefix string
	// byHead keeps patterns by their first literal segment; "" holds those
	// that begin with a parameter.
	byHead map[string][][]string
}

// NewOwned computes the set from the rows of the table, mounted under a prefix.
func NewOwned(prefix string, entries []Entry) *Owned {
	o := &Owned{prefix: strings.TrimSuffix(prefix, "/"), byHead: make(map[string][][]string)}
	for _, e := range entries {
		pattern := strings.Split(strings.TrimPrefix(e.Route.Path, "/"), "/")
		head := pattern[0]
		if isParam(head) {
			head = ""
		}
		o.byHead[head] = append(o.byHead[head], pattern)
	}
	return o
}

// Has reports whether the kit serves this path, whatever the method. The path
// is as the application's router sees it, the mount path included.
func (o *Owned) Has(path string) bool {
	if inner, ok := under(o.prefix, path); ok {
		path = inner
	} else if o.prefix != "" {
		return false
	}
	path = strings.TrimPrefix(path, "/")
	head, _, _ := strings.Cut(path, "/")
	for _, pattern := range o.byHead[head] {
		if matches(pattern, path) {
			return true
		}
	}
	for _, pattern := range o.byHead[""] {
		if matches(pattern, path) {
			return true
		}
	}
	return false
}

func matches(pattern []string, path string) bool {
	for i, want := range pattern {
		if want == "*" {
			return true
		}
		segment, rest, more := strings.Cut(path, "/")
		if segment == "" || (!isParam(want) && segment != want) {
			return false
		}
		if last := i == len(pattern)-1; last || !more {
			return last && !more
		}
		path = rest
	}
	return false
}

func isParam(segment string) bool {
	return strings.HasPrefix(segment, ":") || segment == "*"
}
