package storage_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/kitbackend/kit"
	"github.com/kitbackend/kit/audit"
	"github.com/kitbackend/kit/auth"
	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/capability/capabilitytest"
	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/database/databasetest"
	"github.com/kitbackend/kit/kittest"
	"github.com/kitbackend/kit/secrets"
	"github.com/kitbackend/kit/storage"
	"github.com/kitbackend/kit/storage/bucket"
	"github.com/kitbackend/kit/storage/bucket/buckettest"
	"github.com/kitbackend/kit/storage/bucket/file"
)

// rig is a kit with storage behind a real server, since clients call signed URLs over HTTP.
type rig struct {
	t      testing.TB
	k      *kittest.Kit
	s      *storage.Storage
	server *httptest.Server
	bucket bucket.Bucket
	ahead  atomic.Int64 // offset of the clock on S3, whose server has its own clock
}

// rigs runs a test on every database with the bucket in a directory, and also on S3 if KIT_TEST_S3
// is set.
func rigs(t *testing.T, cfg storage.Config, fn func(t *testing.T, r *rig)) {
	t.Helper()
	databasetest.Each(t, func(t *testing.T, db *database.DB) { fn(t, newRig(t, db, file.New(t.TempDir()), cfg)) })
	if os.Getenv(buckettest.Variable) != "" {
		t.Run("s3", func(t *testing.T) { fn(t, newRig(t, databasetest.Memory(t), buckettest.S3(t), cfg)) })
		t.Run("s3 and postgres", func(t *testing.T) { fn(t, newRig(t, databasetest.Postgres(t), buckettest.S3(t), cfg)) })
	}
}

// buckets runs a test on both buckets, with one database.
func buckets(t *testing.T, cfg storage.Config, fn func(t *testing.T, r *rig)) {
	t.Helper()
	t.Run("file", func(t *testing.T) { fn(t, newRig(t, databasetest.Memory(t), file.New(t.TempDir()), cfg)) })
	t.Run("s3", func(t *testing.T) { fn(t, newRig(t, databasetest.Memory(t), buckettest.S3(t), cfg)) })
}

// later advances the clock, except that of an S3 server.
func (r *rig) later(d time.Duration) {
	if r.bucket.Name() == "s3" {
		r.ahead.Add(int64(d))
	} else {
		r.k.Clock.Advance(d)
	}
}

func newRig(t testing.TB, db *database.DB, b bucket.Bucket, cfg storage.Config) *rig {
	t.Helper()
	r := &rig{t: t, bucket: b}
	r.server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) { r.k.ServeHTTP(w, q) }))
	t.Cleanup(r.server.Close)
	cfg.Bucket = b
	opts := []kit.Option{kit.WithDatabase(db), kit.WithBaseURL(r.server.URL), kit.WithAudit(audit.Config{}), kit.WithAuth(auth.Config{}),
		kit.WithSecrets(secrets.Config{}), kit.WithStorage(cfg)}
	if b.Name() == "s3" { // the S3 server has its own clock
		opts = append(opts, kit.WithClock(func() time.Time { return time.Now().Add(time.Duration(r.ahead.Load())) }))
	}
	r.k = kittest.New(t, opts...)
	r.s = r.k.Storage()
	return r
}

// response is a response to a test request.
type response struct {
	t      testing.TB
	status int
	header http.Header
	body   []byte
	call   string
}

func (a response) code() string {
	var body struct{ Error struct{ Code string } }
	if a.status < 400 || json.Unmarshal(a.body, &body) != nil {
		return ""
	}
	return body.Error.Code
}

// want fails the test unless the response has this status and code.
func (a response) want(status int, code string) response {
	a.t.Helper()
	if a.status != status || a.code() != code {
		a.t.Fatalf("%s: %d %.400s, want %d %s", a.call, a.status, a.body, status, code)
	}
	return a
}

func (a response) json(into any) {
	a.t.Helper()
	if err := json.Unmarshal(a.body, into); err != nil {
		a.t.Fatalf("%s: %s: %v", a.call, a.body, err)
	}
}

