package storage_test

import (
	"context"
	"encoding/base64"
	"net/http/httptest"
	"strings"
	"testing"
	"unicode"

	"golang.org/x/text/unicode/norm"

	"github.com/kitbackend/kit/database/databasetest"
	"github.com/kitbackend/kit/storage"
	"github.com/kitbackend/kit/storage/bucket/file"
)

// FuzzToken requests URLs with forged tokens: each is refused.
func FuzzToken(f *testing.F) {
	r := newRig(f, databasetest.Memory(f), file.New(""), storage.Config{})
	s := r.start("ada", upload{"path": "a", "size": 5})
	token, query, _ := strings.Cut(strings.TrimPrefix(s.Upload.URL, r.server.URL+"/_kit/storage/"), "?")
	raw, err := base64.RawURLEncoding.DecodeString(token)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(raw, query, false)
	f.Add(raw[:len(raw)-1], "", true)
	f.Fuzz(func(t *testing.T, token []byte, query string, write bool) {
		if strings.ContainsFunc(query, func(c rune) bool { return c <= ' ' || c > '~' || c == '#' }) {
			return
		}
		method := "GET"
		if write {
			method = "PUT"
		}
		w := httptest.NewRecorder()
		q := httptest.NewRequest(method, "/_kit/storage/"+base64.RawURLEncoding.EncodeToString(token), strings.NewReader("hello"))
		q.URL.RawQuery = query
		r.k.ServeHTTP(w, q)
		signed := string(token) == string(raw)
		if w.Code >= 500 || w.Code < 400 && !signed {
			t.Errorf("%s %x?%s: %d %s", method, token, query, w.Code, w.Body)
		}
	})
}

// FuzzPath starts uploads at paths: each is refused, or stored in its normal form and found again,
// and no path becomes a place in a file system.
func FuzzPath(f *testing.F) {
	for _, path := range []string{"a/b", "../a", "a//b", "\u202egnp", "cafe\u0301", "a\x00b", strings.Repeat("/", 1025), "\xff", "\uffff"} {
		f.Add(path)
	}
	r := newRig(f, databasetest.Memory(f), file.New(""), storage.Config{})
	ctx := context.Background()
	f.Fuzz(func(t *testing.T, path string) {
		o, err := r.s.Put(ctx, storage.Upload{OwnerID: "ada", Path: path, Size: 1}, strings.NewReader("x"))
		if err != nil {
			return
		}
		if !norm.NFC.IsNormalString(o.Path) || strings.ContainsFunc(o.Path, unicode.IsControl) || len(o.Path) > storage.MaxPath ||
			strings.HasPrefix(o.Path, "/") || strings.Contains("/"+o.Path+"/", "/../") {
			t.Errorf("%q is kept as %q", path, o.Path)
		}
		if at, err := r.s.At(ctx, "ada", path); err != nil || at.ID != o.ID {
			t.Errorf("%q is not found at its path: %v", path, err)
		}
		if err := r.s.Delete(ctx, storage.ByID(o.ID)); err != nil {
			t.Error(err)
		}
	})
}
