package openapi

import (
	"cmp"
	"hash/fnv"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/kitbackend/kit/capability"
)

// Refusals returns what a row can refuse with, ordered by status and code, each once: the codes it
// declares, and those that follow from its guard, its body and its rate class.
func Refusals(row Row) []*capability.Error {
	r := row.Route
	list := []*capability.Error{capability.ErrInvalidRequest, capability.ErrInternal, capability.ErrUnavailable}
	list = append(list, guardRefusals(r)...)
	list = append(list, bodyRefusals(r)...)
	if row.Library == nil && (strings.Contains(r.Path, ":") || strings.HasSuffix(r.Path, "*")) {
		list = append(list, capability.ErrNotFound)
	}
	if row.Limited {
		list = append(list, capability.ErrRateLimited)
	}
	if r.Idempotent {
		list = append(list, capability.ErrIdempotencyConflict)
	}
	list = append(list, r.Refusals...)
	if row.Library != nil {
		for i, e := range list {
			list[i] = row.Library.Word(e)
		}
	}
	slices.SortStableFunc(list, func(a, b *capability.Error) int {
		return cmp.Or(cmp.Compare(a.Status, b.Status), cmp.Compare(a.Code, b.Code))
	})
	return slices.CompactFunc(list, func(a, b *capability.Error) bool { return a.Code == b.Code && a.Status == b.Status })
}

func guardRefusals(r capability.Route) []*capability.Error {
	g := r.Guard
	switch g.Strategy() {
	case capability.StrategyUser, capability.StrategySession, capability.StrategyBearer:
		list := []*capability.Error{capability.ErrUnauthenticated}
		if g.Strategy() != capability.StrategyBearer && (needsCSRF(r) || r.Handle.IsSocket()) {
			list = append(list, capability.ErrCSRF)
		}
		if g.Scope() != "" || g.Note() != "" { // the handler decides a condition
			list = append(list, capability.ErrInsufficientScope)
		}
		return list
	case capability.StrategyControlPlane:
		list := []*capability.Error{capability.ErrNotConnected, capability.ErrInvalidCredential}
		if g.Scope() != "" {
			list = append(list, capability.ErrControlPlaneScope)
		}
		return list
	case capability.StrategySignedWebhook:
		return []*capability.Error{capability.ErrInvalidSignature}
	case capability.StrategyPublic:
		var list []*capability.Error
		if g.Identifies() && r.Handle.Valid() { // for an expired or revoked token
			list = append(list, capability.ErrUnauthenticated)
		}
		if g.CSRF() {
			list = append(list, capability.ErrCSRF)
		}
		return list
	default:
		return nil
	}
}

func bodyRefusals(r capability.Route) []*capability.Error {
	in, _ := r.Handle.Types()
	switch {
	case in != nil && in != noneType:
		return []*capability.Error{capability.ErrBodyTooLarge, capability.ErrUnsupportedMediaType}
	case r.Guard.Strategy() == capability.StrategySignedWebhook, // the signature covers the body
		r.Idempotent, // the fingerprint of a key covers the body
		in == nil && r.Method != http.MethodGet && r.Method != http.MethodHead:
		return []*capability.Error{capability.ErrBodyTooLarge}
	default:
		return nil
	}
}

// refuse adds a response for each status, with its codes.
func (b *builder) refuse(op *operation, row Row, refusals []*capability.Error) {
	r := row.Route
	byStatus := make(map[int][]*capability.Error)
	op.Codes = []string{}
	for _, e := range refusals {
		byStatus[e.Status] = append(byStatus[e.Status], e)
		if !slices.Contains(op.Codes, e.Code) {
			op.Codes = append(op.Codes, e.Code)
		}
	}
	name := refusalName
	if row.Library != nil {
		name = libraryRefusalName
	}
	for _, status := range slices.Sorted(maps.Keys(byStatus)) {
		page := r.Handle.ShowsPages() && slices.ContainsFunc(byStatus[status], func(e *capability.Error) bool { return slices.Contains(r.Refusals, e) })
		op.Responses[strconv.Itoa(status)] = &response{Ref: b.refusal(name, status, byStatus[status], page)}
	}
}

