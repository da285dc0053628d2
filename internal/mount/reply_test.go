package mount_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// TestLengthIsTold returns bodies around the size of net/http's buffer: none is
// chunked.
func TestLengthIsTold(t *testing.T) {
	server := httptest.NewServer(newWorld(t, nil))
	defer server.Close()
	for _, length := range []int{0, 100, 2033, 2034, 2035, 2036, 2100, 9000} {
		r, err := http.Post(server.URL+"/things/open", "application/json", strings.NewReader(`{"text":"`+strings.Repeat("x", length)+`"}`))
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(r.Body)
		_ = r.Body.Close()
		if err != nil || r.StatusCode != http.StatusCreated || r.ContentLength != int64(len(body)) {
			t.Errorf("%d: %d, %d of %d bytes told, %v", length, r.StatusCode, r.ContentLength, len(body), err)
		}
	}
}
