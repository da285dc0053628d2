package main

import (
	"context"
	"crypto/hmac"
	"crypto/sha1"
	"encoding/base32"
	"encoding/binary"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/kitbackend/kit"
	"github.com/kitbackend/kit/audit"
	"github.com/kitbackend/kit/auth"
	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/email"
)

const (
	address  = "ada@example.org"
	password = "correct horse battery"
)

// startSite serves the page and its backend at localhost, whose pages browsers
// let use passkeys, without the limits of one address.
func startSite(t *testing.T) (*kit.Kit, string) {
	t.Helper()
	db, err := database.OpenMemory()
	check(t, err)
	t.Cleanup(func() { _ = db.Close() })
	listener, err := net.Listen("tcp", "localhost:0")
	check(t, err)
	_, port, err := net.SplitHostPort(listener.Addr().String())
	check(t, err)
	base := "http://localhost:" + port
	off := auth.RateLimit{Events: -1}
	k, err := kit.New(
		kit.WithDatabase(db), kit.WithEnvironment(capability.Development), kit.WithBaseURL(base),
		kit.WithLogger(slog.New(slog.DiscardHandler)),
		kit.WithAudit(audit.Config{}), kit.WithEmail(email.Config{}),
		kit.WithAuth(auth.Config{AppName: "Quickstart", RateLimits: map[string]auth.RateLimit{
			"auth-sign-in": off, "auth-send": off, "auth-link": off}}),
	)
	check(t, err)
	server := httptest.NewUnstartedServer(site(k))
	_ = server.Listener.Close()
	server.Listener = listener
	server.Start()
	t.Cleanup(func() {
		server.Close()
		check(t, k.Close(context.Background()))
	})
	return k, base
}

// TestPage walks through the page as somebody would who meets it for the first
// time.
func TestPage(t *testing.T) {
	page := openTab(t)
	k, base := startSite(t)
	ctx := t.Context()

	page.visit(base + "/")
	page.click(`[data-show="signup"]`)
	page.fill("signup", map[string]string{"name": "Ada Lovelace", "email": address, "password": "short"})
	if page.text("#account h1") != "" {
		t.Error("signed up with a short password")
	}
	page.fill("signup", map[string]string{"password": password})
	page.see("#account")
	if page.text("#account h1") != "Ada Lovelace" || page.text("#verified") != "not confirmed" {
		t.Errorf("%s, %s", page.text("#account h1"), page.text("#verified"))
	}
	page.visit(linkOf(t, k))
	page.click("button")
	page.until(`document.querySelector("#verified").textContent === "confirmed"`)

	page.click(`[data-act="addpasskey"]`)
	page.until(`document.querySelectorAll("#passkeys li").length === 1`)
	page.click(`[data-act="signout"]`)
	page.click(`[data-act="passkey"]`)
	page.see("#account")

	page.fill("enable", map[string]string{"password": "wrong password"})
	page.until(`document.querySelector('[data-form="enable"] .error').textContent === "Invalid password"`)
	page.fill("enable", map[string]string{"password": password})
	page.see("#qr svg")
	secret := strings.ReplaceAll(page.text("#secret"), " ", "")
	now := time.Now()
	page.fill("confirm", map[string]string{"code": codeAt(t, secret, now)})
	page.until(`document.querySelectorAll("#codes li").length === 10`)
	backup := page.text("#codes li")
	page.click(`[data-act="saved"]`)

	page.click(`[data-act="signout"]`)
	page.fill("password", map[string]string{"email": address, "password": password})
	page.fill("second", map[string]string{"code": "000000"})
	page.until(`document.querySelector('[data-form="second"] .error').textContent === "Invalid code"`)
	page.fill("second", map[string]string{"code": codeAt(t, secret, now.Add(30*time.Second))}) // the first one is spent
	page.see("#account")

	page.click(`[data-act="signout"]`)
	page.see("#signin")
	sendMail(t, k) // what waits, so that the next one is the last
	page.setEmail(address)
	page.click(`[data-act="link"]`)
	page.see("#sent")
	page.visit(linkOf(t, k)) // in the browser that asked for it: no button
	page.click(`[data-act="backup"]`)
	page.fill("second", map[string]string{"code": backup})
	page.see("#account")

	user, _, err := k.Auth().UserByEmail(ctx, address)
	check(t, err)
	_, err = k.Auth().CreateSession(ctx, user.ID) // somewhere else
	check(t, err)
	page.visit(base + "/")
	page.until(`document.querySelectorAll("#devices li").length === 2`)
	page.click(`#devices li:not(:has(.badge)) button`)
	page.until(`document.querySelectorAll("#devices li").length === 1`)
	if sessions, err := k.Auth().Sessions(ctx, user.ID); err != nil || len(sessions) != 1 {
		t.Errorf("%d sessions, %v", len(sessions), err)
	}

	page.click("#passkeys button")
	page.until(`document.querySelectorAll("#passkeys li").length === 0`)
	page.fill("disable", map[string]string{"password": password})
	page.until(`document.querySelector("#two-step").textContent === "off"`)
	page.click("#devices button") // this one
	page.see("#signin")

	sendMail(t, k) // what waits, so that the next one is the last
	page.setEmail(address)
	page.click(`[data-act="code"]`)
	page.see("#mailcode")
	page.fill("mailcode", map[string]string{"otp": inMail(t, k, `\b[0-9]{6}\b`)})
	page.see("#account")
	page.click(`[data-act="signout"]`)

	page.see("#signin")
	sendMail(t, k) // what waits, so that the next one is the last
	page.setEmail(address)
	page.click(`[data-act="forgot"]`)
	page.see("#sent")
	page.visit(linkOf(t, k))
	page.fill("reset", map[string]string{"newPassword": "another " + password})
	page.fill("password", map[string]string{"email": address, "password": "another " + password})
	page.see("#account")

	page.mu.Lock()
	defer page.mu.Unlock()
	for _, entry := range page.blocked {
		if !strings.Contains(entry, `"level":"verbose"`) && !strings.Contains(entry, "status of 4") { // the refusals above
			t.Errorf("the browser complained: %s", entry)
		}
	}
}

