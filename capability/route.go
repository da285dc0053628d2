package capability

import (
	"net/http"
	"reflect"
	"slices"
	"strings"
)

// Any is the method of a row that takes every method, as one that forwards a whole prefix to
// another handler.
const Any = "ALL"

// Route is one row of the route table. Everything the kit knows about its
// surface (guards, owned paths, manifest, documents, tests) is computed from
// these rows.
type Route struct {
	Method string
	// Path is a pattern: literal segments, :name parameters that match one
	// non-empty segment, and a final * that matches the rest.
	Path  string
	Guard Guard
	// Summary is one sentence for the manifest; required on control-plane routes.
	Summary string
	// MaxBody limits the request body in bytes; 0 means 1 MiB.
	MaxBody int64
	// Rate names the rate class. Empty means "public" for public rows, "webhook"
	// for signed ones, and of the others "read" for GET and HEAD, "write" else.
	Rate string
	// Idempotent makes the route honour the Idempotency-Key header, as [Call.IdempotencyKey]
	// reads it: the response is stored in the transaction of the operation and repeated for 24
	// hours.
	Idempotent bool
	// Refusals are the errors that the handler can refuse with: those of the capability's domain and
	// of its peers, and general ones that do not follow from guard, body and limit. Each is in the
	// Refusals of a composed capability, unless it is of one of the kit's that is not composed.
	Refusals []*Error
	// RefusalBody, when set, returns the body of a refusal of this row, those of the kit's own
	// checks included, for clients that expect another shape than {"error": ...}. The body is
	// encoded as JSON, nil being the kit's own; headers added to h are sent.
	RefusalBody func(h http.Header, refusal *Error, requestID string) any
	// Query lists the query parameters that the handler reads; those of a [List] are added.
	Query []Param
	// Headers lists the request headers that the handler reads.
	Headers []Param
	Handle  Handler
}

// Param describes a query parameter or a header. The handler checks it, except that
// the kit refuses a query value that is not among the Choices with
// kit/invalid_request, unless the handler is raw.
type Param struct {
	Name, Summary string
	Required      bool
	// Choices lists the allowed values of an enumerated one.
	Choices []string
	// Format is the format of JSON Schema, such as "date-time", or "integer"; empty for plain text.
	Format string
}

// The parameters of a handler that reads pages by itself; see [Call.Page].
var (
	LimitParam  = Param{Name: "limit", Summary: "How many items at most; 50 where it is left out.", Format: "integer"}
	CursorParam = Param{Name: "cursor", Summary: "The nextCursor of the page before."}
)

// RateClass returns the class the route is limited by.
func (r Route) RateClass() string {
	switch {
	case r.Rate != "":
		return r.Rate
	case r.Guard.Strategy() == StrategyPublic:
		return "public"
	case r.Guard.Strategy() == StrategySignedWebhook:
		return "webhook"
	case r.Method == http.MethodGet || r.Method == http.MethodHead:
		return "read"
	default:
		return "write"
	}
}

// Mount puts the routes under a prefix: moving the prefix moves all of them.
func Mount(prefix string, routes ...Route) []Route {
	prefix = strings.TrimSuffix(prefix, "/")
	for i := range routes {
		routes[i].Path = prefix + routes[i].Path
	}
	return routes
}

// Reserved lists the literals that compete with a parameter: a currency, board
// or game of such a name could never be reached through these routes.
func Reserved(routes []Route, param string) []string {
	param = ":" + param
	var names []string
	for _, with := range routes {
		head, _, ok := strings.Cut(with.Path, param)
		if !ok {
			continue
		}
		for _, other := range routes {
			rest, ok := strings.CutPrefix(other.Path, head)
			literal, _, _ := strings.Cut(rest, "/")
			if ok && literal != "" && literal[0] != ':' && literal != "*" && !slices.Contains(names, literal) {
				names = append(names, literal)
			}
		}
	}
	return names
}

// None is the type of an absent request or response body.
type None = struct{}

// Handler is the handler of a route. Its constructors keep the types that documents need.
type Handler struct {
	status   int
	in, out  reflect.Type
	list     bool
	optional bool
	socket   bool
	pages    bool
	sends    []reflect.Type
	takes    []reflect.Type
	reply    func(*Call) (any, error)
	raw      func(*Call) error
}

// JSON decodes the body strictly into In, calls f and returns status with Out
// as JSON. [None] as In means that the route takes no body, as Out that the response has none.
// Refuses with kit/invalid_request, kit/unsupported_media_type and kit/body_too_large before f
// runs.
func JSON[In, Out any](status int, f func(*Call, In) (Out, error)) Handler {
	in, out := reflect.TypeFor[In](), reflect.TypeFor[Out]()
	hasIn, hasOut := in != reflect.TypeFor[None](), out != reflect.TypeFor[None]()
	return Handler{status: status, in: in, out: out, reply: func(c *Call) (any, error) {
		var body In
		if hasIn {
			if err := c.decode(&body); err != nil {
				return nil, err
			}
		}
		response, err := f(c, body)
		if err != nil || !hasOut {
			return nil, err
		}
		return response, nil
	}}
}

