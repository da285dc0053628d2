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
	"github.com/kitbackend/kit/internal/browsertest"
	"github.com/kitbackend/kit/internal/npmtest"
)

const (
	address  = "ada@example.org"
	password = "correct horse battery"
)

// startSite serves the page and its backend at localhost, where browsers allow passkeys, without
// the rate limits by address. before may wrap the handler.
func startSite(t *testing.T, before func(k *kit.Kit, site http.Handler) http.Handler) (*kit.Kit, string) {
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
		kit.WithAudit(audit.Config{}), kit.WithEmail(email.Config{From: "Quickstart <quickstart@localhost>"}),
		kit.WithAuth(auth.Config{AppName: "Quickstart", RateLimits: map[string]auth.RateLimit{
			"auth-sign-in": off, "auth-send": off, "auth-link": off}}),
	)
	check(t, err)
	server := httptest.NewUnstartedServer(before(k, site(k)))
	_ = server.Listener.Close()
	server.Listener = listener
	server.Start()
	t.Cleanup(func() {
		server.Close()
		check(t, k.Close(context.Background()))
	})
	return k, base
}

// TestPage uses the page as a new user would. If the validating proxy is available, all requests
// and responses of the page must conform to the document.
func TestPage(t *testing.T) {
	t.Parallel()
	browser := browsertest.Start(t)
	var between *front
	k, base := startSite(t, func(k *kit.Kit, site http.Handler) http.Handler {
		if npmtest.Folder() == "" {
			return site
		}
		between = startFront(t, k, site)
		return between
	})
	ctx := t.Context()
	if between != nil {
		between.finds(t, base)
		defer between.found(t)
	}

	page := browser.Open(base + "/")
	// An authenticator that consents to everything.
	page.Call("WebAuthn.enable", nil, nil)
	page.Call("WebAuthn.addVirtualAuthenticator", map[string]any{"options": map[string]any{
		"protocol": "ctap2", "transport": "internal", "hasResidentKey": true, "hasUserVerification": true,
		"isUserVerified": true, "automaticPresenceSimulation": true,
	}}, nil)
	page.See("#signin")
	page.Accessible("sign-in")
	page.Click(`[data-show="signup"]`)
	fill(page, "signup", map[string]string{"name": "Ada Lovelace", "email": address, "password": "short"})
	if page.Text("#account h1") != "" {
		t.Error("signed up with a short password")
	}
	fill(page, "signup", map[string]string{"password": password})
	page.See("#account")
	if page.Text("#account h1") != "Ada Lovelace" || page.Text("#verified") != "not confirmed" {
		t.Errorf("%s, %s", page.Text("#account h1"), page.Text("#verified"))
	}
	page.Accessible("account")
	page.Visit(linkOf(t, k))
	page.See("main form button")
	page.Accessible("confirm")
	page.Click("button")
	page.Until(`document.querySelector("#verified").textContent === "confirmed"`)

	page.Click(`[data-act="addpasskey"]`)
	page.Until(`document.querySelectorAll("#passkeys li").length === 1`)
	page.Click(`[data-act="signout"]`)
	page.Click(`[data-act="passkey"]`)
	page.See("#account")

	fill(page, "enable", map[string]string{"password": "wrong password"})
	page.Until(`document.querySelector('[data-form="enable"] .error').textContent === "Invalid password"`)
	fill(page, "enable", map[string]string{"password": password})
	page.See("#qr svg")
	secret := strings.ReplaceAll(page.Text("#secret"), " ", "")
	now := time.Now()
	fill(page, "confirm", map[string]string{"code": codeAt(t, secret, now)})
	page.Until(`document.querySelectorAll("#codes li").length === 10`)
	backup := page.Text("#codes li")
	page.Click(`[data-act="saved"]`)

	page.Click(`[data-act="signout"]`)
	fill(page, "password", map[string]string{"email": address, "password": password})
	fill(page, "second", map[string]string{"code": "000000"})
	page.Until(`document.querySelector('[data-form="second"] .error').textContent === "Invalid code"`)
	fill(page, "second", map[string]string{"code": codeAt(t, secret, now.Add(30*time.Second))}) // the first one is used
	page.See("#account")

	page.Click(`[data-act="signout"]`)
	page.See("#signin")
	sendMail(t, k) // what is queued, so that the next one is the last
	page.Fill(`#signin [name="email"]`, address)
	page.Click(`[data-act="link"]`)
	page.See("#sent")
	page.Visit(linkOf(t, k)) // in the browser that requested it: no button
	page.Click(`[data-act="backup"]`)
	fill(page, "second", map[string]string{"code": backup})
	page.See("#account")

	user, _, err := k.Auth().UserByEmail(ctx, address)
	check(t, err)
	_, err = k.Auth().CreateSession(ctx, user.ID) // on another device
	check(t, err)
	page.Visit(base + "/")
	page.Until(`document.querySelectorAll("#devices li").length === 2`)
	page.Click(`#devices li:not(:has(.badge)) button`)
	page.Until(`document.querySelectorAll("#devices li").length === 1`)
	if sessions, err := k.Auth().Sessions(ctx, user.ID); err != nil || len(sessions) != 1 {
		t.Errorf("%d sessions, %v", len(sessions), err)
	}

	page.Click("#passkeys button")
	page.Until(`document.querySelectorAll("#passkeys li").length === 0`)
	fill(page, "disable", map[string]string{"password": password})
	page.Until(`document.querySelector("#two-step").textContent === "off"`)
	page.Click("#devices button") // this one
	page.See("#signin")

	sendMail(t, k) // what is queued, so that the next one is the last
	page.Fill(`#signin [name="email"]`, address)
	page.Click(`[data-act="code"]`)
	page.See("#mailcode")
	fill(page, "mailcode", map[string]string{"otp": inMail(t, k, `\b[0-9]{6}\b`)})
	page.See("#account")
	page.Click(`[data-act="signout"]`)

	page.See("#signin")
	sendMail(t, k) // what is queued, so that the next one is the last
	page.Fill(`#signin [name="email"]`, address)
	page.Click(`[data-act="forgot"]`)
	page.See("#sent")
	page.Visit(linkOf(t, k))
	fill(page, "reset", map[string]string{"newPassword": "another " + password})
	fill(page, "password", map[string]string{"email": address, "password": "another " + password})
	page.See("#account")

	lookAtPages(t, k, page, base)

	for _, entry := range page.Complaints() {
		if !strings.Contains(entry, `"level":"verbose"`) && !strings.Contains(entry, "status of 4") { // the refusals above
			t.Errorf("the browser complained: %s", entry)
		}
	}
}

