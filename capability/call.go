package capability

import (
	"context"
	"errors"
	"io"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/kitbackend/kit/internal/strictjson"
)

// DefaultMaxBody limits a request body when the route says nothing else, in bytes.
const DefaultMaxBody = 1 << 20

// Call is one guarded request on its way through a handler.
type Call struct {
	// Caller is the user or machine that the guard identified.
	Caller Caller
	// Recheck verifies the caller's credential again, for a socket, which outlives its request. It
	// is nil for a request without one.
	Recheck func(context.Context) error
	info    *RequestInfo
	route   *Route
	w       http.ResponseWriter
	r       *http.Request
	param   func(name string) string
	query   url.Values
	body    []byte
	read    bool
}

// NewCall returns a call; it is for internal/mount. param returns an unescaped path parameter.
func NewCall(w http.ResponseWriter, r *http.Request, route *Route, info *RequestInfo, param func(string) string) *Call {
	return &Call{Caller: info.Caller, info: info, route: route, w: w, r: r, param: param}
}

// Context returns the request's context. It is canceled when the client disconnects, and carries
// the [RequestInfo].
func (c *Call) Context() context.Context { return c.r.Context() }

// Request returns the request as received, its body limited.
func (c *Call) Request() *http.Request { return c.r }

// In returns the call with another context, such as a transaction's.
func (c *Call) In(ctx context.Context) *Call {
	inner := *c
	inner.r = c.r.WithContext(ctx)
	return &inner
}

// Writer returns the response writer, for raw handlers.
func (c *Call) Writer() http.ResponseWriter { return c.w }

// RequestID returns the id of this request in the X-Request-Id header and in the log: one that the
// kit made, or that a trusted proxy sent.
func (c *Call) RequestID() string { return c.info.RequestID }

// Param returns a path parameter, unescaped, never empty.
func (c *Call) Param(name string) string { return c.param(name) }

// Query returns the first value of a query parameter, or "".
func (c *Call) Query(name string) string {
	if c.query == nil {
		if c.r.URL.RawQuery == "" {
			return ""
		}
		c.query = c.r.URL.Query()
	}
	return c.query.Get(name)
}

// checkChoices refuses a query parameter that is none of its choices.
func (c *Call) checkChoices() error {
	for _, q := range c.route.Query {
		if text := c.Query(q.Name); text != "" && len(q.Choices) > 0 && !slices.Contains(q.Choices, text) {
			return ErrInvalidRequest.Saying("%s is one of %s.", q.Name, strings.Join(q.Choices, ", "))
		}
	}
	return nil
}

// Time returns a query parameter that is a time (RFC 3339), the zero one where it
// is left out. Refuses with kit/invalid_request.
func (c *Call) Time(name string) (at time.Time, err error) {
	if text := c.Query(name); text != "" {
		if at, err = time.Parse(time.RFC3339, text); err != nil {
			return time.Time{}, ErrInvalidRequest.Saying("%s is a time such as 2026-11-21T12:00:00Z.", name)
		}
	}
	return at, nil
}

// maxIdempotencyKey bounds an Idempotency-Key, in bytes.
const maxIdempotencyKey = 255

// IdempotencyKey returns the header Idempotency-Key, or "" if the request has none. Refuses with
// kit/invalid_request a header that is present more than once or is not 1 to 255 visible ASCII
// characters: a client that sends an empty one believes that its repetitions count once.
func (c *Call) IdempotencyKey() (string, error) {
	keys := c.r.Header["Idempotency-Key"]
	if len(keys) == 0 {
		return "", nil
	}
	key := keys[0]
	invisible := func(r rune) bool { return r <= ' ' || r > '~' }
	if len(keys) > 1 || key == "" || len(key) > maxIdempotencyKey || strings.ContainsFunc(key, invisible) {
		return "", ErrInvalidRequest.Saying("Idempotency-Key is 1 to %d visible ASCII characters.", maxIdempotencyKey)
	}
	return key, nil
}

// Body reads the exact bytes received, at most the route's limit. The kit refuses a body that
// arrives too slowly.
func (c *Call) Body() ([]byte, error) {
	if c.read {
		return c.body, nil
	}
	if c.r.Body == nil || c.r.Body == http.NoBody {
		return nil, nil
	}
	if c.r.ContentLength > c.maxBody() {
		return nil, BodyOver(c.maxBody())
	}
	body, err := io.ReadAll(http.MaxBytesReader(c.w, c.r.Body, c.maxBody()))
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		return nil, BodyOver(tooLarge.Limit)
	case err != nil:
		return nil, ErrInvalidRequest.Saying("The body could not be read.").Because(err)
	}
	c.body, c.read = body, true
	return body, nil
}

func (c *Call) maxBody() int64 {
	if c.route.MaxBody > 0 {
		return c.route.MaxBody
	}
	return DefaultMaxBody
}

// decode reads a JSON body strictly.
func (c *Call) decode(into any) error {
	body, err := c.Body()
	if err != nil {
		return err
	}
	if !isJSON(c.r.Header.Get("Content-Type")) {
		return ErrUnsupportedMediaType
	}
	if err := strictjson.Decode(body, into); err != nil {
		return ErrInvalidRequest.Saying("%s", err.Error())
	}
	return nil
}

func isJSON(contentType string) bool {
	if contentType == "application/json" {
		return true
	}
	kind, params, err := mime.ParseMediaType(contentType)
	if err != nil || kind != "application/json" {
		return false
	}
	charset, named := params["charset"]
	return !named || strings.EqualFold(charset, "utf-8")
}
