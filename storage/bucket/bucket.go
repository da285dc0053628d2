// Package bucket is the interface between the storage capability and an object store: a store of
// immutable objects under keys that storage generates.
//
// Clients read and write objects themselves by signed URLs, each valid for one method, one key and
// a short time. Package bucket/file keeps objects in a directory, and the kit serves its signed
// URLs; package bucket/s3 uses any server with the S3 interface. Package buckettest is the test
// suite of both.
package bucket

import (
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"regexp"
	"time"
)

// The bounds of a multipart upload, those of S3.
const (
	MaxParts    = 10_000
	MinPartSize = 5 << 20
	MaxPartSize = 5 << 30
	// MaxPut is the largest object that one PUT writes, in bytes.
	MaxPut = 5 << 30
)

// Errors of a Bucket. Any other error is a failure of the store.
var (
	// ErrNotFound reports a key under which no object is stored.
	ErrNotFound = errors.New("bucket: no such object")
	// ErrNoUpload reports a multipart upload that was completed or aborted, or never existed.
	ErrNoUpload = errors.New("bucket: no such upload")
	// ErrParts reports a list of parts that differs from the stored parts.
	ErrParts = errors.New("bucket: the parts are not those that are stored")
	// ErrExists reports a PUT to a key that already has an object.
	ErrExists = errors.New("bucket: the object exists")
	// ErrDenied reports a signed URL that was changed, has expired, or is not for this request.
	ErrDenied = errors.New("bucket: the signed address does not allow this")
	// ErrLength reports a body without a declared length, or with a length other than the signed
	// one.
	ErrLength = errors.New("bucket: the body has not the signed length")
	// ErrChecksum reports a body whose SHA-256 is not the signed one.
	ErrChecksum = errors.New("bucket: the body has not the signed checksum")
)

var keyForm = regexp.MustCompile(`^[a-z2-7]{26}$`)

// ValidKey reports whether a key has the form of the keys that storage generates: 26 letters a to z
// and digits 2 to 7.
func ValidKey(key string) bool { return keyForm.MatchString(key) }

// Bucket stores objects. It is safe for concurrent use. Keys satisfy [ValidKey]; a key is written
// once.
type Bucket interface {
	// Name returns the name of the driver, for the manifest: "file" or "s3".
	Name() string

	// SignPut returns a URL that accepts the whole object once, with exactly the size and type of
	// put. A longer body is refused before it is stored.
	SignPut(ctx context.Context, key string, put Put, ttl time.Duration) (Signed, error)
	// SignPart returns a URL that accepts one part of exactly size bytes. The response has its
	// ETag.
	SignPart(ctx context.Context, key, upload string, number int, size int64, ttl time.Duration) (Signed, error)
	// SignGet returns a URL that reads the object, with the type and the disposition of get.
	SignGet(ctx context.Context, key string, get Get, ttl time.Duration) (Signed, error)

	// Put stores the bytes of r under a key that has no object yet. size is -1 if it is not known;
	// if r fails, nothing is stored.
	Put(ctx context.Context, key string, r io.Reader, size int64, contentType string) (Info, error)
	// Head returns the description of an object. It refuses with [ErrNotFound].
	Head(ctx context.Context, key string) (Info, error)
	// Open reads length bytes from an offset, or to the end if length is negative. It refuses with
	// [ErrNotFound].
	Open(ctx context.Context, key string, offset, length int64) (io.ReadCloser, error)
	// Copy stores a copy of from under to. It refuses with [ErrNotFound].
	Copy(ctx context.Context, from, to, contentType string) (Info, error)
	// Delete removes objects; a missing object is not an error.
	Delete(ctx context.Context, keys ...string) error
	// List returns at most limit objects after a key, in the order of their keys.
	List(ctx context.Context, after string, limit int) ([]Object, error)

	// Start opens a multipart upload and returns its ID.
	Start(ctx context.Context, key string, plan Plan) (upload string, err error)
	// Parts returns the stored parts of an upload after a number, in the order of their numbers, at
	// most limit of 1,000. It refuses with [ErrNoUpload].
	Parts(ctx context.Context, key, upload string, after, limit int) ([]Part, error)
	// Complete makes the object from the parts, which are in order and have the ETags that Parts
	// returned. It refuses with [ErrNoUpload] and [ErrParts], after which the upload stays open.
	Complete(ctx context.Context, key, upload string, parts []Part) (Info, error)
	// Abort removes an upload and its parts; a missing upload is not an error.
	Abort(ctx context.Context, key, upload string) error
	// Uploads lists at most limit open uploads from a cursor, which is "" at the start and at the
	// end.
	Uploads(ctx context.Context, cursor string, limit int) (uploads []Upload, next string, err error)
	// Tidy removes the remains of the bucket's own writes that were interrupted before an instant.
	Tidy(ctx context.Context, before time.Time) error
	// Close releases the resources of the bucket.
	Close() error
}

