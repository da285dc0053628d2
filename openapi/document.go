package openapi

import (
	"strconv"

	"github.com/google/jsonschema-go/jsonschema"
)

// The parts of the document. Each appends itself in one pass, its members in a fixed order, because
// encoding/json would take most of the time of computing a document.
type (
	document struct {
		Info       info
		Servers    []string // addresses
		Tags       []string // names
		Paths      map[string]map[string]*operation
		Components components
	}
	info       struct{ Title, Version, Description string }
	components struct {
		Schemas         map[string]*jsonschema.Schema
		Responses       map[string]*response
		Headers         map[string]*header
		SecuritySchemes map[string]*scheme
	}
	header struct {
		Description string
		Schema      *jsonschema.Schema
	}
	scheme    struct{ Type, Scheme, BearerFormat, In, Name, Description string }
	operation struct {
		ID, Summary, Description string
		Tags                     []string
		Security                 []requirement
		Parameters               []*parameter
		Body                     *requestBody
		Responses                map[string]*response
		Guard, Scope, Rate       string
		Socket                   bool
		Frames                   *frames
		MaxBody                  int64
		Codes                    []string
	}
	// requirement maps security schemes, all of which are required, to their scopes.
	requirement map[string][]string
	// frames are the frames of a socket except error, ping and pong.
	frames    struct{ Sends, Takes []*jsonschema.Schema }
	parameter struct {
		Name, In    string
		Required    bool
		Description string
		Schema      *jsonschema.Schema
	}
	requestBody struct {
		Required bool
		Content  map[string]*media
	}
	// media is a body. Its example is computed from the schema when the document is written,
	// because only then are all components known.
	media struct {
		Schema  *jsonschema.Schema
		Example *exampleWriter
	}
	// response is a reference to a component, or a response itself.
	response struct {
		Ref         string
		Description string
		Headers     map[string]string // references to components
		Content     map[string]*media
	}
)

func (d document) append(buf []byte) []byte {
	o := begin(buf)
	o.text("openapi", Version)
	o.object("info", func(o *objectWriter) {
		o.always("title", d.Info.Title)
		o.always("version", d.Info.Version)
		o.always("description", d.Info.Description)
	})
	array(o, "servers", d.Servers, func(buf []byte, url string) []byte { return single(buf, "url", url) })
	list(o, "tags", d.Tags, func(buf []byte, name string) []byte { return single(buf, "name", name) })
	o.object("paths", func(o *objectWriter) {
		sorted(o, d.Paths, func(buf []byte, methods map[string]*operation) []byte {
			o := begin(buf)
			sorted(o, methods, appendOperation)
			return o.end()
		})
	})
	o.object("components", func(o *objectWriter) {
		o.object("schemas", func(o *objectWriter) { sorted(o, d.Components.Schemas, appendSchema) })
		o.object("responses", func(o *objectWriter) { sorted(o, d.Components.Responses, appendResponse) })
		o.object("headers", func(o *objectWriter) { sorted(o, d.Components.Headers, appendHeader) })
		o.object("securitySchemes", func(o *objectWriter) { sorted(o, d.Components.SecuritySchemes, appendScheme) })
	})
	return o.end()
}

func appendHeader(buf []byte, h *header) []byte {
	o := begin(buf)
	o.always("description", h.Description)
	o.schema("schema", h.Schema)
	return o.end()
}

func appendScheme(buf []byte, s *scheme) []byte {
	o := begin(buf)
	o.text("type", s.Type)
	o.text("scheme", s.Scheme)
	o.text("bearerFormat", s.BearerFormat)
	o.text("in", s.In)
	o.text("name", s.Name)
	o.always("description", s.Description)
	return o.end()
}

func appendOperation(buf []byte, op *operation) []byte {
	o := begin(buf)
	o.text("operationId", op.ID)
	o.text("summary", op.Summary)
	o.text("description", op.Description)
	list(o, "tags", op.Tags, appendText)
	list(o, "security", op.Security, appendRequirement)
	array(o, "parameters", op.Parameters, appendParameter)
	if op.Body != nil {
		o.object("requestBody", func(o *objectWriter) {
			o.flag("required", op.Body.Required)
			o.object("content", func(o *objectWriter) { sorted(o, op.Body.Content, appendMedia) })
		})
	}
	o.object("responses", func(o *objectWriter) { sorted(o, op.Responses, appendResponse) })
	o.always("x-kit-guard", op.Guard)
	o.text("x-kit-scope", op.Scope)
	o.always("x-kit-rate", op.Rate)
	o.flag("x-kit-socket", op.Socket)
	if op.Frames != nil {
		o.object("x-kit-frames", func(o *objectWriter) {
			list(o, "sends", op.Frames.Sends, appendSchema)
			array(o, "takes", op.Frames.Takes, appendSchema)
		})
	}
	if op.MaxBody != 0 {
		o.key("x-kit-max-body")
		o.buf = strconv.AppendInt(o.buf, op.MaxBody, 10)
	}
	list(o, "x-kit-codes", op.Codes, appendText)
	return o.end()
}

func appendRequirement(buf []byte, r requirement) []byte {
	o := begin(buf)
	sorted(o, r, func(buf []byte, scopes []string) []byte { return appendList(buf, scopes, appendText) })
	return o.end()
}

func appendParameter(buf []byte, p *parameter) []byte {
	o := begin(buf)
	o.text("name", p.Name)
	o.text("in", p.In)
	o.flag("required", p.Required)
	o.text("description", p.Description)
	o.schema("schema", p.Schema)
	return o.end()
}

func appendMedia(buf []byte, m *media) []byte {
	o := begin(buf)
	o.schema("schema", m.Schema)
	if m.Example != nil {
		o.object("examples", func(o *objectWriter) {
			o.object("made", func(o *objectWriter) {
				o.key("value")
				o.buf = m.Example.append(o.buf, m.Schema)
			})
		})
	}
	return o.end()
}

func appendResponse(buf []byte, r *response) []byte {
	if r.Ref != "" {
		return single(buf, "$ref", r.Ref)
	}
	o := begin(buf)
	o.always("description", r.Description)
	if len(r.Headers) > 0 {
		o.object("headers", func(o *objectWriter) {
			sorted(o, r.Headers, func(buf []byte, ref string) []byte { return single(buf, "$ref", ref) })
		})
	}
	if len(r.Content) > 0 {
		o.object("content", func(o *objectWriter) { sorted(o, r.Content, appendMedia) })
	}
	return o.end()
}