// do requests a path as a user ("" is anonymous), or a full URL as given.
func (r *rig) do(user, method, path string, body any, header ...string) response {
	r.t.Helper()
	var reader io.Reader
	switch b := body.(type) {
	case nil:
	case io.Reader:
		reader = b
	case string:
		reader = strings.NewReader(b)
	case []byte:
		reader = bytes.NewReader(b)
	default:
		text, err := json.Marshal(b)
		if err != nil {
			r.t.Fatal(err)
		}
		reader = bytes.NewReader(text)
		header = append([]string{"Content-Type", "application/json"}, header...)
	}
	address := path
	if strings.HasPrefix(path, "/") {
		address = r.server.URL + path
	}
	q, err := http.NewRequestWithContext(context.Background(), method, address, reader)
	if err != nil {
		r.t.Fatal(err)
	}
	if user != "" {
		q.Header.Set("Authorization", "Bearer "+r.token(user))
	}
	for i := 0; i < len(header); i += 2 {
		q.Header.Set(header[i], header[i+1])
	}
	got, err := http.DefaultTransport.RoundTrip(q)
	if method == http.MethodPut && (errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)) {
		// The server refused the body before it had read it, and its response was lost.
		return response{r.t, http.StatusBadRequest, http.Header{}, nil, method + " " + path}
	}
	if err != nil {
		r.t.Fatal(err)
	}
	defer got.Body.Close()
	raw, err := io.ReadAll(got.Body)
	if err != nil {
		r.t.Fatal(err)
	}
	return response{r.t, got.StatusCode, got.Header, raw, method + " " + path}
}

func (r *rig) token(user string) string {
	r.t.Helper()
	if err := r.k.Auth().EnsureUser(context.Background(), user); err != nil {
		r.t.Fatal(err)
	}
	token, err := r.k.Auth().IssueToken(context.Background(), user, nil, time.Minute)
	if err != nil {
		r.t.Fatal(err)
	}
	return token
}

// object is an object as clients see it.
type object struct {
	ID, Path, ContentType, Visibility, State, ETag string
	Size                                           int64
	SHA256                                         *string
	Metadata                                       map[string]string
	CreatedAt, UpdatedAt                           string
	CompletedAt, ExpiresAt                         *string
}

type partURL struct {
	PartNumber int
	Size       int64
	URL        string
	Headers    map[string]string
}

// started is the response to the start of an upload.
type started struct {
	Object object
	Upload struct {
		Mode, Method, URL, UploadID, ExpiresAt string
		Headers                                map[string]string
		PartSize                               int64
		PartCount                              int
		Parts                                  []partURL
	}
}

type upload map[string]any

func (r *rig) start(user string, u upload) (s started) {
	r.t.Helper()
	r.do(user, "POST", "/storage", u).want(201, "").json(&s)
	return s
}

// send PUTs bytes to a signed address.
func (r *rig) send(url string, headers map[string]string, body []byte) response {
	r.t.Helper()
	var list []string
	for name, value := range headers {
		list = append(list, name, value)
	}
	return r.do("", "PUT", url, body, list...)
}

// put uploads an object as a client would.
func (r *rig) put(user, path string, body []byte, more ...any) object {
	r.t.Helper()
	u := upload{"path": path, "size": len(body)}
	for i := 0; i < len(more); i += 2 {
		u[more[i].(string)] = more[i+1]
	}
	s := r.start(user, u)
	var o object
	if s.Upload.Mode == "single" {
		r.send(s.Upload.URL, s.Upload.Headers, body).want(200, "")
	} else {
		for _, part := range s.Upload.Parts {
			at := int64(part.PartNumber-1) * s.Upload.PartSize
			r.send(part.URL, part.Headers, body[at:at+part.Size]).want(200, "")
		}
	}
	r.do(user, "POST", "/storage/"+s.Object.ID+"/complete", upload{}).want(200, "").json(&o)
	return o
}

func (r *rig) usage(user string) storage.Usage {
	r.t.Helper()
	u, err := r.s.Usage(context.Background(), user)
	if err != nil {
		r.t.Fatal(err)
	}
	return u
}

// wantUsage fails the test unless a user's objects take this much.
func (r *rig) wantUsage(user string, used, reserved int64) {
	r.t.Helper()
	if u := r.usage(user); u.Used != used || u.Reserved != reserved {
		r.t.Fatalf("%s uses %d and has reserved %d, want %d and %d", user, u.Used, u.Reserved, used, reserved)
	}
}

func bytesOf(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i*7 + i>>8*13)
	}
	return b
}

func path(format string, args ...any) string { return fmt.Sprintf(format, args...) }

func newHost(t testing.TB) capability.Host {
	return capabilitytest.NewHost(t, databasetest.Memory(t))
}
