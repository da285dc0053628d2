package storage

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strconv"
	"time"

	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/storage/bucket"
	"github.com/kitbackend/kit/storage/bucket/file"
)

// The bounds of request bodies.
const (
	smallBody = 16 << 10
	partsBody = 1 << 20 // 10,000 parts
)

func (s *Storage) routes() []capability.Route {
	user := capability.User()
	token := capability.Public("the share token is the credential")
	owner := []*capability.Error{ErrNotFound, ErrForbidden}
	also := func(more ...*capability.Error) []*capability.Error {
		return append(append([]*capability.Error{}, owner...), more...)
	}
	rows := capability.Mount(s.cfg.BasePath,
		capability.Route{Method: "POST", Path: "", Guard: user, MaxBody: smallBody,
			Summary:  "Start an upload.",
			Refusals: []*capability.Error{ErrQuotaExceeded, ErrMultipartFailed, capability.ErrRateLimited},
			Handle:   capability.JSON(201, s.postUpload)},
		capability.Route{Method: "GET", Path: "", Guard: user,
			Summary: "The caller's objects by path.",
			Query:   []capability.Param{{Name: "prefix"}, {Name: "delimiter"}, capability.LimitParam, capability.CursorParam},
			Handle:  capability.JSON(200, s.getList)},
		capability.Route{Method: "POST", Path: "/:id/complete", Guard: user, MaxBody: partsBody,
			Summary:  "Complete an upload.",
			Refusals: also(ErrUploadIncomplete, ErrMultipartFailed),
			Handle:   capability.OptionalJSON(200, s.postComplete)},
		capability.Route{Method: "POST", Path: "/:id/abort", Guard: user, MaxBody: smallBody,
			Summary:  "Give up an upload.",
			Refusals: owner,
			Handle:   capability.JSON(204, s.postAbort)},
		capability.Route{Method: "GET", Path: "/:id/parts", Guard: user,
			Summary:  "What is stored of an upload, and addresses for the rest.",
			Refusals: also(ErrUploadIncomplete),
			Query: []capability.Param{{Name: "limit", Summary: "How many parts at most, up to 200; 1,000 where it is left out.", Format: "integer"},
				capability.CursorParam},
			Handle: capability.JSON(200, s.getParts)},
		capability.Route{Method: "POST", Path: "/:id/copy", Guard: user, MaxBody: smallBody,
			Summary:  "Copy an object.",
			Refusals: also(ErrUploadIncomplete, ErrQuotaExceeded),
			Handle:   capability.JSON(201, s.postCopy)},
		capability.Route{Method: "POST", Path: "/:id/shares", Guard: user, MaxBody: smallBody,
			Summary:  "Make a share link.",
			Refusals: also(ErrUploadIncomplete, capability.ErrRateLimited),
			Handle:   capability.OptionalJSON(201, s.postShare)},
		capability.Route{Method: "DELETE", Path: "/:id/shares/:token", Guard: user,
			Summary:  "Revoke a share of an object.",
			Refusals: owner,
			Handle:   capability.JSON(204, s.deleteShareOf)},
		capability.Route{Method: "GET", Path: "/:id/url", Guard: user,
			Summary:  "A signed address of the object for five minutes.",
			Refusals: []*capability.Error{ErrNotFound, ErrUploadIncomplete},
			Handle:   capability.JSON(200, s.getURL)},
		capability.Route{Method: "GET", Path: "/:id", Guard: capability.Public("private objects are for their owner, whom the handler checks").Identifying(),
			Summary:  "The bytes of an object.",
			Refusals: []*capability.Error{ErrNotFound, ErrUploadIncomplete},
			Handle:   capability.Raw(s.getBytes)},
		capability.Route{Method: "HEAD", Path: "/:id", Guard: user,
			Summary:  "The headers of an object.",
			Refusals: also(ErrUploadIncomplete),
			Handle:   capability.Raw(s.headBytes)},
		capability.Route{Method: "PATCH", Path: "/:id", Guard: user, MaxBody: smallBody,
			Summary:  "Rename an object, or change its visibility or metadata.",
			Refusals: also(ErrUploadIncomplete),
			Handle:   capability.JSON(200, s.patchObject)},
		capability.Route{Method: "DELETE", Path: "/:id", Guard: user,
			Summary:  "Delete an object.",
			Refusals: owner,
			Handle:   capability.JSON(204, s.deleteObject)},
		capability.Route{Method: "GET", Path: "/share/:token", Guard: token,
			Summary:  "The bytes behind a share link.",
			Refusals: []*capability.Error{ErrNotFound, ErrShareExpired},
			Handle:   capability.Raw(s.getShared)},
		capability.Route{Method: "DELETE", Path: "/shares/:token", Guard: user,
			Summary:  "Revoke a share.",
			Refusals: owner,
			Handle:   capability.JSON(204, s.deleteShare)},
	)
	rows = append(rows, capability.Route{Method: "GET", Path: s.cfg.SharePath + "/:token", Guard: token,
		Summary:  "The bytes behind a share link.",
		Refusals: []*capability.Error{ErrNotFound, ErrShareExpired},
		Handle:   capability.Raw(s.getShared)})
	if s.served != nil {
		rows = append(rows, capability.Route{Method: capability.Any, Path: s.cfg.SignedPath + "/:token", Rate: "transfer",
			Guard:    capability.Public("the signature of the address is the credential"),
			Summary:  "The bytes of one upload, part or object, by a signed address.",
			Refusals: []*capability.Error{ErrNotFound, ErrAlreadyStored},
			Handle:   capability.Raw(s.serveSigned)})
	}
	return rows
}