// setEmail names who wants to sign in.
func (b *tab) setEmail(address string) {
	b.t.Helper()
	_, err := b.run(fmt.Sprintf(`document.querySelector('#signin [name="email"]').value = %q`, address))
	check(b.t, err)
}

func linkOf(t *testing.T, k *kit.Kit) string { t.Helper(); return inMail(t, k, `https?://\S+`) }

// inMail finds a pattern in the last mail.
func inMail(t *testing.T, k *kit.Kit, pattern string) string {
	t.Helper()
	sendMail(t, k)
	mail, _, err := k.Email().LastMail(t.Context(), address)
	check(t, err)
	text := regexp.MustCompile(pattern).FindString(mail.Text)
	if text == "" {
		t.Fatalf("no %s in %q", pattern, mail.Text)
	}
	return text
}

func sendMail(t *testing.T, k *kit.Kit) {
	t.Helper()
	_, err := k.Jobs().RunDue(t.Context())
	check(t, err)
}

// codeAt is what an authenticator shows (RFC 6238).
func codeAt(t *testing.T, secret string, at time.Time) string {
	t.Helper()
	key, err := base32.StdEncoding.WithPadding(base32.NoPadding).DecodeString(secret)
	check(t, err)
	mac := hmac.New(sha1.New, key)
	mac.Write(binary.BigEndian.AppendUint64(nil, uint64(at.Unix()/30)))
	sum := mac.Sum(nil)
	offset := sum[len(sum)-1] & 0xf
	return fmt.Sprintf("%06d", binary.BigEndian.Uint32(sum[offset:])&0x7fffffff%1_000_000)
}

// The page runs under a policy without inline scripts, at its own path alone.
func TestSite(t *testing.T) {
	_, base := startSite(t)
	for path, want := range map[string]int{"/": 200, "/app.js": 200, "/style.css": 200, "/nowhere": 404, "/health": 200} {
		resp, err := http.Get(base + path)
		check(t, err)
		_ = resp.Body.Close()
		if resp.StatusCode != want || path != "/health" && !strings.Contains(resp.Header.Get("Content-Security-Policy"), "default-src 'none'") {
			t.Errorf("%s: %s, %v", path, resp.Status, resp.Header)
		}
	}
}
