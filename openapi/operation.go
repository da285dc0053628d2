package openapi

import (
	"cmp"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/kitbackend/kit/capability"
)

// builder collects the components that operations share.
type builder struct {
	schemas   *schemas
	responses map[string]*response
	tags      map[string]bool
	codeNames map[string]string // the part of a component's name for each code
}

func (b *builder) operation(row Row, method string, params []string) (*operation, error) {
	r := row.Route
	r.Method = method
	b.tags[row.Capability] = true
	op := &operation{
		ID:          operationID(method, r.Path),
		Summary:     strings.TrimSuffix(r.Summary, "."),
		Description: describe(r),
		Tags:        []string{row.Capability},
		Security:    security(row),
		Guard:       r.Guard.Strategy().String(),
		Scope:       r.Guard.Scope(),
		Rate:        r.RateClass(),
		Socket:      r.Handle.IsSocket(),
		Responses:   make(map[string]*response),
	}
	row.Route = r
	var err error
	if op.Frames, err = b.frames(r); err != nil {
		return nil, err
	}
	op.Parameters = parameters(r, params)
	if row.Library != nil {
		err = b.library(op, r, row.Library)
	} else if err = b.body(op, r); err == nil {
		err = b.success(op, r)
	}
	if err != nil {
		return nil, err
	}
	b.refuse(op, row, Refusals(row))
	return op, nil
}

// describe returns what the structure of the document cannot express.
func describe(r capability.Route) string {
	var notes []string
	if note := r.Guard.Note(); note != "" {
		if r.Guard.Strategy() == capability.StrategyPublic {
			note = "Public: " + note
		}
		notes = append(notes, note+".")
	}
	if r.Guard.Strategy() == capability.StrategySignedWebhook {
		notes = append(notes, "The sender signs the exact bytes of the body.")
	}
	if strings.HasSuffix(r.Path, "*") {
		notes = append(notes, "The last parameter is the rest of the path and may contain slashes.")
	}
	if r.Handle.IsSocket() {
		notes = append(notes, "This is a WebSocket upgrade; a page may send its access token as the subprotocol kit.bearer.TOKEN.")
	}
	return strings.Join(notes, " ")
}

// security returns the ways to authenticate, any one of which is enough.
func security(row Row) []requirement {
	g := row.Route.Guard
	bearer := requirement{"bearer": {}}
	session := requirement{"session": {}}
	if needsCSRF(row.Route) {
		session["csrf"] = []string{}
	}
	switch g.Strategy() {
	case capability.StrategyUser:
		if g.Scope() != "" { // a session carries no scope
			return []requirement{{"bearer": {g.Scope()}}}
		}
		return []requirement{bearer, session}
	case capability.StrategyBearer:
		return []requirement{bearer}
	case capability.StrategySession:
		return []requirement{session}
	case capability.StrategyControlPlane:
		if g.Scope() == "" {
			return []requirement{{"controlPlane": {}}}
		}
		return []requirement{{"controlPlane": {g.Scope()}}}
	case capability.StrategySignedWebhook:
		if row.Capability == "kit" {
			return []requirement{{"signature": {}}}
		}
		return []requirement{}
	case capability.StrategyPublic:
		if g.Identifies() {
			return []requirement{{}, bearer, session}
		}
		return []requirement{}
	default:
		return []requirement{}
	}
}

// needsCSRF reports whether the session cookie is valid only with the CSRF token.
func needsCSRF(r capability.Route) bool {
	return r.Guard.CSRF() || r.Method != http.MethodGet && r.Method != http.MethodHead
}

func schemes(cookie string) map[string]*scheme {
	return map[string]*scheme{
		"bearer":       {Type: "http", Scheme: "bearer", BearerFormat: "JWT", Description: "A user's access token."},
		"controlPlane": {Type: "http", Scheme: "bearer", BearerFormat: "JWT", Description: "A machine credential that is valid for one call, with exactly the scope of the route."},
		"session":      {Type: "apiKey", In: "cookie", Name: cmp.Or(cookie, "kit_session"), Description: "A user's session in a browser."},
		"csrf":         {Type: "apiKey", In: "header", Name: "X-CSRF-Token", Description: "Proves that a request with the session cookie comes from the application's own page."},
		"signature":    {Type: "apiKey", In: "header", Name: "Kit-Signature", Description: "The sender's proof, t=SECONDS,v1=HEX, over the time and the exact bytes of the body."},
	}
}