func caller(c *capability.Call) Ref { return ByID(c.Param("id")).As(c.Caller.UserID) }

// uploadBody is the request body that starts an upload.
type uploadBody struct {
	Path        string            `json:"path"`
	Size        *int64            `json:"size"`
	ContentType string            `json:"contentType,omitempty"`
	Visibility  Visibility        `json:"visibility,omitempty"`
	SHA256      string            `json:"sha256,omitempty"`
	Metadata    map[string]string `json:"metadata,omitempty"`
}

func (s *Storage) postUpload(c *capability.Call, body uploadBody) (Started, error) {
	if body.Size == nil {
		return Started{}, capability.ErrInvalidRequest.Saying("size is missing.")
	}
	return s.Start(c.Context(), Upload{OwnerID: c.Caller.UserID, Path: body.Path, Size: *body.Size, ContentType: body.ContentType,
		Visibility: body.Visibility, SHA256: body.SHA256, Metadata: body.Metadata})
}

func (s *Storage) getList(c *capability.Call, _ capability.None) (Listing, error) {
	page, err := c.Page()
	if err != nil {
		return Listing{}, err
	}
	return s.List(c.Context(), Filter{OwnerID: c.Caller.UserID, Prefix: c.Query("prefix"), Delimiter: c.Query("delimiter")}, page)
}

// completeBody is the request body of complete; without parts, the bucket's list of parts is used.
type completeBody struct {
	Parts []PartTag `json:"parts,omitempty"`
}

func (s *Storage) postComplete(c *capability.Call, body completeBody) (Object, error) {
	return s.Complete(c.Context(), caller(c), body.Parts)
}

func (s *Storage) postAbort(c *capability.Call, _ capability.None) (capability.None, error) {
	return capability.None{}, s.Abort(c.Context(), caller(c))
}

func (s *Storage) getParts(c *capability.Call, _ capability.None) (Progress, error) {
	page, err := c.Page()
	if err != nil {
		return Progress{}, err
	}
	if c.Query("limit") == "" {
		page.Limit = pageOfParts
	}
	return s.Progress(c.Context(), caller(c), page)
}

func (s *Storage) postCopy(c *capability.Call, body CopyTo) (Object, error) {
	return s.Copy(c.Context(), caller(c), body)
}

// shareBody is the request body of a new share.
type shareBody struct {
	ExpiresInSeconds *int64 `json:"expiresInSeconds,omitempty"`
}

// shareResponse has the token, which is shown only once.
type shareResponse struct {
	Share Share `json:"share"`
}

func (s *Storage) postShare(c *capability.Call, body shareBody) (shareResponse, error) {
	ttl := DefaultShareTTL
	if seconds := body.ExpiresInSeconds; seconds != nil {
		if *seconds < int64(MinShareTTL/time.Second) || *seconds > int64(MaxShareTTL/time.Second) {
			return shareResponse{}, capability.ErrInvalidRequest.Saying("expiresInSeconds is %d to %d.", MinShareTTL/time.Second, MaxShareTTL/time.Second)
		}
		ttl = time.Duration(*seconds) * time.Second
	}
	share, err := s.Share(c.Context(), caller(c), ttl)
	return shareResponse{share}, err
}

func (s *Storage) deleteShareOf(c *capability.Call, _ capability.None) (capability.None, error) {
	return capability.None{}, s.Revoke(c.Context(), caller(c), c.Param("token"))
}

func (s *Storage) deleteShare(c *capability.Call, _ capability.None) (capability.None, error) {
	return capability.None{}, s.Revoke(c.Context(), Ref{}.As(c.Caller.UserID), c.Param("token"))
}

func (s *Storage) getURL(c *capability.Call, _ capability.None) (Link, error) {
	download, err := flag(c, "download")
	if err != nil {
		return Link{}, err
	}
	return s.Sign(c.Context(), caller(c), SignOptions{Download: download})
}

