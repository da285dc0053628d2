package main

import (
	"io"
	"log/slog"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/kitbackend/kit"
	"github.com/kitbackend/kit/internal/browsertest"
)

// serve runs the shop and returns its URL.
func serve(t *testing.T) string {
	t.Helper()
	var handler http.Handler
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { handler.ServeHTTP(w, r) }))
	s, err := open(t.Context(), server.URL, kit.WithLogger(slog.New(slog.DiscardHandler)))
	if err != nil {
		t.Fatal(err)
	}
	handler = s.handler()
	t.Cleanup(func() {
		server.Close()
		if err := s.kit.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
	return server.URL
}

// TestShop buys at every rail and checks the effects of the buttons.
func TestShop(t *testing.T) {
	base := serve(t)
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	client := &http.Client{Jar: jar}
	read := func(resp *http.Response, err error) (int, string) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, string(body)
	}
	post := func(path string, form url.Values) string {
		t.Helper()
		status, body := read(client.PostForm(base+path, form))
		if status != 200 {
			t.Fatalf("%s %v: %d %s", path, form, status, body)
		}
		return body
	}
	if status, _ := read(client.Get(base + "/members")); status != 401 {
		t.Errorf("a stranger got %d from the members' page, want 401", status)
	}
	post("/enter", url.Values{"user": {"ada"}})
	if status, body := read(client.Get(base + "/members")); status != 403 || !strings.Contains(body, "payments/entitlement_required") {
		t.Errorf("not a member yet: %d %s", status, body)
	}
	n := 0
	for _, rail := range []string{"ios_store", "android_store", "card_processor", "merchant_a", "merchant_b"} {
		if body := post("/buy", url.Values{"rail": {rail}, "product": {"coins"}}); !strings.Contains(body, `<b id="coins">100</b>`) {
			t.Errorf("%s: no 100 coins", rail)
		}
		if body := post("/act", url.Values{"n": {itoa(n)}, "do": {"refund"}}); !strings.Contains(body, `<b id="coins">0</b>`) {
			t.Errorf("%s: the coins stay after a refund", rail)
		}
		n++
		if body := post("/buy", url.Values{"rail": {rail}, "product": {"membership"}}); !strings.Contains(body, `data-key="members"`) {
			t.Errorf("%s: not a member", rail)
		}
		if status, _ := read(client.Get(base + "/members")); status != 200 {
			t.Errorf("%s: %d from the members' page, want 200", rail, status)
		}
		if body := post("/act", url.Values{"n": {itoa(n)}, "do": {"hold"}}); strings.Contains(body, `data-key="members"`) {
			t.Errorf("%s: a member on hold", rail)
		}
		if status, _ := read(client.Get(base + "/members")); status != 403 {
			t.Errorf("%s: %d from the members' page on hold, want 403", rail, status)
		}
		n++
		if body := post("/buy", url.Values{"rail": {rail}, "product": {"membership"}}); strings.Contains(body, `data-key="patrons"`) {
			t.Errorf("%s: a patron without an upgrade", rail)
		}
		if body := post("/act", url.Values{"n": {itoa(n)}, "do": {"upgrade"}}); !strings.Contains(body, `data-key="patrons"`) {
			t.Errorf("%s: no patron after an upgrade", rail)
		}
		if body := post("/act", url.Values{"n": {itoa(n)}, "do": {"refund"}}); strings.Contains(body, `data-key="patrons"`) {
			t.Errorf("%s: a patron after a refund", rail)
		}
		n++
	}
	family := url.Values{"rail": {"ios_store"}, "product": {"map"}, "shared": {"on"}}
	if body := post("/buy", family); !strings.Contains(body, `data-key="map"`) {
		t.Error("what the family shares does not grant")
	}
	if body := post("/act", url.Values{"n": {itoa(n)}, "do": {"unshare"}}); strings.Contains(body, `data-key="map"`) {
		t.Error("what the family took back grants")
	}
}

func itoa(n int) string { return string(rune('0'+n/10)) + string(rune('0'+n%10)) }

// TestInABrowser buys and makes a charge fail in a real browser.
func TestInABrowser(t *testing.T) {
	b := browsertest.Start(t)
	tab := b.Open(serve(t) + "/")
	var text string
	click := func(selector, want string) {
		t.Helper()
		tab.Run(`(await until(() => $("`+selector+`"))).click(); return ""`, &text)
		tab.Run(`await until(() => document.readyState === "complete" && (`+want+`)); return document.body.innerText`, &text)
	}
	click("#enter button", `$("#user")`)
	click("[data-product=coins] button", `$("#coins").textContent === "100"`)
	click("[data-product=membership] button", `$("[data-key=members]")`)
	click("[data-n='1'] button[value=grace]", `$("[data-key=members]").textContent.includes("in grace")`)
	click("[data-n='1'] button[value=hold]", `!$("[data-key=members]")`)
	click("[data-n='1'] button[value=recover]", `$("[data-key=members]")`)
	click("[data-n='0'] button[value=refund]", `$("#coins").textContent === "0"`)
	if !strings.Contains(text, "membership at ios_store") {
		t.Error(text)
	}
}
