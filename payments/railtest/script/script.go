// Package script holds what the scripted stores of the rails share: what is
// bought, what they deliver, and how a rail reaches them without a network.
package script

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"time"
)

// The errors of a store that cannot pay a session.
var (
	ErrNoSession = errors.New("there is no such session in this store; sessions of an earlier run are not kept")
	ErrPaid      = errors.New("the session is paid already")
)

// Purchase is what somebody buys at a scripted store.
type Purchase struct {
	// ProductID, PriceID and BasePlanID are the store's names of it.
	ProductID, PriceID, BasePlanID string
	// AccountToken stands for the buyer, "" when nobody said.
	AccountToken string
	// CustomerID is who buys, where the store has customers; "" is a new one.
	CustomerID string
	// AmountMinor is what is charged, by default 999; Currency is by default "USD".
	AmountMinor int64
	Currency    string
	// Period is that of a subscription, by default 30 days.
	Period time.Duration
	// Trial is how long it is free at first.
	Trial time.Duration
	// IntroMinor is what the first period costs where the store knows introductory
	// offers; 0 is the same as the others.
	IntroMinor int64
	Quantity   int64
	// Consumable and NonRenewing say which kind of single purchase it is where the
	// store knows kinds; Shared is a family member's.
	Consumable, NonRenewing, Shared bool
}

// Defaults fills in what was not said.
func (p Purchase) Defaults() Purchase {
	if p.AmountMinor == 0 {
		p.AmountMinor = 999
	}
	if p.Currency == "" {
		p.Currency = "USD"
	}
	if p.Period == 0 {
		p.Period = 30 * 24 * time.Hour
	}
	if p.Quantity == 0 {
		p.Quantity = 1
	}
	return p
}

// Delivery is a webhook as it arrives.
type Delivery struct {
	Header http.Header
	Body   []byte
}

// Request makes the request that delivers it.
func (d Delivery) Request(address string) *http.Request {
	r, err := http.NewRequest(http.MethodPost, address, bytes.NewReader(d.Body))
	if err != nil {
		panic(err) // the caller's address
	}
	r.Header = d.Header.Clone()
	if r.Header == nil {
		r.Header = http.Header{}
	}
	r.Header.Set("Content-Type", "application/json")
	return r
}

// Client reaches a handler without a network, whatever the host.
func Client(h http.Handler) *http.Client { return &http.Client{Transport: transport{h}} }

type transport struct{ handler http.Handler }

func (t transport) RoundTrip(r *http.Request) (*http.Response, error) {
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	served := r.Clone(r.Context())
	if served.Body == nil {
		served.Body = io.NopCloser(bytes.NewReader(nil))
	}
	recorder := httptest.NewRecorder()
	t.handler.ServeHTTP(recorder, served)
	response := recorder.Result()
	response.Request = r
	return response, nil
}

// Counter draws ids in order: deterministic, and of one length for each prefix.
type Counter struct {
	mu sync.Mutex
	n  int
}

// Next returns an id with a prefix.
func (c *Counter) Next(prefix string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.n++
	text := strconv.Itoa(c.n)
	return prefix + "0000000000000000"[:16-len(text)] + text
}

// Object is a JSON object of a store.
type Object = map[string]any

// Copy returns an object of its own, as JSON has it.
func Copy(o Object) Object {
	var copied Object
	if err := json.Unmarshal(Encode(o), &copied); err != nil {
		panic(err) // what was encoded decodes
	}
	return copied
}

// Encode returns a value as JSON.
func Encode(v any) []byte {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err) // plain data encodes
	}
	return text
}

// Reply responds with JSON.
func Reply(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(Encode(v)) // to a client that has gone
}

// Faults are what a store is told to do wrong. It is safe for concurrent use.
type Faults struct {
	mu    sync.Mutex
	queue []int
	down  bool
	calls int
}

// Fail makes the next calls fail with statuses.
func (f *Faults) Fail(statuses ...int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.queue = append(f.queue, statuses...)
}

// Down makes all calls fail, or none.
func (f *Faults) Down(down bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.down = down
}

// Calls counts the calls so far.
func (f *Faults) Calls() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.calls
}

// Serve reports whether a call was made to fail.
func (f *Faults) Serve(w http.ResponseWriter) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls++
	status := 0
	if f.down {
		status = http.StatusServiceUnavailable
	}
	if len(f.queue) > 0 {
		status, f.queue = f.queue[0], f.queue[1:]
	}
	if status == 0 {
		return false
	}
	Reply(w, status, Object{"error": Object{"code": "scripted"}})
	return true
}