// lookAtPages checks the pages around the application: each names the application, links back to
// it, is readable on a phone, and shows only successes in green.
func lookAtPages(t *testing.T, k *kit.Kit, page *browsertest.Tab, base string) {
	t.Helper()
	page.Visit(base + "/?error=INVALID_TOKEN")
	page.Until(`document.querySelector("#notice").textContent.startsWith("That link is not good any more")`)
	var color string
	page.Run(`return getComputedStyle(document.querySelector("#notice")).color`, &color)
	if color != "rgb(179, 38, 30)" {
		t.Errorf("an expired link is shown in %s", color)
	}
	page.Accessible("expired")

	sendMail(t, k) // what waits, so that the next one is the last
	page.Run(fmt.Sprintf(`return fetch("/auth/request-password-reset", {method: "POST", headers: {"Content-Type": "application/json"},
		body: JSON.stringify({email: %q})}).then((response) => response.ok)`, address), nil)
	page.Visit(linkOf(t, k)) // names no page of the application
	page.Until(`document.querySelector("h1").textContent === "Choose a new password"`)
	page.Accessible("reset")
	for _, step := range []struct{ password, title, code string }{
		{"short", "Choose a new password", "PASSWORD_TOO_SHORT"}, {"a third " + password, "Your password is set", ""},
	} {
		page.Fill(`[name="newPassword"]`, step.password)
		page.Click("button")
		page.Until(fmt.Sprintf(`document.querySelector("h1").textContent === %q && (document.querySelector("small")?.textContent ?? "") === %q`, step.title, step.code))
		page.Accessible("reset " + step.title)
	}
	sendMail(t, k)

	_, err := k.Email().Send(t.Context(), email.Message{To: address, Subject: "News", Text: "There are news.", Category: email.CategoryList})
	check(t, err)
	sendMail(t, k)
	mail, _, err := k.Email().LastMail(t.Context(), address)
	check(t, err)
	leave := strings.Trim(mail.Header("List-Unsubscribe"), "<>")
	for name, at := range map[string]string{
		"error": base + "/auth/error?error=state_mismatch", "invalid": base + "/auth/magic-link/verify?token=x",
		"unsubscribe": leave, "unsubscribe-invalid": base + "/_kit/email/u/x",
	} {
		page.Visit(at)
		page.Until(`location.href === ` + fmt.Sprintf("%q", at) + ` && document.querySelector("main h1")`)
		var home string
		page.Run(`return document.querySelector("main footer a").textContent + " " + document.querySelector("main footer a").href`, &home)
		if want := "Back to Quickstart " + base + "/"; home != want {
			t.Errorf("%s leads back by %q, want %q", name, home, want)
		}
		page.Accessible(name)
	}
	page.Visit(leave)
	page.Until(`document.querySelector("h1").textContent === "Unsubscribe?"`)
	page.Click(`button[value="unsubscribe"]`)
	page.Until(`document.querySelector("h1").textContent === "You are unsubscribed"`)
	page.Accessible("unsubscribed")

	page.Visit(base + "/__kit/mailbox")
	page.See("td a")
	page.Accessible("mailbox")
	page.Click("tr:last-child a") // the first mail, which has HTML
	page.See("iframe")
	page.Accessible("mail")
}

// fill fills in the fields of a form and submits it.
func fill(page *browsertest.Tab, form string, fields map[string]string) {
	form = fmt.Sprintf(`[data-form="%s"]`, form)
	for name, value := range fields {
		page.Fill(fmt.Sprintf(`%s [name="%s"]`, form, name), value)
	}
	page.Click(form + " button")
}

func linkOf(t *testing.T, k *kit.Kit) string { t.Helper(); return inMail(t, k, `https?://\S+`) }

// inMail returns the match of a pattern in the last mail.
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

// codeAt returns the code that an authenticator shows at a time (RFC 6238).
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

// TestSite checks that the page has a policy without inline scripts, and only its own path.
func TestSite(t *testing.T) {
	_, base := startSite(t, func(_ *kit.Kit, site http.Handler) http.Handler { return site })
	for path, want := range map[string]int{"/": 200, "/app.js": 200, "/style.css": 200, "/client/index.js": 200, "/nowhere": 404, "/health": 200} {
		resp, err := http.Get(base + path)
		check(t, err)
		_ = resp.Body.Close()
		if resp.StatusCode != want || path != "/health" && !strings.Contains(resp.Header.Get("Content-Security-Policy"), "default-src 'none'") {
			t.Errorf("%s: %s, %v", path, resp.Status, resp.Header)
		}
	}
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
