package file

import (
	"bytes"
	"errors"
	"runtime"
	"strings"
	"testing"

	"github.com/kitbackend/kit/storage/bucket"
)

// TestAPartThatComesAfterTheCloseLeavesTheOneThere checks that a late part does not remove the
// record of the stored one: if the node is killed before it has made the object, the stored parts
// are listed again.
func TestAPartThatComesAfterTheCloseLeavesTheOneThere(t *testing.T) {
	const size = bucket.MinPartSize
	ctx, key := t.Context(), strings.Repeat("a", keyLength)
	b := New(t.TempDir())
	upload, err := b.Start(ctx, key, bucket.Plan{Size: size, PartSize: size})
	if err != nil {
		t.Fatal(err)
	}
	put := func() error {
		_, err := b.putPart(ctx, key, upload, 1, size, bytes.NewReader(make([]byte, size)))
		return err
	}
	if err := put(); err != nil {
		t.Fatal(err)
	}
	parts, err := b.Parts(ctx, key, upload, 0, 10)
	if err != nil {
		t.Fatal(err)
	}
	mark := uploadPath(upload, "1")
	unlock, err := b.parts.lock(ctx, mark)
	if err != nil {
		t.Fatal(err)
	}
	late := make(chan error)
	go func() { late <- put() }()
	for waiting := 1; waiting < 2; runtime.Gosched() { // until it has found the upload
		b.parts.mu.Lock()
		waiting = b.parts.locks[mark].waiting
		b.parts.mu.Unlock()
	}
	root, p, _, err := b.upload(key, upload)
	if err == nil {
		err = b.close(root, p, upload, parts)
	}
	if err != nil {
		t.Fatal(err)
	}
	unlock()
	if err := <-late; !errors.Is(err, bucket.ErrNoUpload) {
		t.Errorf("a part after the close: %v", err)
	}
	if left, err := b.Parts(ctx, key, upload, 0, 10); err != nil || len(left) != 1 {
		t.Errorf("%v, %v", left, err)
	}
}

// TestAbortLeavesTheUploadOfAnotherKey checks open uploads, and closed ones whose object a killed
// process has not made yet.
func TestAbortLeavesTheUploadOfAnotherKey(t *testing.T) {
	const size = bucket.MinPartSize
	ctx, key, other := t.Context(), strings.Repeat("a", keyLength), strings.Repeat("b", keyLength)
	b := New(t.TempDir())
	upload, err := b.Start(ctx, key, bucket.Plan{Size: size, PartSize: size})
	if err == nil {
		_, err = b.putPart(ctx, key, upload, 1, size, bytes.NewReader(make([]byte, size)))
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, closing := range []bool{false, true} {
		parts, err := b.Parts(ctx, key, upload, 0, 10)
		if err != nil {
			t.Fatal(err)
		}
		if root, p, _, err := b.upload(key, upload); closing {
			if err := errors.Join(err, b.close(root, p, upload, parts)); err != nil {
				t.Fatal(err)
			}
		}
		if err := b.Abort(ctx, other, upload); err != nil {
			t.Errorf("closed %t: abort under another key: %v", closing, err)
		}
		if left, err := b.Parts(ctx, key, upload, 0, 10); err != nil || len(left) != 1 {
			t.Errorf("closed %t: the upload has the parts %v, %v, expected the one stored", closing, left, err)
		}
	}
}
