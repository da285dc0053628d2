// Package outbound is the HTTP client of the rails. Whatever a store does, a call ends: each try
// has a deadline, responses are bounded in size, tries are few, with jitter between them and not
// before Retry-After, concurrent calls are bounded, and a store that keeps failing is not called
// for a while.
package outbound

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/kitbackend/kit/internal/local"
	"github.com/kitbackend/kit/internal/wait"
	"github.com/kitbackend/kit/payments"
)

// The bounds of a [Client].
const (
	// Timeout bounds one try, with reading the response.
	Timeout = 10 * time.Second
	// MaxResponse bounds a response, in bytes.
	MaxResponse = 4 << 20
	// Tries is the largest number of tries of a call.
	Tries = 3
	// MaxUnderWay bounds the calls of one client at the same time; more wait.
	MaxUnderWay = 16
	// MaxWait bounds the time between two tries. If Retry-After is longer, the call is not tried
	// again.
	MaxWait = 3 * time.Second

	firstWait = 200 * time.Millisecond
)

// Client calls one rail. It is safe for concurrent use.
type Client struct {
	rail    payments.RailID
	http    *http.Client
	wait    func(context.Context, time.Duration) error
	slots   chan struct{}
	breaker breaker
}

// New returns a client that uses over, or a new client if it is nil. It never follows redirects, so
// that credentials are not sent to another host.
func New(rail payments.RailID, over *http.Client) *Client {
	client := http.Client{}
	if over != nil {
		client = *over
	}
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &Client{rail: rail, http: &client, wait: wait.For, slots: make(chan struct{}, MaxUnderWay)}
}

// Problem is a sentence about invalid credentials, for the person who enters them. It quotes no
// value.
type Problem string

func (p Problem) Error() string { return string(p) }

// CheckBase returns an error unless text is an address for a rail: https, or http on loopback,
// without user, query and fragment.
func CheckBase(text string) error {
	base, err := url.Parse(text)
	if err != nil || base.Host == "" || base.User != nil || base.RawQuery != "" || base.Fragment != "" {
		return errors.New("is not an address like https://api.example.com")
	}
	if base.Scheme != "https" && (base.Scheme != "http" || !local.Host(base.Hostname())) {
		return errors.New("is not https")
	}
	return nil
}

// MustBase returns option, or standard if it is empty. It panics if [CheckBase] refuses the
// address.
func MustBase(rail payments.RailID, option, standard string) string {
	if option == "" {
		return standard
	}
	if err := CheckBase(option); err != nil {
		panic(string(rail) + ": the base address " + err.Error())
	}
	return strings.TrimSuffix(option, "/")
}

// Request is one call.
type Request struct {
	// Now is the clock of the call.
	Now    func() time.Time
	Method string
	// Base is an address without a trailing slash, to which Path is appended unchanged: untrusted
	// parts of it must be escaped by [Segment].
	Base, Path string
	Query      url.Values
	Header     http.Header
	Body       []byte
	// Repeatable says that a second try does no harm: the call only reads, or
	// carries an idempotency key.
	Repeatable bool
}

// Segment escapes one element of a path, dot segments included.
func Segment(text string) string {
	if text == "." || text == ".." {
		return strings.ReplaceAll(text, ".", "%2E")
	}
	return url.PathEscape(text)
}

// Response is the response of a rail, with any status but those of [Unavailable].
type Response struct {
	Status int
	Header http.Header
	Body   []byte
}

// OK reports a status of 200 to 299.
func (a Response) OK() bool { return a.Status >= 200 && a.Status < 300 }

// Unavailable is the error of a call that may succeed later: no connection, no response in time, a
// status of 408, 429 or at least 500, or an open breaker.
type Unavailable struct {
	Rail payments.RailID
	// Status is 0 without a response.
	Status int
	// RetryAfter is how long the rail or the breaker asks to wait; 0 when unknown.
	RetryAfter time.Duration
	Cause      error
}

func (e *Unavailable) Error() string {
	if e.Status != 0 {
		return fmt.Sprintf("%s returned %d", e.Rail, e.Status)
	}
	return fmt.Sprintf("%s is not available: %v", e.Rail, e.Cause)
}

func (e *Unavailable) Unwrap() error { return e.Cause }

// ErrOpen is the cause of an [Unavailable] for a call that was not made, because too many before it
// had failed.
var ErrOpen = errors.New("too many calls have failed")

// errTooLarge is the cause of an [Unavailable] for a response above [MaxResponse].
var errTooLarge = errors.New("the response is too large")