func responseHeaders() map[string]*header {
	return map[string]*header{
		"Retry-After":          {"When to try again, in seconds.", &jsonschema.Schema{Type: "integer"}},
		"Idempotency-Replayed": {"The response is that of the first request with this key.", &jsonschema.Schema{Type: "string", Enum: []any{"true"}}},
	}
}

const maxParam = 512

func parameters(r capability.Route, names []string) []*parameter {
	var list []*parameter
	for _, name := range names {
		schema := &jsonschema.Schema{Type: "string", MinLength: jsonschema.Ptr(1)}
		if name != restParam {
			schema.MaxLength = jsonschema.Ptr(maxParam)
		}
		list = append(list, &parameter{Name: name, In: "path", Required: true, Schema: schema})
	}
	query := r.Query
	if r.Handle.IsList() {
		query = append(slices.Clone(query), capability.LimitParam, capability.CursorParam)
	}
	for _, q := range query {
		list = append(list, &parameter{Name: q.Name, In: "query", Required: q.Required, Description: q.Summary, Schema: paramSchema(q)})
	}
	for _, h := range r.Headers {
		list = append(list, &parameter{Name: h.Name, In: "header", Required: h.Required, Description: h.Summary, Schema: paramSchema(h)})
	}
	if r.Idempotent {
		list = append(list, &parameter{Name: "Idempotency-Key", In: "header",
			Description: "The response to the first request with this key is repeated for 24 hours.",
			Schema:      &jsonschema.Schema{Type: "string", MinLength: jsonschema.Ptr(1), MaxLength: jsonschema.Ptr(255), Pattern: "^[!-~]+$"}})
	}
	return list
}

func paramSchema(q capability.Param) *jsonschema.Schema {
	schema := &jsonschema.Schema{Type: "string", Enum: choices(q.Choices)}
	switch {
	case q.Format == "integer":
		schema = &jsonschema.Schema{Type: "integer", Minimum: jsonschema.Ptr(1.0), Maximum: jsonschema.Ptr(float64(capability.MaxLimit))}
	case q.Format != "":
		schema.Format = q.Format
	}
	return schema
}

func choices(values []string) (list []any) {
	for _, v := range values {
		list = append(list, v)
	}
	return list
}

// frames describes what a socket sends and receives: one of these types, distinguished by the
// member type.
func (b *builder) frames(r capability.Route) (*frames, error) {
	if !r.Handle.IsSocket() {
		return nil, nil
	}
	sends, takes := r.Handle.Frames()
	var f frames
	for _, side := range []struct {
		types []reflect.Type
		into  *[]*jsonschema.Schema
		way   direction
	}{{sends, &f.Sends, returned}, {takes, &f.Takes, request}} {
		for _, t := range side.types {
			schema, err := b.schemas.of(t, side.way)
			if err != nil {
				return nil, err
			}
			*side.into = append(*side.into, schema)
		}
	}
	return &f, nil
}

const (
	jsonType = "application/json"
	htmlType = "text/html"
	formType = "application/x-www-form-urlencoded"
)

func (b *builder) body(op *operation, r capability.Route) error {
	in, _ := r.Handle.Types()
	content := map[string]*media{}
	switch {
	case in == noneType || r.Handle.IsSocket(), in == nil && (r.Method == http.MethodGet || r.Method == http.MethodHead):
		return nil
	case in != nil:
		schema, err := b.schemas.of(in, request)
		if err != nil {
			return err
		}
		content[jsonType] = b.media(schema)
	case r.Handle.IsRaw():
		content["*/*"] = &media{Schema: anything()}
	default:
		content[jsonType] = &media{Schema: anything()}
	}
	op.Body = &requestBody{Required: in != nil && !r.Handle.IsOptional(), Content: content}
	op.MaxBody = cmp.Or(r.MaxBody, capability.DefaultMaxBody)
	return nil
}