// Served is a Bucket whose signed URLs the kit serves.
type Served interface {
	Bucket
	// Attach sets the prefix and the keys of signed URLs. It is called once, before any other
	// method.
	Attach(Serving)
	// Serve serves a request for a signed URL, whose last segment is the token. If nothing was
	// written yet, it returns an error for the caller to write: one of this package, or that of
	// Serving.Check.
	Serve(w http.ResponseWriter, r *http.Request, token string) error
}

// Filed is a Bucket that has objects as files, which the operating system can send itself.
type Filed interface {
	// File opens an object for reading. It refuses with [ErrNotFound].
	File(ctx context.Context, key string) (*os.File, error)
}

// Credentialed is a Bucket that can get its credentials from outside.
type Credentialed interface {
	// CheckCredentials returns an error if the configured credentials are not valid.
	CheckCredentials() error
	// NeedsCredentials reports whether no credentials are configured.
	NeedsCredentials() bool
	// UseCredentials sets a source of credentials, which is called for every use.
	UseCredentials(func(context.Context) (Credentials, error))
}

// Credentials are what a bucket signs requests with. Do not store or print them.
type Credentials struct {
	AccountID, Bucket, AccessKeyID, SecretAccessKey, ScopedToken string
}

// Serving is the prefix, the clock and the keys of signed URLs.
type Serving struct {
	// Prefix is the beginning of signed URLs, such as "https://example.com/_kit/storage/".
	Prefix string
	// Now is the clock by which they expire.
	Now func() time.Time
	// Current returns the newest signing key and its number.
	Current func(context.Context) (number byte, key []byte, err error)
	// Find returns the key with a number, or nil.
	Find func(ctx context.Context, number byte) ([]byte, error)
	// Check refuses a write to a key that no longer accepts bytes.
	Check func(ctx context.Context, key string) error
}

// Put describes the body of one PUT.
type Put struct {
	Size        int64
	ContentType string
	// SHA256 is the checksum that the body must have; nil accepts any.
	SHA256 []byte
}

// Get describes the response to a GET.
type Get struct {
	ContentType string
	// Disposition is the Content-Disposition.
	Disposition string
}

// Plan describes how a multipart upload is split: all parts but the last have PartSize bytes.
type Plan struct {
	Size, PartSize int64
	ContentType    string
}

// Parts returns the number of parts.
func (p Plan) Parts() int { return int((p.Size + p.PartSize - 1) / p.PartSize) }

// Part returns the size of a part by its number, from 1.
func (p Plan) Part(number int) int64 {
	return min(p.PartSize, p.Size-int64(number-1)*p.PartSize)
}

// Signed is a signed request for a client.
type Signed struct {
	Method string
	URL    string
	// Header holds the headers that the client must send.
	Header map[string]string
}

// Info describes a stored object.
type Info struct {
	Size       int64
	ModifiedAt time.Time
}

// Object is an entry of a listing.
type Object struct {
	Key string
	Info
}

// Part is a stored part of an upload.
type Part struct {
	Number int    `json:"partNumber"`
	Size   int64  `json:"size"`
	ETag   string `json:"etag"`
}

// Upload is an open multipart upload.
type Upload struct {
	Key, ID   string
	StartedAt time.Time
}
