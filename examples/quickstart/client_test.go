package main

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kitbackend/kit"
	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/internal/browsertest"
)

const clientFolder = "../../clients/ts"

// startClientSite serves the quickstart and the stories of the client. It reads the first bytes of
// the first part of every upload, then cuts the connection. A POST of /test/expire advances the
// clock past the expiry of every access token.
func startClientSite(t *testing.T) string {
	t.Helper()
	db, err := database.OpenMemory()
	check(t, err)
	t.Cleanup(func() { _ = db.Close() })
	var ahead atomic.Int64
	var handler http.Handler
	var cuts atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/test/expire":
			ahead.Add(int64(20 * time.Minute))
		case r.Method == http.MethodPut && cuts.Add(1)%5 == 1:
			_, _ = io.CopyN(io.Discard, r.Body, 64<<10)
			panic(http.ErrAbortHandler)
		default:
			handler.ServeHTTP(w, r)
		}
	}))
	server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelInfo)
	base := strings.Replace(server.URL, "127.0.0.1", "localhost", 1)
	rails := stores()
	k, err := compose(db, nil, base, slog.New(slog.DiscardHandler), rails,
		kit.WithClock(func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }))
	check(t, err)
	check(t, rails.Connect(t.Context(), k))
	tests := http.StripPrefix("/client/test/", http.FileServerFS(os.DirFS(clientFolder+"/test")))
	paths := http.NewServeMux()
	paths.Handle("POST /buy", buy(k, rails))
	paths.Handle("GET /client/test/", tests)
	paths.Handle("/", site(k))
	handler = paths
	ctx, stop := context.WithCancel(context.Background())
	ran := make(chan error, 1)
	go func() { ran <- k.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		check(t, <-ran)
		check(t, k.Close(context.Background()))
		server.Close()
	})
	return base
}

// TestClient checks that the typed client plays a match, buys, uploads over a connection that is
// cut, and renews its access token.
func TestClient(t *testing.T) {
	t.Run("Node", inNode)
	t.Run("Browser", inBrowser)
}

func inNode(t *testing.T) {
	t.Helper()
	node := os.Getenv("KIT_TEST_NODE")
	if node == "" {
		t.Skip("KIT_TEST_NODE is not set")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	script, err := filepath.Abs(clientFolder + "/test/node.mjs")
	check(t, err)
	modules, err := filepath.Abs(clientFolder + "/dist")
	check(t, err)
	text, err := exec.CommandContext(ctx, node, "--experimental-websocket", script, modules, startClientSite(t)).CombinedOutput()
	if err != nil || !strings.HasSuffix(string(text), "done\n") {
		t.Errorf("%v\n%s", err, text)
	}
}

// inBrowser does the same in a browser, then checks two tabs of one user whose tokens expire at
// once.
func inBrowser(t *testing.T) {
	t.Helper()
	browser := browsertest.Start(t)
	base := startClientSite(t)
	page := browser.Open(base + "/")
	page.Run(`
		const kit = await import("/client/index.js")
		const { stories } = await import("/client/test/story.js")
		for (const [name, story] of Object.entries(stories)) await story(kit, location.origin)
		const response = await fetch("/__kit/dev-login?user=tabs") // with cookies
		window.client = kit.createClient({ credentials: { accessToken: (await response.json()).accessToken, onRenewed: () => { window.renewed = (window.renewed ?? 0) + 1 } } })
		await window.client.get("/auth/devices")`, nil)

	other := browser.Open(base + "/")
	other.Run(`
		const kit = await import("/client/index.js")
		window.client = kit.createClient({ credentials: { accessToken: "", onRenewed: () => { window.renewed = (window.renewed ?? 0) + 1 } } })
		await window.client.get("/auth/devices")
		await fetch("/test/expire", { method: "POST" })`, nil)
	const thrice = `window.calls = Promise.all([1, 2, 3].map(() => window.client.get("/auth/devices")))`
	other.Run(thrice+"; return 0", nil)
	page.Run("await ("+thrice+")", nil)
	other.Run("await window.calls", nil)
	var renewed, again int
	page.Run(`return window.renewed`, &renewed)
	other.Run(`return window.renewed`, &again)
	if renewed != 1 || again != 2 {
		t.Errorf("the tabs renewed %d and %d times, want 1 and 2", renewed, again)
	}

	// Cookies alone authenticate too, with the CSRF token of the page.
	page.Run(`
		const kit = await import("/client/index.js")
		const cookies = kit.createClient()
		const made = await cookies.post("/multiplayer/games/{game}", undefined, { path: { game: "duel" }, idempotencyKey: true })
		if (!made.id) throw new Error("no session")
		// So do they where another token hides that of the session: of a neighbor, or of an earlier sign-in.
		history.pushState(null, "", "/client/page")
		document.cookie = "kit_csrf=neighbor; path=/client"
		await kit.createClient({ credentials: { accessToken: "" } }).get("/auth/devices") // by the refresh token's cookie
		await kit.createClient().post("/multiplayer/games/{game}", undefined, { path: { game: "duel" }, idempotencyKey: true })
		for (const hidden of ["stale", "%"]) {
			document.cookie = "kit_csrf=" + hidden
			for (const client of [cookies, kit.createClient()])
				await client.post("/multiplayer/games/{game}", undefined, { path: { game: "duel" }, idempotencyKey: true })
		}`, nil)
}