// OptionalJSON is [JSON] for a body that may be absent: f then gets the zero In.
func OptionalJSON[In, Out any](status int, f func(*Call, In) (Out, error)) Handler {
	h := JSON(status, f)
	h.optional = true
	given := h.reply
	h.reply = func(c *Call) (any, error) {
		body, err := c.Body()
		if err != nil || len(body) > 0 {
			return given(c)
		}
		var none In
		response, err := f(c, none)
		if err != nil || reflect.TypeFor[Out]() == reflect.TypeFor[None]() {
			return nil, err
		}
		return response, nil
	}
	return h
}

// List returns one page of a keyset list as {"items": [...], "nextCursor": ...}.
func List[T any](f func(*Call, Page) (Items[T], error)) Handler {
	return Handler{status: 200, in: reflect.TypeFor[None](), out: reflect.TypeFor[T](), list: true,
		reply: func(c *Call) (any, error) {
			page, err := c.Page()
			if err != nil {
				return nil, err
			}
			items, err := f(c, page)
			if err != nil {
				return nil, err
			}
			if items.Items == nil {
				items.Items = []T{}
			}
			return items, nil
		}}
}

// Raw lets f read the request and write the response itself. An error before anything was written
// is sent as a refusal; a later one closes the connection, so that the response does not look
// complete.
func Raw(f func(*Call) error) Handler { return Handler{raw: f} }

// Socket is Raw for a WebSocket upgrade; the kit has checked the Origin of a
// cookie-proved request before f runs.
func Socket(f func(*Call) error) Handler { return Handler{raw: f, socket: true} }

// Sends names the types of the frames that a socket sends, as values, for documents.
func (h Handler) Sends(frames ...any) Handler { h.sends = typesOf(frames); return h }

// Takes names the types of the frames that a socket takes, as values, for documents.
func (h Handler) Takes(frames ...any) Handler { h.takes = typesOf(frames); return h }

func typesOf(values []any) (types []reflect.Type) {
	for _, v := range values {
		types = append(types, reflect.TypeOf(v))
	}
	return types
}

// Frames returns the types of the frames of a socket.
func (h Handler) Frames() (sends, takes []reflect.Type) { return h.sends, h.takes }

// Pages marks a raw handler, for documents, as one that shows refusals as HTML pages, because
// people follow links to it. On the zero Handler it marks a row of the sign-in library whose
// response may be a page.
func (h Handler) Pages() Handler { h.pages = true; return h }

// ShowsPages reports whether the handler may show a refusal of its row as a page.
func (h Handler) ShowsPages() bool { return h.pages }

// Valid reports whether the handler came from a constructor.
func (h Handler) Valid() bool { return h.reply != nil || h.raw != nil }

// IsRaw reports whether the handler writes the response itself.
func (h Handler) IsRaw() bool { return h.raw != nil }

// IsSocket reports whether the handler upgrades to a WebSocket.
func (h Handler) IsSocket() bool { return h.socket }

// IsList reports whether the handler returns a page of a keyset list.
func (h Handler) IsList() bool { return h.list }

// IsOptional reports whether the request body may be left out.
func (h Handler) IsOptional() bool { return h.optional }

// Status returns the status of success, 0 for raw handlers.
func (h Handler) Status() int { return h.status }

// Repeated is implemented by the response of a row that creates something. If Repeated returns
// true, it existed already, and the status is 200 instead of the row's.
type Repeated interface{ Repeated() bool }

// StatusOf returns the status of success of a value that the handler returned.
func (h Handler) StatusOf(response any) int {
	if r, ok := response.(Repeated); ok && r.Repeated() {
		return http.StatusOK
	}
	return h.status
}

// MayRepeat reports whether responses of the handler are [Repeated].
func (h Handler) MayRepeat() bool {
	return h.out != nil && h.out.Implements(reflect.TypeFor[Repeated]())
}

// Types returns the types of the request body and of the response, nil for raw
// handlers; of a list, the response's type is that of one item.
func (h Handler) Types() (in, out reflect.Type) { return h.in, h.out }

// Reply runs a handler that returns a value; the kit writes it.
func (h Handler) Reply(c *Call) (any, error) {
	if err := c.checkChoices(); err != nil {
		return nil, err
	}
	return h.reply(c)
}

// Raw runs a handler that writes the response itself.
func (h Handler) Raw(c *Call) error { return h.raw(c) }
