package auth

import (
	"net/http"
	"strings"
	"time"

	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/internal/rate"
)

// libraryTable finds the row of a request.
type libraryTable struct {
	routes   []LibraryRoute
	segments [][]string
	limiters map[string]*rate.Limiter
	// wide holds the limiters of /48s of IPv6, in which one party has 65,536 networks.
	wide map[string]*rate.Limiter
}

func newLibraryTable(routes []LibraryRoute, limits limits) libraryTable {
	t := libraryTable{routes: routes, limiters: make(map[string]*rate.Limiter), wide: make(map[string]*rate.Limiter)}
	for _, r := range routes {
		t.segments = append(t.segments, strings.Split(r.Path, "/"))
		if limiter := limits.class(r.Rate); limiter != nil {
			t.limiters[r.Rate] = limiter
			t.wide[r.Rate] = limits.wide(r.Rate)
		}
	}
	return t
}

// match is a row with the segments of a path that it matched.
type match struct {
	route          LibraryRoute
	pattern, parts []string
}

// find returns the first row of a method and a path below the base path. Refuses
// with kit/not_found and kit/method_not_allowed.
func (t libraryTable) find(method, path string) (match, *capability.Error) {
	parts, refusal := strings.Split(path, "/"), capability.ErrNotFound
	for i, r := range t.routes {
		if !matches(t.segments[i], parts) {
			continue
		}
		if r.Method == method || r.Method == capability.Any {
			return match{r, t.segments[i], parts}, nil
		}
		refusal = capability.ErrMethodNotAllowed
	}
	return match{}, refusal
}

// tell adds the row and its parameters to the request.
func (m match) tell(r *http.Request) {
	r.Pattern = m.route.Path
	for i, segment := range m.pattern {
		if name, ok := strings.CutPrefix(segment, ":"); ok {
			r.SetPathValue(name, m.parts[i])
		}
	}
}

func matches(pattern, parts []string) bool {
	for i, want := range pattern {
		switch {
		case want == "*" && i == len(pattern)-1:
			return len(parts) > i
		case i >= len(parts):
			return false
		case strings.HasPrefix(want, ":"):
			if parts[i] == "" {
				return false
			}
		case want != parts[i]:
			return false
		}
	}
	return len(pattern) == len(parts)
}

// allow takes from the limits of the row's class.
func (t libraryTable) allow(route LibraryRoute, ip string) (wait time.Duration, ok bool) {
	limiter := t.limiters[route.Rate]
	if limiter == nil {
		return 0, true
	}
	if wait, ok := limiter.Allow(rate.AddressKey(ip)); !ok {
		return wait, false
	}
	network := rate.NetworkKey(ip)
	if !strings.Contains(network, ":") {
		return 0, true
	}
	return t.wide[route.Rate].Allow(network)
}
