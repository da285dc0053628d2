package storage

import (
	"io"
	"time"

	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/storage/bucket"
)

// maxSize is the largest number of bytes: 2^53-1, which every JSON client represents exactly.
const maxSize = 1<<53 - 1

// Bounds of input.
const (
	// MaxPath bounds a logical path, in bytes.
	MaxPath = 1024
	// MaxContentType bounds a media type, in bytes.
	MaxContentType = 127
	// MaxMetadata bounds the JSON of an object's metadata, in bytes.
	MaxMetadata = 4 << 10
	// MaxMetadataKeys bounds the keys of an object's metadata.
	MaxMetadataKeys = 16
	// MaxShares bounds the unexpired shares of an object.
	MaxShares = 100
	// MaxPending bounds the uploads that an owner has in progress.
	MaxPending = 1000
	// MaxBatch bounds the objects of one call of DeleteAll, SignAll or Move.
	MaxBatch = 1000
)

// The lifetimes of signed URLs.
const (
	// SignTTL is the default lifetime of a URL that reads.
	SignTTL = 5 * time.Minute
	// UploadTTL is the lifetime of a URL that writes; it never outlives the upload's reservation.
	UploadTTL = time.Hour
)

// Visibility says who may read an object.
type Visibility string

// The visibilities.
const (
	VisibilityPrivate Visibility = "private"
	VisibilityPublic  Visibility = "public"
)

func (v Visibility) known() bool { return v == VisibilityPrivate || v == VisibilityPublic }

// State is the state of an object's upload.
type State string

// The states: an object is pending until its upload is complete.
const (
	StatePending State = "pending"
	StateReady   State = "ready"

	stateAborted State = "aborted" // kept until it would have expired, so that abort is idempotent
)

// Ref names an object and the caller.
type Ref struct {
	id         string
	user       string
	restricted bool
}

// ByID returns a reference for the application itself, which may do everything.
func ByID(id string) Ref { return Ref{id: id} }

// As restricts a reference to what a user may do: everything with the user's own objects, and read
// public objects of others. "" is a caller who is not signed in.
func (r Ref) As(userID string) Ref {
	r.user, r.restricted = userID, true
	return r
}

// Upload describes an object to upload.
type Upload struct {
	// OwnerID is the user whose quota it counts toward. Only the application's own objects have
	// none.
	OwnerID string
	// Path is 1 to 1,024 bytes of segments separated by slashes, in Unicode's
	// normal form C. An object of the owner at the same path is replaced.
	Path string
	// Size in bytes; for Put and Stage -1 means unknown.
	Size int64
	// ContentType is the type that the uploader declares, by default application/octet-stream.
	ContentType string
	// Visibility is by default Config.DefaultVisibility.
	Visibility Visibility
	// SHA256 is the checksum of all bytes in hexadecimal, or "". The bytes of a single upload must
	// have it; for an upload in parts it is not stored.
	SHA256 string
	// Metadata is up to 16 texts by name, 4 KiB in all.
	Metadata map[string]string
	// PendingTTL is how long it may stay unfinished, at least Config.PendingTTL.
	PendingTTL time.Duration
}

// Object is a stored object or a pending upload.
type Object struct {
	ID          string     `json:"id"`
	OwnerID     string     `json:"-"`
	Namespace   string     `json:"-"`
	Path        string     `json:"path"`
	Size        int64      `json:"size"`
	ContentType string     `json:"contentType"`
	Visibility  Visibility `json:"visibility"`
	State       State      `json:"state"`
	// ETag identifies the bytes, which never change under one ID.
	ETag string `json:"etag"`
	// SHA256 is the checksum in hexadecimal if it was verified, else nil.
	SHA256    *string           `json:"sha256"`
	Metadata  map[string]string `json:"metadata"`
	CreatedAt capability.Time   `json:"createdAt"`
	UpdatedAt capability.Time   `json:"updatedAt"`
	// CompletedAt is nil while the upload is pending.
	CompletedAt *capability.Time `json:"completedAt"`
	// ExpiresAt is when a pending upload expires, else nil.
	ExpiresAt *capability.Time `json:"expiresAt"`

	key           string
	uploadID      string
	partSize      int64
	stored        bool
	expires       int64
	writableUntil int64
}

func (o Object) plan() bucket.Plan {
	return bucket.Plan{Size: o.Size, PartSize: o.partSize, ContentType: storedType(o.ContentType)}
}

func (o Object) multipart() bool { return o.partSize > 0 }

// Mode is how the bytes of an upload are sent.
type Mode string

// The modes: one PUT, or one PUT for each part.
const (
	ModeSingle    Mode = "single"
	ModeMultipart Mode = "multipart"
)

// Started is the result of [Space.Start].
type Started struct {
	Object Object `json:"object"`
	Upload Plan   `json:"upload"`
}

