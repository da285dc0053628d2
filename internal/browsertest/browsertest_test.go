package browsertest_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/kitbackend/kit/internal/browsertest"
)

// A browser leaves nothing behind that still writes when the test is over, which
// the removal of its profile would meet, and nothing that waits for what never
// comes: a page is crashed, another is in the middle of its work.
func TestEnd(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		_, _ = w.Write([]byte(`<h1>Here</h1><button onclick="this.textContent = 'pressed'">Press</button><input>
			<script>setInterval(() => localStorage.setItem("x", Math.random()), 1)</script>`))
	}))
	defer server.Close()
	for range 5 {
		t.Run("", func(t *testing.T) {
			b := browsertest.Start(t)
			doomed, page := b.Open(server.URL), b.Open(server.URL)
			doomed.See("h1")
			doomed.Kill()
			page.Click("button")
			page.Fill("input", "a \"b\"")
			page.Until(`document.querySelector("input").value === 'a "b"'`)
			if text := page.Text("button"); text != "pressed" {
				t.Error(text)
			}
			page.Run(`setTimeout(() => { globalThis.done = true; nobody() }, 0)`, nil)
			page.Until("done")
			if c := page.Complaints(); len(c) != 1 {
				t.Errorf("%d complaints: %s", len(c), c)
			}
		})
	}
}
