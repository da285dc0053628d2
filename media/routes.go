package media

import (
	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/storage"
)

// The bounds of request bodies.
const (
	smallBody = 16 << 10
	partsBody = 1 << 20 // 10,000 parts
)

func (m *Media) routes() []capability.Route {
	user := capability.User()
	return capability.Mount(m.cfg.BasePath,
		capability.Route{Method: "POST", Path: "", Guard: user, MaxBody: smallBody,
			Summary:  "Create an item and start its upload, or find it by its checksum.",
			Refusals: []*capability.Error{ErrUnsupportedType, storage.ErrQuotaExceeded, capability.ErrRateLimited},
			Handle:   capability.JSON(201, m.postItem)},
		capability.Route{Method: "GET", Path: "", Guard: user,
			Summary: "The caller's items, the newest first.",
			Query:   []capability.Param{{Name: "kind", Choices: Kind("").Choices()}, {Name: "status", Choices: Status("").Choices()}},
			Handle:  capability.List(m.getItems)},
		capability.Route{Method: "POST", Path: "/duplicates", Guard: user, MaxBody: smallBody, Rate: "read",
			Summary:  "The caller's items that are the same or look alike.",
			Refusals: []*capability.Error{ErrNotFound, ErrNotReady},
			Handle:   capability.JSON(200, m.postDuplicates)},
		capability.Route{Method: "POST", Path: "/:id/finalize", Guard: user, MaxBody: partsBody,
			Summary: "Check an upload and process it.",
			Refusals: []*capability.Error{ErrNotFound, ErrNotUploaded, ErrUnsupportedType, ErrTooManyPixels, ErrCorrupt,
				ErrModerationRejected, storage.ErrMultipartFailed},
			Handle: capability.OptionalJSON(202, m.postFinalize)},
		capability.Route{Method: "GET", Path: "/:id", Guard: user,
			Summary:  "An item with fresh addresses of its pictures.",
			Refusals: []*capability.Error{ErrNotFound},
			Handle:   capability.JSON(200, m.getItem)},
		capability.Route{Method: "DELETE", Path: "/:id", Guard: user,
			Summary:  "Delete an item with all that belongs to it.",
			Refusals: []*capability.Error{ErrNotFound},
			Handle:   capability.JSON(204, m.deleteItem)},
	)
}

// itemResponse is a response with one item.
type itemResponse struct {
	Item Item `json:"item"`
}

func (m *Media) postItem(c *capability.Call, body Upload) (Created, error) {
	body.OwnerID = c.Caller.UserID
	return m.Create(c.Context(), body)
}

func (m *Media) getItems(c *capability.Call, page capability.Page) (capability.Items[Item], error) {
	return m.List(c.Context(), Filter{OwnerID: c.Caller.UserID, Kind: Kind(c.Query("kind")), Status: Status(c.Query("status"))}, page)
}

func (m *Media) postDuplicates(c *capability.Call, body Look) (Matches, error) {
	return m.Duplicates(c.Context(), c.Caller.UserID, body)
}

// finalizeBody is the request body of finalize; without parts, the stored ones are used.
type finalizeBody struct {
	Parts []storage.PartTag `json:"parts,omitempty"`
}

func (m *Media) postFinalize(c *capability.Call, body finalizeBody) (itemResponse, error) {
	i, err := m.Finalize(c.Context(), c.Caller.UserID, c.Param("id"), body.Parts)
	return itemResponse{i}, err
}

func (m *Media) getItem(c *capability.Call, _ capability.None) (itemResponse, error) {
	i, err := m.Get(c.Context(), c.Caller.UserID, c.Param("id"))
	return itemResponse{i}, err
}

func (m *Media) deleteItem(c *capability.Call, _ capability.None) (capability.None, error) {
	return capability.None{}, m.Delete(c.Context(), c.Caller.UserID, c.Param("id"))
}
