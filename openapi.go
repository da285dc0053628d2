package kit

import (
	"cmp"
	"strings"

	"github.com/kitbackend/kit/auth"
	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/internal/mount"
	"github.com/kitbackend/kit/openapi"
)

// OpenAPI returns the composed routes as an OpenAPI 3.1 document, those of the
// sign-in library among them. It is computed at each call, from the route table
// and the types of its handlers, without I/O; [openapi.Handler] serves it where
// the application mounts it.
func (k *Kit) OpenAPI() ([]byte, error) {
	d := openapi.Description{Title: "Kit", Version: k.version, Server: k.BaseURL()}
	if k.Auth() != nil {
		d.SessionCookie = k.Auth().SessionCookieName()
	}
	for _, e := range k.table {
		if library := k.libraryRows(e); len(library) > 0 {
			d.Rows = append(d.Rows, library...)
			continue
		}
		_, limited := k.mount.Limits[e.Route.RateClass()]
		d.Rows = append(d.Rows, openapi.Row{Capability: e.Domain, Route: e.Route, Limited: limited})
	}
	return d.JSON()
}

// libraryRows returns the routes of the sign-in library, which replace the row that forwards to it.
func (k *Kit) libraryRows(e mount.Entry) (rows []openapi.Row) {
	prefix, ok := strings.CutSuffix(e.Route.Path, "/*")
	if k.Auth() == nil || !ok || e.Route.Method != capability.Any || e.Domain != k.Auth().Capability().Domain() {
		return nil
	}
	for _, r := range k.Auth().LibraryRoutes() {
		var handle capability.Handler // none
		if r.Pages {
			handle = handle.Pages()
		}
		library := &openapi.Library{Takes: r.Takes, Returns: r.Returns, Word: auth.LibraryRefusal}
		rows = append(rows, openapi.Row{Capability: e.Domain, Limited: true, Library: library, Route: capability.Route{
			Method: r.Method, Path: prefix + r.Path, Summary: cmp.Or(r.Summary, "Of the sign-in library."), Refusals: r.Refusals,
			Query: r.Query, Guard: e.Route.Guard.Identifying(), MaxBody: e.Route.MaxBody, Rate: e.Route.Rate, Handle: handle}})
	}
	return rows
}
