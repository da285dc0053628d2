// Package openapi describes a route table as an OpenAPI 3.1 document: guards become security
// schemes, the types that handlers take and return become schemas, and every code that a row can
// refuse with is listed under its status.
//
// The document is a function of its rows: equal tables result in equal bytes, and computing it does
// no I/O. The method OpenAPI of a kit.Kit returns the document of the kit. It is served only where
// the application mounts [Handler].
package openapi

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/kitbackend/kit/capability"
)

// Version is the version of the OpenAPI specification that documents follow.
const Version = "3.1.0"

// Description is the input of a document.
type Description struct {
	// Title and Version are those of the application's interface.
	Title, Version string
	// Server is the URL of the application, without a trailing slash.
	Server string
	// SessionCookie is the name of the session cookie, by default kit_session.
	SessionCookie string
	Rows          []Row
}

// Row is a route with what its table does not contain.
type Row struct {
	// Capability is the domain of the capability that serves the route, which is its tag.
	Capability string
	// Route may have no handler, as the routes of the sign-in library: its body and response are
	// then those of Library, and also HTML if it shows pages.
	Route capability.Route
	// Library describes a route without a handler; nil means that it has one.
	Library *Library
	// Limited reports whether the rate class of the route has a limit.
	Limited bool
}

// Library is what the handler of a row would tell.
type Library struct {
	// Takes is a value of the type of the body, whose other members are ignored, and Returns has
	// one for each type of a response with status 200, nil for null; none mean any JSON.
	Takes   any
	Returns []any
	// Word returns the refusal that the row sends for one of the kit. The body of each has code and
	// message outside of error too.
	Word func(error) *capability.Error
}

// JSON returns the document, its members in a fixed order. It fails for a type that JSON cannot
// represent.
func (d Description) JSON() ([]byte, error) {
	b := &builder{schemas: newSchemas(), responses: make(map[string]*response), tags: make(map[string]bool), codeNames: make(map[string]string)}
	paths := make(map[string]map[string]*operation)
	ids := make(map[string]bool)
	for _, row := range d.Rows {
		path, params := template(row.Route.Path)
		if paths[path] == nil {
			paths[path] = make(map[string]*operation)
		}
		for _, method := range methods(row.Route.Method) {
			key := strings.ToLower(method)
			if paths[path][key] != nil {
				continue // an earlier row of the table is the one that is served
			}
			op, err := b.operation(row, method, params)
			if err != nil {
				return nil, fmt.Errorf("openapi: %s %s: %w", method, row.Route.Path, err)
			}
			op.ID = unique(ids, op.ID)
			paths[path][key] = op
		}
	}
	doc := document{
		Info:  info{Title: d.Title, Version: d.Version, Description: about},
		Paths: paths,
		Components: components{
			Schemas: b.schemas.components, Responses: b.responses,
			Headers: responseHeaders(), SecuritySchemes: schemes(d.SessionCookie),
		},
		Tags: slices.Sorted(maps.Keys(b.tags)),
	}
	if d.Server != "" {
		doc.Servers = []string{d.Server}
	}
	return append(doc.append(make([]byte, 0, documentSize)), '\n'), nil
}

// documentSize is the size of a large document, in bytes.
const documentSize = 768 << 10

const about = "Every refusal has the form of the schema Refusal; clients decide by error.code. " +
	"Every response carries X-Request-Id. Integers stay within 2^53-1, so that JavaScript reads them exactly. " +
	"Responses may gain members; request bodies with members that are not listed are refused."

// Handler serves a document for GET and HEAD. It allows any origin, because a document contains
// nothing that belongs to a user.
func Handler(doc []byte) http.Handler {
	length := strconv.Itoa(len(doc))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			h.Set("Allow", "GET, HEAD")
			w.WriteHeader(http.StatusMethodNotAllowed)
			return
		}
		h.Set("Content-Type", "application/vnd.oai.openapi+json;version=3.1")
		h.Set("Content-Length", length)
		h.Set("Access-Control-Allow-Origin", "*")
		h.Set("X-Content-Type-Options", "nosniff")
		if r.Method == http.MethodGet {
			_, _ = w.Write(doc) // the client has disconnected
		}
	})
}

// methods returns the methods of a row; one that serves every method has five.
func methods(method string) []string {
	if method == capability.Any {
		return []string{http.MethodGet, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete}
	}
	return []string{method}
}

// template converts a path to the syntax of OpenAPI; a final * becomes {rest}.
func template(path string) (text string, params []string) {
	parts := strings.Split(path, "/")
	for i, part := range parts {
		name, isParam := strings.CutPrefix(part, ":")
		if part == "*" {
			name, isParam = restParam, true
		}
		if isParam {
			params = append(params, name)
			parts[i] = "{" + name + "}"
		}
	}
	return strings.Join(parts, "/"), params
}

const restParam = "rest"

// unique returns the id, with a number appended if it is taken.
func unique(taken map[string]bool, id string) string {
	free := id
	for n := 2; taken[free]; n++ {
		free = id + strconv.Itoa(n)
	}
	taken[free] = true
	return free
}
