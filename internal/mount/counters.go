package mount

import (
	"context"
	"maps"
	"runtime/pprof"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Provoked is called, if it is set, with each refusal of a row. Only package internal/provoked sets
// it, before anything serves.
var Provoked func(method, path, domain, code string)

// counters are what rows have counted since the process began, without any SDK.
type counters struct {
	mu       sync.Mutex
	rows     []*row
	refusals map[string]*atomic.Int64
}

// tally is what one row has counted.
type tally struct {
	requests, failures, nanos atomic.Int64
}

// Count is the responses of a row since the process began.
type Count struct {
	Method, Path string
	// Requests counts all of them, Failures those with a status of 500 and above.
	Requests, Failures int64
	// Took is the time that all requests took together.
	Took time.Duration
}

// add counts one response of a row, which is nil where none matched.
func (c *counters) add(r *row, status int, took time.Duration, code string) {
	if r != nil {
		r.tally.requests.Add(1)
		r.tally.nanos.Add(int64(took))
		if status >= 500 {
			r.tally.failures.Add(1)
		}
	}
	if code == "" {
		return
	}
	c.refused(code).Add(1)
	if Provoked != nil && r != nil {
		Provoked(r.entry.Route.Method, r.entry.Route.Path, r.entry.Domain, code)
	}
}

func (c *counters) refused(code string) *atomic.Int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.refusals == nil {
		c.refusals = make(map[string]*atomic.Int64)
	}
	n := c.refusals[code]
	if n == nil { // codes are those of the tables, so there are few
		n = new(atomic.Int64)
		c.refusals[code] = n
	}
	return n
}

// Counts lists the rows that have been called, in the order of the table, and
// the refusals by code.
func (m *Mount) Counts() (rows []Count, refusals map[string]int64) {
	m.counts.mu.Lock()
	defer m.counts.mu.Unlock()
	for _, r := range m.counts.rows {
		if n := r.tally.requests.Load(); n > 0 {
			rows = append(rows, Count{r.entry.Route.Method, r.entry.Route.Path, n, r.tally.failures.Load(), time.Duration(r.tally.nanos.Load())})
		}
	}
	refusals = make(map[string]int64)
	for _, code := range slices.Sorted(maps.Keys(m.counts.refusals)) {
		refusals[code] = m.counts.refusals[code].Load()
	}
	return rows, refusals
}

// labelled makes profiles tell the rows apart. The labels are made once, so that
// a request only points at them.
func (r *row) labelled() context.Context {
	return pprof.WithLabels(context.Background(), pprof.Labels(
		"http.route", r.entry.Route.Method+" "+r.entry.Route.Path, "kit.capability", r.entry.Domain))
}