// flag reads a query parameter that is 1, 0 or absent.
func flag(c *capability.Call, name string) (bool, error) {
	switch c.Query(name) {
	case "", "0", "false":
		return false, nil
	case "1", "true":
		return true, nil
	default:
		return false, capability.ErrInvalidRequest.Saying("%s is 1, 0 or absent.", name)
	}
}

func (s *Storage) patchObject(c *capability.Call, body Change) (Object, error) {
	return s.Update(c.Context(), caller(c), body)
}

func (s *Storage) deleteObject(c *capability.Call, _ capability.None) (capability.None, error) {
	return capability.None{}, s.Delete(c.Context(), caller(c))
}

func (s *Storage) getBytes(c *capability.Call) error {
	o, err := s.readable(c.Context(), caller(c))
	if err != nil {
		return err
	}
	return s.serve(c, o, o.Visibility == VisibilityPublic)
}

func (s *Storage) headBytes(c *capability.Call) error {
	o, err := s.ready(c.Context(), caller(c))
	if err != nil {
		return err
	}
	return s.serve(c, o, o.Visibility == VisibilityPublic)
}

func (s *Storage) getShared(c *capability.Call) error {
	o, err := s.shared(c.Context(), c.Param("token"))
	if err != nil {
		return err
	}
	return s.serve(c, o, false)
}

// policy lets a browser display an image, video, sound or text, and run nothing.
const policy = "default-src 'none'; img-src 'self'; media-src 'self'; style-src 'unsafe-inline'; frame-ancestors 'none'; sandbox"

// protect sets the headers of every response with bytes of users.
func protect(h http.Header, public bool) {
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Content-Security-Policy", policy)
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Vary", "Authorization, Cookie, Origin")
	if public {
		h.Set("Cache-Control", "public, no-cache") // stored, and revalidated each time: the object may become private
		h.Set("Cross-Origin-Resource-Policy", "cross-origin")
		return
	}
	h.Set("Cache-Control", "private, no-store")
}

// serve responds with the bytes of an object.
func (s *Storage) serve(c *capability.Call, o Object, public bool) error {
	download, err := flag(c, "download")
	if err != nil {
		return err
	}
	h := c.Writer().Header()
	kind, show := shown(o.ContentType)
	send := func() {
		protect(h, public)
		h.Set("Content-Type", kind)
		h.Set("Content-Disposition", disposition(o.Path, show && !download))
	}
	if filed, ok := s.bucket.(bucket.Filed); ok {
		f, err := filed.File(c.Context(), o.key)
		if err != nil {
			return s.unread(c.Context(), o, err)
		}
		defer f.Close()
		send()
		file.Send(c.Writer(), c.Request(), f, o.ETag, o.CompletedAt.Time)
		return nil
	}
	body := &seeker{ctx: c.Context(), bucket: s.bucket, key: o.key, size: o.Size}
	defer body.close()
	send()
	file.Send(c.Writer(), c.Request(), body, o.ETag, o.CompletedAt.Time)
	if body.err != nil && c.Context().Err() == nil {
		s.host.Log.LogAttrs(c.Context(), slog.LevelError, "storage: reading an object failed", slog.String("object", o.ID), slog.Any("error", body.err))
		panic(http.ErrAbortHandler) // the length was sent: a short body must not look complete
	}
	return nil
}

// serveSigned serves a signed URL of a bucket that the kit serves.
func (s *Storage) serveSigned(c *capability.Call) error {
	w, r := c.Writer(), c.Request()
	h := w.Header()
	protect(h, false)
	h.Set("Cross-Origin-Resource-Policy", "cross-origin")
	h.Set("Access-Control-Allow-Origin", "*") // the URL is the credential: a page sends no other
	h.Set("Access-Control-Expose-Headers", "ETag, Content-Length, Content-Range, Accept-Ranges")
	switch r.Method {
	case http.MethodOptions:
		h.Set("Access-Control-Allow-Methods", "GET, HEAD, PUT")
		h.Set("Access-Control-Allow-Headers", "Content-Type, Range, If-None-Match, If-Range")
		h.Set("Access-Control-Max-Age", strconv.Itoa(int(preflightLife/time.Second)))
		w.WriteHeader(http.StatusNoContent)
		return nil
	case http.MethodGet, http.MethodHead, http.MethodPut:
	default:
		h.Set("Allow", "GET, HEAD, PUT, OPTIONS")
		return capability.ErrMethodNotAllowed
	}
	err := s.served.Serve(w, r, c.Param("token"))
	if err != nil && r.Context().Err() != nil && !errors.Is(err, bucket.ErrLength) {
		return context.Cause(r.Context()) // the timeout of a stalled body cancels the context too
	}
	return signedRefusal(err)
}

const preflightLife = 10 * time.Minute