// Plan describes where a client sends the bytes of an upload. Every PUT has exactly the size it was
// signed for.
type Plan struct {
	Mode Mode `json:"mode"`
	// Method, URL and Headers are those of the one PUT of a single upload.
	Method  string            `json:"method,omitempty"`
	URL     string            `json:"url,omitempty"`
	Headers map[string]string `json:"headers,omitempty"`
	// UploadID, PartSize, PartCount and Parts are those of an upload in parts. Of more than 1,000
	// parts, [Space.Progress] returns the rest.
	UploadID  string    `json:"uploadId,omitempty"`
	PartSize  int64     `json:"partSize,omitempty"`
	PartCount int       `json:"partCount,omitempty"`
	Parts     []PartURL `json:"parts,omitempty"`
	// ExpiresAt is when the URLs expire; [Space.Progress] returns new ones.
	ExpiresAt capability.Time `json:"expiresAt"`
}

// PartURL is the signed URL of one part.
type PartURL struct {
	PartNumber int               `json:"partNumber"`
	Size       int64             `json:"size"`
	URL        string            `json:"url"`
	Headers    map[string]string `json:"headers,omitempty"`
}

// Progress is the stored parts of an upload, and new URLs for the missing ones. A single upload is
// one part.
type Progress struct {
	Mode      Mode          `json:"mode"`
	UploadID  *string       `json:"uploadId"`
	PartSize  int64         `json:"partSize"`
	PartCount int           `json:"partCount"`
	Stored    []bucket.Part `json:"stored"`
	Missing   []PartURL     `json:"missing"`
	// ExpiresAt is when the URLs expire.
	ExpiresAt capability.Time `json:"expiresAt"`
	// NextCursor is the cursor of the next page of parts, nil at the end.
	NextCursor *string `json:"nextCursor"`
}

// PartTag is a part as reported by a client.
type PartTag struct {
	PartNumber int    `json:"partNumber"`
	ETag       string `json:"etag"`
}

// Change describes a change of an object; nil fields are left unchanged.
type Change struct {
	// Path moves the object, and replaces an object of the owner at that path.
	Path       *string           `json:"path,omitempty"`
	Visibility *Visibility       `json:"visibility,omitempty"`
	Metadata   map[string]string `json:"metadata,omitempty"`
	// ContentType is for the application itself, after it has examined the bytes.
	ContentType *string `json:"-"`
}

// CopyTo describes a copy.
type CopyTo struct {
	Path string `json:"path"`
	// Visibility is by default Config.DefaultVisibility, not that of the source.
	Visibility Visibility `json:"visibility,omitempty"`
}

// Filter selects objects of one owner.
type Filter struct {
	OwnerID string
	// Prefix is the prefix of the paths.
	Prefix string
	// Delimiter "/" lists paths only up to the first slash after the prefix: all longer paths with
	// the same beginning are one entry of Prefixes. "" lists every object.
	Delimiter string
}

// Listing is one page of a listing in the order of paths.
type Listing struct {
	Items []Object `json:"items"`
	// Prefixes represent the objects below them; each counts as one entry of the page.
	Prefixes   []string `json:"prefixes"`
	NextCursor *string  `json:"nextCursor"`
}

// Link is a signed URL to read an object.
type Link struct {
	URL       string          `json:"url"`
	ExpiresAt capability.Time `json:"expiresAt"`
}

// SignOptions are the options of [Space.Sign].
type SignOptions struct {
	// Download makes browsers save the object, whatever its type.
	Download bool
	// TTL is how long the URL is valid; 0 means [SignTTL], which routes use. At most a day.
	TTL time.Duration
}

// Share is a link that reads an object until it expires or is revoked.
type Share struct {
	ID       string `json:"id"`
	ObjectID string `json:"objectId"`
	// Token and URL are set only when the share is created.
	Token     string          `json:"token,omitempty"`
	URL       string          `json:"url,omitempty"`
	CreatedAt capability.Time `json:"createdAt"`
	ExpiresAt capability.Time `json:"expiresAt"`
}

// Bounds and default of the lifetime of a share.
const (
	MinShareTTL     = time.Minute
	MaxShareTTL     = 365 * 24 * time.Hour
	DefaultShareTTL = 7 * 24 * time.Hour
)

// Usage is the space that an owner's objects take, in bytes.
type Usage struct {
	Used     int64 `json:"used"`
	Reserved int64 `json:"reserved"`
	// Quota is 0 without a limit.
	Quota int64 `json:"quota"`
}

// Content is an object opened for reading.
type Content struct {
	Object
	io.ReadCloser
}

// Choices lists the values, for API documents.
func (Visibility) Choices() []string {
	return []string{string(VisibilityPrivate), string(VisibilityPublic)}
}

// Choices lists the values, for API documents.
func (State) Choices() []string { return []string{string(StatePending), string(StateReady)} }

// Choices lists the values, for API documents.
func (Mode) Choices() []string { return []string{string(ModeSingle), string(ModeMultipart)} }
