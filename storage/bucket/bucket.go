// Package bucket is the seam between the storage capability and what keeps the
// bytes: a store of immutable objects under keys that storage makes up.
//
// Clients write and read objects themselves, through signed addresses, each good
// for one method, one key and a short time. Package bucket/file keeps objects in
// a directory, and the kit serves its signed addresses; package bucket/s3 uses
// any server with the S3 interface. Package buckettest is the suite of both.
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
	// ErrNoUpload reports a multipart upload that was completed, aborted or never made.
	ErrNoUpload = errors.New("bucket: no such upload")
	// ErrParts reports a list of parts that is not what is stored.
	ErrParts = errors.New("bucket: the parts are not those that are stored")
	// ErrExists reports a PUT to a key that has its bytes already.
	ErrExists = errors.New("bucket: the object exists")
	// ErrDenied reports a signed address that was changed, is over, or is not for
	// this request.
	ErrDenied = errors.New("bucket: the signed address does not allow this")
	// ErrLength reports a body without a declared length or of another one than
	// was signed.
	ErrLength = errors.New("bucket: the body has not the signed length")
	// ErrChecksum reports bytes whose SHA-256 is not the signed one.
	ErrChecksum = errors.New("bucket: the body has not the signed checksum")
)

var keyForm = regexp.MustCompile(`^[a-z2-7]{26}$`)

// ValidKey reports whether a key has the form of those that storage makes: 26
// letters a to z and digits 2 to 7.
func ValidKey(key string) bool { return keyForm.MatchString(key) }

// Bucket keeps objects. It is safe for concurrent use. Keys satisfy [ValidKey];
// a key is written once.
type Bucket interface {
	// Name is the driver's, for the manifest: "file" or "s3".
	Name() string

	// SignPut returns an address that takes the whole object once, of exactly the
	// size and type of put. A longer body is refused before it is stored.
	SignPut(ctx context.Context, key string, put Put, ttl time.Duration) (Signed, error)
	// SignPart returns an address that takes one part of exactly size bytes. The
	// response carries its ETag.
	SignPart(ctx context.Context, key, upload string, number int, size int64, ttl time.Duration) (Signed, error)
	// SignGet returns an address that gives the object, with the type and the
	// disposition of get.
	SignGet(ctx context.Context, key string, get Get, ttl time.Duration) (Signed, error)

	// Put stores what r reads under a key that has nothing yet. size is -1 when it
	// is not known; an error of r stores nothing.
	Put(ctx context.Context, key string, r io.Reader, size int64, contentType string) (Info, error)
	// Head refuses with [ErrNotFound].
	Head(ctx context.Context, key string) (Info, error)
	// Open reads from an offset, length bytes or, when it is negative, to the end.
	// It refuses with [ErrNotFound].
	Open(ctx context.Context, key string, offset, length int64) (io.ReadCloser, error)
	// Copy stores a copy of from under to. It refuses with [ErrNotFound].
	Copy(ctx context.Context, from, to, contentType string) (Info, error)
	// Delete removes objects; those that are not there are no error.
	Delete(ctx context.Context, keys ...string) error
	// List returns objects in the order of their keys, after a key, at most limit.
	List(ctx context.Context, after string, limit int) ([]Object, error)

	// Start opens a multipart upload and returns its name.
	Start(ctx context.Context, key string, plan Plan) (upload string, err error)
	// Parts returns what is stored of an upload in the order of the numbers, after
	// a number, at most limit of 1,000. It refuses with [ErrNoUpload].
	Parts(ctx context.Context, key, upload string, after, limit int) ([]Part, error)
	// Complete makes the object out of the parts, which are in order and have the
	// ETags that Parts returned. It refuses with [ErrNoUpload] and [ErrParts],
	// after which the upload goes on.
	Complete(ctx context.Context, key, upload string, parts []Part) (Info, error)
	// Abort drops an upload and its parts; one that is not there is no error.
	Abort(ctx context.Context, key, upload string) error
	// Uploads lists the uploads that are open, at most limit, from a cursor, which
	// is "" at first and at the end.
	Uploads(ctx context.Context, cursor string, limit int) (uploads []Upload, next string, err error)
	// Tidy removes what writes of the bucket's own that were interrupted before an
	// instant have left.
	Tidy(ctx context.Context, before time.Time) error
	// Close ends the use of the bucket.
	Close() error
}

// Served is a Bucket whose signed addresses the kit serves itself.
type Served interface {
	Bucket
	// Attach says where signed addresses begin and what they are signed with. It
	// is called once, before any other method.
	Attach(Serving)
	// Serve serves a request for a signed address, whose last segment is the
	// token. An error returned before anything was written is for the caller to
	// write: those of this package or of Serving.Check.
	Serve(w http.ResponseWriter, r *http.Request, token string) error
}

// Filed is a Bucket that has objects as files, which the system can send by
// itself.
type Filed interface {
	// File opens an object for reading. It refuses with [ErrNotFound].
	File(ctx context.Context, key string) (*os.File, error)
}

// Credentialed is a Bucket that needs credentials from outside.
type Credentialed interface {
	// CheckCredentials says what is wrong with those it was given.
	CheckCredentials() error
	// NeedsCredentials reports whether it was given none of its own.
	NeedsCredentials() bool
	// UseCredentials gives it a source, which it calls for every use.
	UseCredentials(func(context.Context) (Credentials, error))
}

// Credentials are what a bucket signs with. Do not keep or print them.
type Credentials struct {
	AccountID, Bucket, AccessKeyID, SecretAccessKey, ScopedToken string
}

// Serving is what signed addresses are made of.
type Serving struct {
	// Prefix is what they begin with, such as "https://example.com/_kit/storage/".
	Prefix string
	// Now is the clock they end by.
	Now func() time.Time
	// Current returns the newest key to sign with and its number.
	Current func(context.Context) (number byte, key []byte, err error)
	// Find returns the key of a number, nil when there is none.
	Find func(ctx context.Context, number byte) ([]byte, error)
	// Check refuses a write to a key that takes no bytes any more.
	Check func(ctx context.Context, key string) error
}

// Put describes the body of one PUT.
type Put struct {
	Size        int64
	ContentType string
	// SHA256 is the checksum that the body must have, nil for any.
	SHA256 []byte
}

// Get says how an object is shown.
type Get struct {
	ContentType string
	// Disposition is a Content-Disposition.
	Disposition string
}

// Plan says how a multipart upload is cut: all parts but the last have PartSize.
type Plan struct {
	Size, PartSize int64
	ContentType    string
}

// Parts returns how many parts the plan has.
func (p Plan) Parts() int { return int((p.Size + p.PartSize - 1) / p.PartSize) }

// Part returns the size of the part of a number, from 1.
func (p Plan) Part(number int) int64 {
	return min(p.PartSize, p.Size-int64(number-1)*p.PartSize)
}

// Signed is an address for a client.
type Signed struct {
	Method string
	URL    string
	// Header is what the client must send along.
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
