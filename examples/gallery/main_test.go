package main

import (
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/kitbackend/kit/kittest"
	"github.com/kitbackend/kit/media"
)

func TestPage(t *testing.T) {
	objects, err := open("", "")
	if err != nil {
		t.Fatal(err)
	}
	h, err := application(kittest.New(t, options("http://localhost:8080", objects, media.Config{})...).Kit)
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{"/": "<title>Gallery</title>", "/app.js": "import", "/left.js": "export", "/blurhash.js": "export", "/client/index.js": "export", "/style.css": ":root"} {
		rec := httptest.NewRecorder()
		h.ServeHTTP(rec, httptest.NewRequest("GET", path, nil))
		if rec.Code != 200 || !strings.Contains(rec.Body.String(), want) {
			t.Errorf("%s: %d", path, rec.Code)
		}
	}
}

func TestAddressOfABucket(t *testing.T) {
	if b, err := open("", "https://key:secret@s3.example.com/pictures"); err != nil || b.Name() != "s3" {
		t.Errorf("%v %v", b, err)
	}
	if _, err := open("", "pictures"); err == nil {
		t.Error("takes what is no address")
	}
}