// Do makes a call. Its errors are [payments.Transient] ones and that of a
// canceled context.
func (c *Client) Do(ctx context.Context, r Request) (Response, error) {
	response, err := c.do(ctx, r)
	var failed *Unavailable
	if errors.As(err, &failed) {
		err = payments.Transient(failed, failed.RetryAfter)
	}
	return response, err
}

// JSON makes a call and decodes a response of status 200 to 299. Other statuses
// are no error.
func (c *Client) JSON(ctx context.Context, r Request, into any) (Response, error) {
	response, err := c.Do(ctx, r)
	if err != nil || !response.OK() || into == nil {
		return response, err
	}
	if err := json.Unmarshal(response.Body, into); err != nil {
		return response, payments.Transient(fmt.Errorf("%s: the response is not the JSON it should be", c.rail), 0)
	}
	return response, nil
}

// Unexpected returns the error for a status that the caller does not handle, such as that of wrong
// credentials.
func (c *Client) Unexpected(a Response) error {
	return fmt.Errorf("%s returned %d", c.rail, a.Status)
}

func (c *Client) do(ctx context.Context, r Request) (Response, error) {
	select {
	case c.slots <- struct{}{}:
		defer func() { <-c.slots }()
	case <-ctx.Done():
		return Response{}, c.unavailable(ctx, ctx.Err())
	}
	pause := firstWait
	for try := 1; ; try++ {
		response, err := c.once(ctx, r)
		var failed *Unavailable
		if !errors.As(err, &failed) || errors.Is(err, ErrOpen) {
			return response, err
		}
		again := r.Repeatable || failed.Status == http.StatusTooManyRequests
		wait := max(failed.RetryAfter, pause/2+rand.N(pause/2+1))
		if !again || try == Tries || wait > MaxWait || !fits(ctx, wait) || c.wait(ctx, wait) != nil {
			return response, err
		}
		pause *= 2
	}
}

// fits reports whether there is time left after a wait; contexts carry real time.
func fits(ctx context.Context, wait time.Duration) bool {
	deadline, ok := ctx.Deadline()
	return !ok || time.Until(deadline) > wait
}

func (c *Client) once(ctx context.Context, r Request) (Response, error) {
	if left := c.breaker.enter(r.Now()); left > 0 {
		return Response{}, &Unavailable{Rail: c.rail, RetryAfter: left, Cause: ErrOpen}
	}
	response, err := c.try(ctx, r)
	switch {
	case err == nil || errors.Is(err, errRequest):
		c.breaker.succeed()
	case errors.Is(ctx.Err(), context.Canceled):
		c.breaker.leave() // the caller went away: that says nothing about the rail
	default:
		c.breaker.fail(r.Now(), err)
	}
	return response, err
}

// errRequest reports a request that cannot be built, which is no failure of the rail.
var errRequest = errors.New("the request cannot be made")

func (c *Client) try(ctx context.Context, r Request) (Response, error) {
	within, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	request, err := http.NewRequestWithContext(within, cmp.Or(r.Method, http.MethodGet), target(r), bytes.NewReader(r.Body))
	if err != nil {
		return Response{}, fmt.Errorf("%s: %w", c.rail, errRequest)
	}
	for name, values := range r.Header {
		request.Header[name] = values
	}
	request.Header.Set("Accept", "application/json")
	request.Header.Set("User-Agent", "kit-payments")
	got, err := c.http.Do(request)
	if err != nil {
		return Response{}, c.unavailable(ctx, err)
	}
	defer got.Body.Close()
	body, err := io.ReadAll(io.LimitReader(got.Body, MaxResponse+1))
	if err == nil && len(body) > MaxResponse {
		err = errTooLarge
	}
	if err != nil {
		return Response{}, c.unavailable(ctx, err)
	}
	response := Response{Status: got.StatusCode, Header: got.Header, Body: body}
	if s := response.Status; s >= 500 || s == http.StatusTooManyRequests || s == http.StatusRequestTimeout {
		return response, &Unavailable{Rail: c.rail, Status: s, RetryAfter: wait.Told(got.Header, r.Now(), time.Hour)}
	}
	return response, nil
}

func target(r Request) string {
	if len(r.Query) == 0 {
		return r.Base + r.Path
	}
	return r.Base + r.Path + "?" + r.Query.Encode()
}

// unavailable removes the address from an error of the HTTP client, because paths contain tokens
// that prove a purchase.
func (c *Client) unavailable(ctx context.Context, err error) error {
	if errors.Is(ctx.Err(), context.Canceled) {
		return ctx.Err()
	}
	var at *url.Error
	if errors.As(err, &at) {
		err = at.Err
	}
	return &Unavailable{Rail: c.rail, Cause: err}
}
