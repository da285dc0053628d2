// Package buckettest is the test suite that every bucket must pass.
package buckettest

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"strings"
	"testing"
	"time"

	"github.com/kitbackend/kit/storage/bucket"
	"github.com/kitbackend/kit/storage/bucket/s3"
)

// Variable names the environment variable with the S3 server of tests, in the form of [s3.Parse].
const Variable = "KIT_TEST_S3"

// S3 opens a bucket on the server that [Variable] names, with a prefix of its own. It skips the
// test if the variable is not set.
func S3(t testing.TB) *s3.Bucket {
	t.Helper()
	address := os.Getenv(Variable)
	if address == "" {
		t.Skip(Variable + " is not set")
	}
	cfg, err := s3.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	cfg.Prefix = NewKey() + "/"
	b := s3.New(cfg)
	if err := b.Make(context.Background()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { empty(t, b) })
	return b
}

func empty(t testing.TB, b bucket.Bucket) {
	ctx := context.Background()
	for {
		list, err := b.List(ctx, "", 1000)
		if err != nil {
			t.Error(err)
		}
		if len(list) == 0 {
			break
		}
		keys := make([]string, len(list))
		for i, o := range list {
			keys[i] = o.Key
		}
		if err := b.Delete(ctx, keys...); err != nil {
			t.Error(err)
			break
		}
	}
	uploads, _, err := b.Uploads(ctx, "", 1000)
	if err != nil {
		t.Error(err)
	}
	for _, u := range uploads {
		if err := b.Abort(ctx, u.Key, u.ID); err != nil {
			t.Error(err)
		}
	}
}

// NewKey returns a new key as storage generates it.
func NewKey() string { return strings.ToLower(rand.Text()) }

// Serve starts a server for the signed URLs of a bucket that the kit would serve.
func Serve(t testing.TB, b bucket.Bucket) {
	t.Helper()
	served, ok := b.(bucket.Served)
	if !ok {
		return
	}
	key := []byte(NewKey())
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := served.Serve(w, r, path.Base(r.URL.Path)); err != nil {
			http.Error(w, err.Error(), status(err))
		}
	}))
	t.Cleanup(server.Close)
	served.Attach(bucket.Serving{Prefix: server.URL + "/", Now: time.Now,
		Current: func(context.Context) (byte, []byte, error) { return 1, key, nil },
		Find: func(_ context.Context, n byte) ([]byte, error) {
			if n != 1 {
				return nil, nil
			}
			return key, nil
		}})
}

func status(err error) int {
	switch {
	case errors.Is(err, bucket.ErrDenied):
		return http.StatusForbidden
	case errors.Is(err, bucket.ErrExists):
		return http.StatusPreconditionFailed
	case errors.Is(err, bucket.ErrNoUpload), errors.Is(err, bucket.ErrNotFound):
		return http.StatusNotFound
	default:
		return http.StatusBadRequest
	}
}

type suite struct {
	t   *testing.T
	ctx context.Context
	b   bucket.Bucket
}

// Run checks that a bucket keeps the guarantees of the interface. open returns an empty one.
func Run(t *testing.T, open func(t testing.TB) bucket.Bucket) {
	t.Helper()
	for name, test := range map[string]func(suite){
		"objects": suite.objects, "single": suite.single, "multipart": suite.multipart, "abort": suite.abort,
		"list": suite.list, "addresses": suite.addresses, "checksum": suite.checksum, "empty": suite.nothing,
	} {
		t.Run(name, func(t *testing.T) {
			b := open(t)
			Serve(t, b)
			test(suite{t, t.Context(), b})
		})
	}
}

func (s suite) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

func (s suite) is(err, want error) {
	s.t.Helper()
	if !errors.Is(err, want) {
		s.t.Errorf("got %v, want %v", err, want)
	}
}

func (s suite) read(key string, offset, length int64) []byte {
	s.t.Helper()
	body, err := s.b.Open(s.ctx, key, offset, length)
	s.must(err)
	defer body.Close()
	text, err := io.ReadAll(body)
	s.must(err)
	return text
}

// call sends a signed request as a client and returns the status, the header and the body.
func (s suite) call(signed bucket.Signed, body []byte, change ...func(*http.Request)) (int, http.Header, []byte) {
	s.t.Helper()
	var reader io.Reader
	if signed.Method == http.MethodPut {
		reader = bytes.NewReader(body)
	}
	r, err := http.NewRequestWithContext(s.ctx, signed.Method, signed.URL, reader)
	s.must(err)
	for name, value := range signed.Header {
		r.Header.Set(name, value)
	}
	for _, f := range change {
		f(r)
	}
	response, err := http.DefaultTransport.RoundTrip(r)
	if err != nil && signed.Method == http.MethodPut {
		return http.StatusBadRequest, nil, []byte(err.Error()) // refused and disconnected before the body was sent
	}
	s.must(err)
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	s.must(err)
	return response.StatusCode, response.Header, text
}