func (b *builder) success(op *operation, r capability.Route) error {
	_, out := r.Handle.Types()
	switch {
	case r.Handle.IsSocket():
		op.Responses["101"] = &response{Description: "The connection is a WebSocket."}
		return nil
	case r.Handle.IsRaw():
		op.Responses["default"] = &response{Description: "Written by the handler itself."}
		return nil
	}
	success := &response{Description: http.StatusText(r.Handle.Status())}
	if r.Idempotent {
		success.Headers = map[string]string{"Idempotency-Replayed": "#/components/headers/Idempotency-Replayed"}
	}
	if out != noneType {
		schema, err := b.schemas.of(out, returned)
		if err != nil {
			return err
		}
		if r.Handle.IsList() {
			schema = page(schema)
		}
		success.Content = map[string]*media{jsonType: b.media(schema)}
	}
	op.Responses[strconv.Itoa(r.Handle.Status())] = success
	if r.Handle.MayRepeat() {
		repeated := *success
		repeated.Description = http.StatusText(http.StatusOK)
		op.Responses[strconv.Itoa(http.StatusOK)] = &repeated
	}
	return nil
}

// library describes the body and the responses of a row of the sign-in library.
func (b *builder) library(op *operation, r capability.Route, l *Library) error {
	if l.Takes != nil {
		schema, err := b.schemas.of(reflect.TypeOf(l.Takes), lenient)
		if err != nil {
			return err
		}
		op.Body = &requestBody{Required: len(b.schemas.resolved(schema).Required) > 0, Content: map[string]*media{jsonType: b.media(schema)}}
	} else if r.Method != http.MethodGet {
		op.Body = &requestBody{Content: map[string]*media{jsonType: {Schema: anything()}}}
	}
	if op.Body != nil {
		op.MaxBody = cmp.Or(r.MaxBody, capability.DefaultMaxBody)
	}
	if op.Body != nil && r.Handle.ShowsPages() {
		op.Body.Content[formType] = op.Body.Content[jsonType]
	}
	var bodies []*jsonschema.Schema
	for _, value := range l.Returns {
		schema := &jsonschema.Schema{Type: "null"}
		if value != nil {
			var err error
			if schema, err = b.schemas.of(reflect.TypeOf(value), returned); err != nil {
				return err
			}
		}
		bodies = append(bodies, schema)
	}
	success := &response{Description: http.StatusText(http.StatusOK), Content: map[string]*media{}}
	switch len(bodies) {
	case 0:
		success.Content[jsonType] = &media{Schema: anything()}
	case 1:
		success.Content[jsonType] = b.media(bodies[0])
	default:
		success.Content[jsonType] = b.media(&jsonschema.Schema{AnyOf: bodies})
	}
	op.Responses["200"] = success
	if r.Handle.ShowsPages() {
		success.Content[htmlType] = &media{Schema: &jsonschema.Schema{Type: "string"}}
		op.Responses["302"] = &response{Description: "A browser is redirected to the page given in the request."}
	}
	return nil
}

// media returns a JSON body with an example.
func (b *builder) media(schema *jsonschema.Schema) *media {
	return &media{schema, &exampleWriter{schemas: b.schemas}}
}

// page returns the schema of a page of a list.
func page(item *jsonschema.Schema) *jsonschema.Schema {
	return &jsonschema.Schema{
		Type: "object",
		Properties: map[string]*jsonschema.Schema{
			"items":      {Type: "array", Items: item},
			"nextCursor": {Types: []string{"string", "null"}, Description: "Where the next page begins; null on the last."},
		},
		PropertyOrder: []string{"items", "nextCursor"},
		Required:      []string{"items", "nextCursor"},
	}
}

// operationID returns the method and the path in camel case: getLedgerBalanceByCurrency.
func operationID(method, path string) string {
	var id strings.Builder
	id.WriteString(strings.ToLower(method))
	for part := range strings.SplitSeq(path, "/") {
		if name, ok := strings.CutPrefix(part, ":"); ok {
			part = "by-" + name
		} else if part == "*" {
			part = restParam
		}
		id.WriteString(pascal(part))
	}
	return id.String()
}

// pascal joins the words of a text, each with a capital letter.
func pascal(text string) string {
	out := make([]byte, 0, len(text))
	begins := true
	for i := range len(text) {
		c := text[i]
		switch {
		case !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'):
			begins = true
			continue
		case begins && c >= 'a' && c <= 'z':
			c -= 'a' - 'A'
		}
		out, begins = append(out, c), false
	}
	return string(out)
}
