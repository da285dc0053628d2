//go:build unix

package file_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/kitbackend/kit/storage/bucket"
	"github.com/kitbackend/kit/storage/bucket/buckettest"
	"github.com/kitbackend/kit/storage/bucket/file"
)

// TestOneProcessAtATimeWritesAPart opens two buckets on one directory, like two processes.
func TestOneProcessAtATimeWritesAPart(t *testing.T) {
	const prefix, size = "http://kit/", 1 << 20
	dir, ctx, key, name := t.TempDir(), t.Context(), make([]byte, 32), buckettest.NewKey()
	process := func() *file.Bucket {
		b := file.New(dir)
		b.Attach(bucket.Serving{Prefix: prefix, Now: time.Now,
			Current: func(context.Context) (byte, []byte, error) { return 1, key, nil },
			Find:    func(context.Context, byte) ([]byte, error) { return key, nil }})
		t.Cleanup(func() { _ = b.Close() })
		return b
	}
	one, other := process(), process()
	id, err := one.Start(ctx, name, bucket.Plan{Size: size, PartSize: size})
	if err != nil {
		t.Fatal(err)
	}
	signed, err := one.SignPart(ctx, name, id, 1, size, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	put := func(ctx context.Context, to *file.Bucket, body io.Reader) error {
		q := httptest.NewRequestWithContext(ctx, http.MethodPut, signed.URL, body)
		q.ContentLength = size
		return to.Serve(httptest.NewRecorder(), q, strings.TrimPrefix(signed.URL, prefix))
	}
	half := bytes.Repeat([]byte("a"), size/2)
	body, writer := io.Pipe()
	done := make(chan error, 1)
	go func() { done <- put(ctx, one, body) }()
	if _, err := writer.Write(half); err != nil {
		t.Fatal(err)
	}
	short, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
	defer cancel()
	if err := put(short, other, strings.NewReader(strings.Repeat("b", size))); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the part is written twice at once: %v", err)
	}
	_, err = writer.Write(half)
	if err := errors.Join(err, writer.Close(), <-done); err != nil {
		t.Fatal(err)
	}
	parts, err := one.Parts(ctx, name, id, 0, 10)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := other.Complete(ctx, name, id, parts); err != nil {
		t.Fatal(err)
	}
	object, err := other.Open(ctx, name, 0, -1)
	if err != nil {
		t.Fatal(err)
	}
	defer object.Close()
	if data, err := io.ReadAll(object); err != nil || bytes.Count(data, []byte("a")) != size {
		t.Errorf("want the %d bytes of one: %d, %v", size, bytes.Count(data, []byte("a")), err)
	}
}