func (s suite) objects() {
	key, other := NewKey(), NewKey()
	_, err := s.b.Head(s.ctx, key)
	s.is(err, bucket.ErrNotFound)
	_, err = s.b.Open(s.ctx, key, 0, -1)
	s.is(err, bucket.ErrNotFound)
	_, err = s.b.Copy(s.ctx, key, other, "")
	s.is(err, bucket.ErrNotFound)
	_, err = s.b.Head(s.ctx, "../../etc/passwd")
	s.is(err, bucket.ErrNotFound)
	s.must(s.b.Delete(s.ctx, key))
	for _, size := range []int64{5, -1} {
		key := NewKey()
		info, err := s.b.Put(s.ctx, key, strings.NewReader("hello"), size, "text/plain")
		s.must(err)
		if info.Size != 5 {
			s.t.Errorf("Put of %d bytes returns %d", size, info.Size)
		}
	}
	_, err = s.b.Put(s.ctx, key, strings.NewReader("hello"), 5, "text/plain")
	s.must(err)
	_, err = s.b.Put(s.ctx, key, strings.NewReader("other"), 5, "text/plain")
	s.is(err, bucket.ErrExists)
	broken := errors.New("broken")
	_, err = s.b.Put(s.ctx, other, io.MultiReader(strings.NewReader("hel"), failing{broken}), -1, "text/plain")
	s.is(err, broken)
	_, err = s.b.Head(s.ctx, other)
	s.is(err, bucket.ErrNotFound)
	gone, leave := context.WithCancel(s.ctx)
	leave()
	_, err = s.b.Copy(gone, key, other, "text/plain")
	s.is(err, context.Canceled)
	_, err = s.b.Head(s.ctx, other)
	s.is(err, bucket.ErrNotFound)
	info, err := s.b.Copy(s.ctx, key, other, "text/plain")
	s.must(err)
	s.must(s.b.Delete(s.ctx, key))
	if got := s.read(other, 0, -1); string(got) != "hello" || info.Size != 5 {
		s.t.Errorf("a copy has %q and %d bytes", got, info.Size)
	}
	if got := s.read(other, 1, 3); string(got) != "ell" {
		s.t.Errorf("three bytes from the second: %q", got)
	}
	if got := s.read(other, 3, -1); string(got) != "lo" {
		s.t.Errorf("from the fourth: %q", got)
	}
	if got := s.read(other, 2, 0); len(got) != 0 {
		s.t.Errorf("no bytes: %q", got)
	}
	s.must(s.b.Delete(s.ctx, other, NewKey()))
	_, err = s.b.Head(s.ctx, other)
	s.is(err, bucket.ErrNotFound)
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

func (s suite) single() {
	key := NewKey()
	signed, err := s.b.SignPut(s.ctx, key, bucket.Put{Size: 5, ContentType: "image/png"}, time.Minute)
	s.must(err)
	for name, try := range map[string]func() int{
		"a longer body":  func() int { n, _, _ := s.call(signed, []byte("hello!")); return n },
		"a shorter body": func() int { n, _, _ := s.call(signed, []byte("hell")); return n },
		"another type": func() int {
			n, _, _ := s.call(signed, []byte("hello"), func(r *http.Request) { r.Header.Set("Content-Type", "text/html") })
			return n
		},
		"no length": func() int {
			n, _, _ := s.call(signed, []byte("hello"), func(r *http.Request) { r.ContentLength = -1 })
			return n
		},
		"reading by it": func() int {
			n, _, _ := s.call(bucket.Signed{Method: http.MethodGet, URL: signed.URL, Header: signed.Header}, nil)
			return n
		},
	} {
		if n := try(); n < 400 || n >= 500 {
			s.t.Errorf("%s: %d", name, n)
		}
		_, err = s.b.Head(s.ctx, key)
		s.is(err, bucket.ErrNotFound)
	}
	if n, _, text := s.call(signed, []byte("hello")); n != 200 {
		s.t.Fatalf("%d %s", n, text)
	}
	if n, _, text := s.call(signed, []byte("HELLO")); n != http.StatusPreconditionFailed {
		s.t.Errorf("a second PUT: %d %s", n, text)
	}
	if got := s.read(key, 0, -1); string(got) != "hello" {
		s.t.Errorf("got %q", got)
	}
	get, err := s.b.SignGet(s.ctx, key, bucket.Get{ContentType: "text/plain", Disposition: `attachment; filename="a b.txt"`}, time.Minute)
	s.must(err)
	n, header, text := s.call(get, nil)
	if n != 200 || string(text) != "hello" || header.Get("Content-Type") != "text/plain" || header.Get("Content-Disposition") != `attachment; filename="a b.txt"` {
		s.t.Errorf("GET: %d %q %v", n, text, header)
	}
	n, _, text = s.call(get, nil, func(r *http.Request) { r.Header.Set("Range", "bytes=1-3") })
	if n != http.StatusPartialContent || string(text) != "ell" {
		s.t.Errorf("a range: %d %q", n, text)
	}
}

func (s suite) checksum() {
	key, sum := NewKey(), sha256.Sum256([]byte("hello"))
	signed, err := s.b.SignPut(s.ctx, key, bucket.Put{Size: 5, ContentType: "text/plain", SHA256: sum[:]}, time.Minute)
	s.must(err)
	if n, _, _ := s.call(signed, []byte("HELLO")); n < 400 || n >= 500 {
		s.t.Errorf("other bytes: %d", n)
	}
	_, err = s.b.Head(s.ctx, key)
	s.is(err, bucket.ErrNotFound)
	if n, _, text := s.call(signed, []byte("hello")); n != 200 {
		s.t.Errorf("%d %s", n, text)
	}
}

func (s suite) nothing() {
	key := NewKey()
	signed, err := s.b.SignPut(s.ctx, key, bucket.Put{Size: 0, ContentType: "text/plain"}, time.Minute)
	s.must(err)
	if n, _, text := s.call(signed, nil, func(r *http.Request) { r.Body = http.NoBody }); n != 200 {
		s.t.Fatalf("%d %s", n, text)
	}
	if info, err := s.b.Head(s.ctx, key); err != nil || info.Size != 0 {
		s.t.Errorf("%+v %v", info, err)
	}
}

func (s suite) multipart() {
	key := NewKey()
	plan := bucket.Plan{Size: bucket.MinPartSize + 7, PartSize: bucket.MinPartSize, ContentType: "video/mp4"}
	body := bytes.Repeat([]byte("kit"), int(plan.Size)/3+1)[:plan.Size]
	upload, err := s.b.Start(s.ctx, key, plan)
	s.must(err)
	if parts, err := s.b.Parts(s.ctx, key, upload, 0, 1000); err != nil || len(parts) != 0 {
		s.t.Errorf("at first: %v %v", parts, err)
	}
	etags := map[int]string{}
	send := func(number int, body []byte) int {
		signed, err := s.b.SignPart(s.ctx, key, upload, number, plan.Part(number), time.Minute)
		s.must(err)
		n, header, _ := s.call(signed, body)
		etags[number] = header.Get("ETag")
		return n
	}
	if n := send(2, body[plan.PartSize:plan.PartSize+6]); n < 400 {
		s.t.Errorf("a short part: %d", n)
	}
	if n := send(2, []byte("another")); n != 200 {
		s.t.Errorf("part 2: %d", n)
	}
	if n := send(2, body[plan.PartSize:]); n != 200 {
		s.t.Errorf("part 2 again: %d", n)
	}
	parts, err := s.b.Parts(s.ctx, key, upload, 0, 1000)
	s.must(err)
	if len(parts) != 1 || parts[0].Number != 2 || parts[0].Size != 7 || parts[0].ETag != etags[2] {
		s.t.Errorf("stored: %+v, the response had %q", parts, etags[2])
	}
	if n := send(1, body[:plan.PartSize]); n != 200 {
		s.t.Errorf("part 1: %d", n)
	}
	parts, err = s.b.Parts(s.ctx, key, upload, 0, 1000)
	s.must(err)
	if rest, err := s.b.Parts(s.ctx, key, upload, 1, 1000); err != nil || len(rest) != 1 || rest[0] != parts[1] {
		s.t.Errorf("after the first: %+v %v", rest, err)
	}
	if one, err := s.b.Parts(s.ctx, key, upload, 0, 1); err != nil || len(one) != 1 || one[0] != parts[0] {
		s.t.Errorf("one: %+v %v", one, err)
	}
	wrong := []bucket.Part{parts[0], {Number: 2, Size: 7, ETag: parts[0].ETag}}
	_, err = s.b.Complete(s.ctx, key, upload, wrong)
	s.is(err, bucket.ErrParts)
	_, err = s.b.Complete(s.ctx, key, NewKey(), parts)
	s.is(err, bucket.ErrNoUpload)
	_, err = s.b.Head(s.ctx, key)
	s.is(err, bucket.ErrNotFound)
	info, err := s.b.Complete(s.ctx, key, upload, parts)
	s.must(err)
	if info.Size != plan.Size || !bytes.Equal(s.read(key, 0, -1), body) {
		s.t.Errorf("%d bytes, or others than were sent", info.Size)
	}
	if n := send(1, body[:plan.PartSize]); n < 400 {
		s.t.Errorf("a part after complete: %d", n)
	}
	_, err = s.b.Parts(s.ctx, key, upload, 0, 1000)
	s.is(err, bucket.ErrNoUpload)
	s.must(s.b.Abort(s.ctx, key, upload))
	if _, err := s.b.Head(s.ctx, key); err != nil {
		s.t.Errorf("abort after complete: %v", err)
	}
}

func (s suite) abort() {
	key := NewKey()
	plan := bucket.Plan{Size: 2 * bucket.MinPartSize, PartSize: bucket.MinPartSize}
	upload, err := s.b.Start(s.ctx, key, plan)
	s.must(err)
	uploads, next, err := s.b.Uploads(s.ctx, "", 1000)
	s.must(err)
	if len(uploads) != 1 || uploads[0].Key != key || uploads[0].ID != upload || next != "" || time.Since(uploads[0].StartedAt).Abs() > time.Hour {
		s.t.Errorf("uploads: %+v %q", uploads, next)
	}
	signed, err := s.b.SignPart(s.ctx, key, upload, 1, bucket.MinPartSize, time.Minute)
	s.must(err)
	s.must(s.b.Abort(s.ctx, key, upload))
	s.must(s.b.Abort(s.ctx, key, upload))
	if n, _, _ := s.call(signed, make([]byte, bucket.MinPartSize)); n < 400 {
		s.t.Errorf("a part after abort: %d", n)
	}
	_, err = s.b.Complete(s.ctx, key, upload, []bucket.Part{{Number: 1, Size: bucket.MinPartSize, ETag: `"0123456789abcdef0123456789abcdef"`}})
	s.is(err, bucket.ErrNoUpload)
	if uploads, _, err := s.b.Uploads(s.ctx, "", 1000); err != nil || len(uploads) != 0 {
		s.t.Errorf("uploads after abort: %+v %v", uploads, err)
	}
}

func (s suite) list() {
	var keys []string
	for _, first := range []string{"zz", "aa", "ab", "m7", "22", "a2"} {
		key := first + NewKey()[2:]
		keys = append(keys, key)
		_, err := s.b.Put(s.ctx, key, strings.NewReader(first), 2, "text/plain")
		s.must(err)
	}
	var got []string
	for after := ""; ; {
		page, err := s.b.List(s.ctx, after, 4)
		s.must(err)
		for _, o := range page {
			got = append(got, o.Key[:2])
			after = o.Key
			if o.Size != 2 || time.Since(o.ModifiedAt).Abs() > time.Hour {
				s.t.Errorf("%+v", o)
			}
		}
		if len(page) < 4 {
			break
		}
	}
	if text := strings.Join(got, " "); text != "22 a2 aa ab m7 zz" {
		s.t.Errorf("listed %s", text)
	}
	s.must(s.b.Delete(s.ctx, keys...))
	if page, err := s.b.List(s.ctx, "", 4); err != nil || len(page) != 0 {
		s.t.Errorf("after Delete: %v %v", page, err)
	}
}

// addresses checks that signed URLs are valid only for what they were signed for.
func (s suite) addresses() {
	key, other := NewKey(), NewKey()
	for _, k := range []string{key, other} {
		_, err := s.b.Put(s.ctx, k, strings.NewReader(k[:5]), 5, "text/plain")
		s.must(err)
	}
	get, err := s.b.SignGet(s.ctx, key, bucket.Get{ContentType: "text/plain", Disposition: "attachment"}, time.Minute)
	s.must(err)
	refused := func(what string, signed bucket.Signed, change ...func(*http.Request)) {
		s.t.Helper()
		if n, _, text := s.call(signed, []byte("hello"), change...); n < 400 || n >= 500 {
			s.t.Errorf("%s: %d %s", what, n, text)
		}
	}
	edit := func(old, replacement string) bucket.Signed {
		changed := get
		changed.URL = strings.Replace(get.URL, old, replacement, 1)
		if changed.URL == get.URL {
			s.t.Fatalf("%q is not in the address", old)
		}
		return changed
	}
	refused("a method", bucket.Signed{Method: http.MethodPut, URL: get.URL})
	refused("another disposition", edit("attachment", "inline"))
	refused("another type", edit("text%2Fplain", "text%2Fhtml"))
	put, err := s.b.SignPut(s.ctx, NewKey(), bucket.Put{Size: 5, ContentType: "text/plain"}, time.Minute)
	s.must(err)
	refused("deleting", bucket.Signed{Method: http.MethodDelete, URL: get.URL})
	refused("reading by an address that writes", bucket.Signed{Method: http.MethodGet, URL: put.URL, Header: put.Header})
	if strings.Contains(get.URL, key) {
		refused("another key", edit(key, other))
	}
}