// refusal adds the component of a status with these codes, once, and returns a reference to it. Its
// body is of the schema of this name and, if page is true, may also be HTML.
func (b *builder) refusal(body string, status int, refusals []*capability.Error, page bool) string {
	name := strings.TrimSuffix(body, refusalName) + b.componentName(status, refusals)
	if page {
		name += "-Page"
	}
	if b.responses[name] == nil {
		var codes []any
		var text []string
		for _, e := range refusals {
			codes, text = append(codes, e.Code), append(text, e.Code+": "+e.Message)
		}
		refused := &response{Description: strings.Join(text, "\n\n"), Content: map[string]*media{jsonType: {Schema: b.refusalSchema(body, codes)}}}
		if page {
			refused.Content[htmlType] = &media{Schema: &jsonschema.Schema{Type: "string"}}
		}
		if status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable {
			refused.Headers = map[string]string{"Retry-After": "#/components/headers/Retry-After"}
		}
		b.responses[name] = refused
	}
	return "#/components/responses/" + name
}

// componentName returns a name made of the codes, or of a hash of them if there are more than two,
// so that it stays the same when other routes change.
func (b *builder) componentName(status int, refusals []*capability.Error) string {
	var joined strings.Builder
	for i, e := range refusals {
		if b.codeNames[e.Code] == "" {
			b.codeNames[e.Code] = pascal(e.Code)
		}
		if i > 0 {
			joined.WriteByte('-')
		}
		joined.WriteString(b.codeNames[e.Code])
	}
	name := joined.String()
	if len(refusals) > 2 {
		digest := fnv.New64a()
		_, _ = digest.Write([]byte(name)) // a hash does not fail
		name = strconv.FormatUint(digest.Sum64(), 16)
	}
	return "Refused" + strconv.Itoa(status) + "-" + name
}

func (b *builder) refusalSchema(body string, codes []any) *jsonschema.Schema {
	if b.schemas.components[body] == nil {
		b.schemas.components[body] = refusalBody()
		if body == libraryRefusalName {
			b.schemas.components[body] = libraryRefusalBody()
		}
	}
	code := &jsonschema.Schema{Type: "object", Properties: map[string]*jsonschema.Schema{"code": {Type: "string", Enum: codes}}}
	return &jsonschema.Schema{AllOf: []*jsonschema.Schema{
		{Ref: schemaRef + body},
		{Type: "object", Properties: map[string]*jsonschema.Schema{"error": code}},
	}}
}

const (
	refusalName        = "Refusal"
	libraryRefusalName = "SignInRefusal"
)

// libraryRefusalBody is refusalBody for clients that read code and for those that read error.code.
func libraryRefusalBody() *jsonschema.Schema {
	schema := refusalBody()
	inner := schema.Properties["error"]
	inner.Properties["code"].Description = "The code that clients decide by, one of better-auth's."
	inner.Required = []string{"code", "message"}
	schema.Properties["code"] = &jsonschema.Schema{Type: "string", Description: "That of error."}
	schema.Properties["message"] = &jsonschema.Schema{Type: "string", Description: "That of error."}
	schema.PropertyOrder = []string{"code", "message", "error"}
	schema.Required = schema.PropertyOrder
	return schema
}

func refusalBody() *jsonschema.Schema {
	return &jsonschema.Schema{
		Type: "object", Required: []string{"error"},
		Properties: map[string]*jsonschema.Schema{"error": {
			Type: "object", Required: []string{"code", "message", "requestId"},
			Properties: map[string]*jsonschema.Schema{
				"code":      {Type: "string", Description: "The code that clients decide by, of the form domain/reason."},
				"message":   {Type: "string", Description: "A sentence for people."},
				"requestId": {Type: "string", Description: "The id of the request in the log."},
				"details":   anything(),
			},
			PropertyOrder: []string{"code", "message", "requestId", "details"},
		}},
	}
}
