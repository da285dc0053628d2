package vector

import (
	"slices"
	"strings"

	"github.com/kitbackend/kit/capability"
)

const (
	maxUpsertBody = 8 << 20
	maxQueryBody  = 256 << 10
)

func (v *Vector) routes() []capability.Route {
	user := capability.User()
	return capability.Mount(v.cfg.BasePath,
		capability.Route{Method: "POST", Path: "/:index/documents", Guard: user, MaxBody: maxUpsertBody,
			Summary: "Put documents into the caller's part of an index.",
			Refusals: []*capability.Error{ErrIndexNotFound, ErrReadOnly, ErrDimensionMismatch, ErrModelMismatch,
				ErrQuotaExceeded, ErrEmbedderNotConfigured, ErrEmbeddingFailed},
			Handle: capability.JSON(200, v.postDocuments)},
		capability.Route{Method: "POST", Path: "/:index/query", Guard: user, MaxBody: maxQueryBody, Rate: "read",
			Summary: "Find the nearest documents.",
			Refusals: []*capability.Error{ErrIndexNotFound, ErrDocumentNotFound, ErrDimensionMismatch, ErrModelMismatch,
				ErrEmbedderNotConfigured, ErrEmbeddingFailed},
			Handle: capability.JSON(200, v.postQuery)},
		capability.Route{Method: "GET", Path: "/:index/documents/:id", Guard: user,
			Summary:  "A document; with ?include=vector also its vector.",
			Refusals: []*capability.Error{ErrIndexNotFound, ErrDocumentNotFound},
			Query:    []capability.Param{{Name: "include", Summary: "vector adds the numbers."}},
			Handle:   capability.JSON(200, v.getDocument)},
		capability.Route{Method: "DELETE", Path: "/:index/documents/:id", Guard: user,
			Summary:  "Delete a document.",
			Refusals: []*capability.Error{ErrIndexNotFound, ErrReadOnly, ErrDocumentNotFound},
			Handle:   capability.JSON(204, v.deleteDocument)},
	)
}

// space returns the caller's partition of the index, or that of a shared one.
func (v *Vector) space(c *capability.Call, writes bool) (Space, error) {
	space := Space{Index: c.Param("index"), OwnerID: c.Caller.UserID}
	x, ok := v.indexes[space.Index]
	switch {
	case !ok:
		return space, ErrIndexNotFound
	case x.Scope == ScopeShared && writes:
		return space, ErrReadOnly
	case x.Scope == ScopeShared:
		space.OwnerID = ""
	}
	return space, nil
}

// upsertBody is a list of documents, or a single document.
type upsertBody struct {
	Documents []Document     `json:"documents,omitempty"`
	ID        string         `json:"id,omitempty"`
	Text      string         `json:"text,omitempty"`
	Vector    []float32      `json:"vector,omitempty"`
	Model     string         `json:"model,omitempty"`
	Metadata  map[string]any `json:"metadata,omitempty"`
}

func (v *Vector) postDocuments(c *capability.Call, body upsertBody) (Upserted, error) {
	space, err := v.space(c, true)
	if err != nil {
		return Upserted{}, err
	}
	single := body.ID != "" || body.Text != "" || body.Vector != nil || body.Model != "" || body.Metadata != nil
	switch {
	case single && body.Documents != nil:
		return Upserted{}, capability.ErrInvalidRequest.Saying("Send a list of documents or one document, not both.")
	case single:
		body.Documents = []Document{{ID: body.ID, Text: body.Text, Vector: body.Vector, Model: body.Model, Metadata: body.Metadata}}
	}
	return v.Upsert(c.Context(), space, body.Documents...)
}

func (v *Vector) postQuery(c *capability.Call, body Query) (Result, error) {
	space, err := v.space(c, false)
	if err != nil {
		return Result{}, err
	}
	return v.Query(c.Context(), space, body)
}

func (v *Vector) getDocument(c *capability.Call, _ capability.None) (Stored, error) {
	space, err := v.space(c, false)
	if err != nil {
		return Stored{}, err
	}
	d, err := v.Get(c.Context(), space, c.Param("id"))
	if !slices.Contains(strings.Split(c.Query("include"), ","), "vector") {
		d.Vector = nil
	}
	return d, err
}

func (v *Vector) deleteDocument(c *capability.Call, _ capability.None) (none capability.None, err error) {
	space, err := v.space(c, true)
	if err != nil {
		return none, err
	}
	return none, v.Delete(c.Context(), space, c.Param("id"))
}
