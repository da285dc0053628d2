package email_test

import (
	"encoding/base64"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/kitbackend/kit"
	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/email"
	"github.com/kitbackend/kit/kittest"
)

// mounted is email mounted in a kit.
type mounted struct {
	*kittest.Kit
	t    *testing.T
	mail *email.Email
}

func mount(t *testing.T, cfg email.Config, opts ...kit.Option) *mounted {
	t.Helper()
	m := &mounted{t: t}
	m.Kit = composedFor(t, &m.mail, cfg, opts...)
	return m
}

// composedFor composes a kit with only email, which it stores in mail.
func composedFor(t testing.TB, mail **email.Email, cfg email.Config, opts ...kit.Option) *kittest.Kit {
	t.Helper()
	cfg.From = "Acme <hello@acme.example>"
	return kittest.New(t, append([]kit.Option{
		kit.WithBaseURL("https://app.example"),
		kit.WithCapability(func(k *kit.Kit) (part capability.Capability, err error) {
			if *mail, err = email.New(k.Host(), cfg, email.Peers{}); err != nil {
				return part, err
			}
			return (*mail).Capability(), nil
		}),
	}, opts...)...)
}

// delivered sends a message and returns it as stored in the mailbox.
func (m *mounted) delivered(message email.Message) email.Kept {
	m.t.Helper()
	if _, err := m.mail.Send(m.t.Context(), message); err != nil {
		m.t.Fatal(err)
	}
	m.RunJobs()
	kept, ok, err := m.mail.LastMail(m.t.Context(), message.To)
	if err != nil || !ok {
		m.t.Fatalf("no mail: %v", err)
	}
	return kept
}

func path(link string) string { return strings.TrimPrefix(link, "https://app.example") }

// longest is the longest link that is tracked.
var longest = "https://acme.example/" + strings.Repeat("l", 320)

func newsletter() email.Message {
	return email.Message{
		To: "ada@example.com", Category: email.CategoryList, Subject: "News",
		HTML: `<body><a href="https://acme.example/a?x=1&amp;y=2">Read</a> <a href="mailto:a@b.c">Write</a> <a data-no-track href="https://acme.example/plain">Plain</a> <a href="#top">Top</a> <a href="javascript:alert(1)">Bad</a></body>`,
	}
}

func unsubscribeLink(kept email.Kept) string {
	return path(strings.Trim(kept.Header("List-Unsubscribe"), "<>"))
}

func (m *mounted) suppressed(to string) string {
	m.t.Helper()
	s, held, err := m.mail.Suppression(m.t.Context(), to)
	if err != nil {
		m.t.Fatal(err)
	}
	if !held {
		return ""
	}
	return string(s.Scope)
}

// TestScanner follows every link of a mail like a mail gateway, with every method that programs use
// on their own: nothing changes for the reader.
func TestScanner(t *testing.T) {
	m := mount(t, email.Config{Tracking: email.Tracking{Clicks: true, Opens: true}})
	kept := m.delivered(newsletter())
	if len(kept.Links) < 3 {
		t.Fatalf("links: %v", kept.Links)
	}
	links := append(kept.Links, "https://app.example"+unsubscribeLink(kept))
	for _, link := range links {
		if !strings.HasPrefix(link, "https://app.example/") {
			continue
		}
		for _, method := range []string{"GET", "HEAD", "OPTIONS"} {
			r := m.Anonymous().With("User-Agent", "Mozilla/5.0 (compatible; LinkScanner)").Do(method, path(link), nil)
			if cookie := r.Header.Get("Set-Cookie"); cookie != "" {
				t.Errorf("%s %s sets %s", method, link, cookie)
			}
		}
		m.Anonymous().With("Content-Type", "application/x-www-form-urlencoded").Post(path(link), "")
	}
	if scope := m.suppressed("ada@example.com"); scope != "" {
		t.Errorf("the scanner unsubscribed the reader: %s", scope)
	}
	jobs, err := m.mail.ListJobs(t.Context(), email.JobFilter{}, capability.NewPage(0, ""))
	if err != nil {
		t.Fatal(err)
	}
	job, err := m.mail.Job(t.Context(), jobs.Items[0].ID)
	if err != nil {
		t.Fatal(err)
	}
	clicks := 0
	for _, event := range job.Events {
		if event.Type == "clicked" {
			clicks++
		}
		if !event.Machine {
			t.Errorf("taken for a person: %+v", event)
		}
	}
	if clicks != 1 {
		t.Errorf("%d clicks of one followed link (HEAD counts for none)", clicks)
	}
}

func TestUnsubscribe(t *testing.T) {
	m := mount(t, email.Config{})
	form := m.Anonymous().With("Content-Type", "application/x-www-form-urlencoded")
	link := unsubscribeLink(m.delivered(newsletter()))

	page := form.Get(link)
	if page.Status != 200 || !strings.Contains(string(page.Body), "<form method=\"post\">") || m.suppressed("ada@example.com") != "" {
		t.Errorf("%d %s", page.Status, page.Body)
	}
	if policy := page.Header.Get("Content-Security-Policy"); !strings.Contains(policy, "default-src 'none'") || page.Header.Get("X-Robots-Tag") != "noindex" {
		t.Errorf("%v", page.Header)
	}
	for _, at := range []string{link, "/_kit/email/u/x"} { // the page names the application and links back
		if body := string(m.Anonymous().Get(at).Body); !strings.Contains(body, `<header><a href="/">Acme</a>`) || !strings.Contains(body, `<a href="/">Back to Acme</a>`) {
			t.Errorf("%s: %s", at, body)
		}
	}
	for range 2 { // the same click twice
		response := form.Post(link, "List-Unsubscribe=One-Click")
		if response.Status != 200 || len(response.Body) > 0 || response.Header.Get("Set-Cookie")+response.Header.Get("Location") != "" {
			t.Errorf("%d %s %v", response.Status, response.Body, response.Header)
		}
	}
	if scope := m.suppressed("ada@example.com"); scope != "list" {
		t.Errorf("after one click: %q", scope)
	}
	if body := form.Post(link, "do=resubscribe").Body; m.suppressed("ada@example.com") != "" || !strings.Contains(string(body), "subscribed again") {
		t.Errorf("%s", body)
	}
	multi := m.Anonymous().With("Content-Type", "multipart/form-data; boundary=b")
	multi.Post(link, "--b\r\nContent-Disposition: form-data; name=\"List-Unsubscribe\"\r\n\r\nOne-Click\r\n--b--\r\n")
	if scope := m.suppressed("ada@example.com"); scope != "list" {
		t.Errorf("after one click as multipart: %q", scope)
	}
	form.Post(link, "do=unsubscribe-all")
	if scope := m.suppressed("ada@example.com"); scope != "all" {
		t.Errorf("after all: %q", scope)
	}
	// A link never expires, and only affects its own suppression.
	m.Clock.Advance(5 * 365 * 24 * time.Hour)
	form.Post(link, "do=resubscribe")
	if _, err := m.mail.Ingest(t.Context(), []email.Report{{Kind: email.ReportComplaint, Recipient: "ada@example.com"}}); err != nil {
		t.Fatal(err)
	}
	form.Post(link, "do=resubscribe")
	if scope := m.suppressed("ada@example.com"); scope != "all" {
		t.Errorf("a link took a complaint back")
	}
	for range 60 {
		form.Get(link)
	}
	form.Get(link).Want(429, "kit/rate_limited")

	if on := mount(t, email.Config{UnsubscribeOnGet: true}); true {
		on.Anonymous().Get(unsubscribeLink(on.delivered(newsletter())))
		if scope := on.suppressed("ada@example.com"); scope != "list" {
			t.Errorf("configured to act on GET: %q", scope)
		}
	}
}

func TestClickAndOpen(t *testing.T) {
	m := mount(t, email.Config{Tracking: email.Tracking{Clicks: true, Opens: true}, CallbackPath: "/cb"})
	message := newsletter()
	message.HTML += `<a href="` + longest + `">1</a> <a href="` + longest + `x">2</a>`
	kept := m.delivered(message)
	for _, whole := range []string{longest + "x", `href="mailto:a@b.c"`, `href="https://acme.example/plain"`, `href="#top"`, `href="javascript:alert(1)"`} {
		if !strings.Contains(kept.HTML, whole) {
			t.Errorf("%s was rewritten: %s", whole, kept.HTML)
		}
	}
	var click, open string
	for _, part := range strings.Split(kept.HTML, `"`) {
		switch {
		case strings.HasPrefix(part, "https://app.example/cb/c/"):
			if click == "" {
				click = path(part)
			} else if to := m.Anonymous().Get(path(part)).Header.Get("Location"); to != longest {
				t.Errorf("the longest link leads to %q", to)
			}
		case strings.HasPrefix(part, "https://app.example/cb/o/"):
			open = path(part)
		}
	}
	m.Clock.Advance(time.Minute)
	person := m.Anonymous().With("User-Agent", "Mozilla/5.0 (X11; Linux) Firefox/130")
	response := person.Get(click)
	if response.Status != 302 || response.Header.Get("Location") != "https://acme.example/a?x=1&y=2" ||
		response.Header.Get("Referrer-Policy") != "no-referrer" || response.Header.Get("Cache-Control") != "no-store" {
		t.Errorf("%d %v", response.Status, response.Header)
	}
	for link, machine := range map[string]string{open: "Mozilla/5.0", open + "x": "", "/cb/o/bad": ""} {
		image := person.With("User-Agent", machine).Get(link)
		if image.Status != 200 || len(image.Body) != 43 || image.Header.Get("Content-Type") != "image/gif" {
			t.Errorf("%s: %d, %d bytes, %v", link, image.Status, len(image.Body), image.Header)
		}
	}
	jobs, _ := m.mail.ListJobs(t.Context(), email.JobFilter{}, capability.NewPage(0, ""))
	job, err := m.mail.Job(t.Context(), jobs.Items[0].ID)
	if err != nil || len(job.Events) != 3 || job.Events[1].Machine || job.Events[1].URL == "" || !job.Events[2].Machine {
		t.Errorf("%+v %v", job.Events, err)
	}
	m.Clock.Advance(401 * 24 * time.Hour) // the reader is redirected, nothing is recorded
	if response := person.Get(click); response.Status != 302 {
		t.Errorf("an old link: %d", response.Status)
	}
	for range 300 {
		person.Get(open)
	}
	m.Clock.Advance(-400 * 24 * time.Hour)
	for range 300 {
		person.Get(open)
	}
	if job, _ = m.mail.Job(t.Context(), job.ID); len(job.Events) != 200 {
		t.Errorf("a link wrote %d events", len(job.Events))
	}
}

// TestForgedTokens tries tokens of another kind, changed in every byte, truncated, and signed with
// another key.
func TestForgedTokens(t *testing.T) {
	m := mount(t, email.Config{Tracking: email.Tracking{Clicks: true, Opens: true}})
	kept := m.delivered(newsletter())
	other := mount(t, email.Config{Tracking: email.Tracking{Clicks: true}})
	foreign := unsubscribeLink(other.delivered(newsletter()))
	click := ""
	for _, link := range kept.Links {
		if strings.Contains(link, "/_kit/email/c/") {
			click = strings.TrimPrefix(path(link), "/_kit/email/c/")
		}
	}
	unsubscribe := strings.TrimPrefix(unsubscribeLink(kept), "/_kit/email/u/")
	reject := func(kind, token string) {
		t.Helper()
		for _, method := range []string{"GET", "POST"} {
			if method == "POST" && kind == "c" {
				continue
			}
			// Each request is from another address, because visits are limited.
			client := m.Anonymous().With("Content-Type", "application/x-www-form-urlencoded")
			response := client.Do(method, "/_kit/email/"+kind+"/"+url.PathEscape(token), "List-Unsubscribe=One-Click")
			if response.Status == 429 {
				m.Clock.Advance(time.Hour)
				response = client.Do(method, "/_kit/email/"+kind+"/"+url.PathEscape(token), "List-Unsubscribe=One-Click")
			}
			if response.Status != 404 || response.Header.Get("Location") != "" || !strings.Contains(string(response.Body), "email/invalid_token") {
				t.Fatalf("%s %s %q: %d %v", method, kind, token, response.Status, response.Header)
			}
		}
	}
	reject("u", click)
	reject("c", unsubscribe)
	reject("u", strings.TrimPrefix(foreign, "/_kit/email/u/"))
	for kind, token := range map[string]string{"u": unsubscribe, "c": click} {
		left, right, _ := strings.Cut(token, ".")
		head, _ := base64.RawURLEncoding.DecodeString(left)
		sum, _ := base64.RawURLEncoding.DecodeString(right)
		write := func(head, sum []byte) string {
			return base64.RawURLEncoding.EncodeToString(head) + "." + base64.RawURLEncoding.EncodeToString(sum)
		}
		for i := range head {
			altered := append([]byte{}, head...)
			altered[i] ^= 1
			reject(kind, write(altered, sum))
		}
		for i := range sum {
			altered := append([]byte{}, sum...)
			altered[i] ^= 1
			reject(kind, write(head, altered))
		}
		reject(kind, write(head[:len(head)-1], sum))
		reject(kind, write(head, sum[:15]))
		reject(kind, write(head, nil))
		reject(kind, token+"x")
		reject(kind, left)
		reject(kind, strings.Repeat("A", 512))
	}
	if scope := m.suppressed("ada@example.com"); scope != "" {
		t.Errorf("a forged token suppressed: %s", scope)
	}
}

// FuzzClick compares the allowed targets with how a browser would parse them.
func FuzzClick(f *testing.F) {
	for _, seed := range []string{"https://acme.example/a", "//evil.example", "https:evil.example", "http://a@evil.example", "https://evil.example\\@acme.example",
		"javascript:alert(1)", "https://acme.example\r\nSet-Cookie: a=b", "/\\evil.example", "https:///evil.example", "data:text/html,x", " https://acme.example"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, link string) {
		if !email.Redirectable(link) {
			return
		}
		u, err := url.Parse(link)
		if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" || u.User != nil {
			t.Errorf("%q would be redirected to", link)
		}
		if strings.ContainsAny(link, "\r\n\t\x00\\") || !strings.HasPrefix(strings.ToLower(link), u.Scheme+"://") {
			t.Errorf("%q reads differently in a browser", link)
		}
	})
}

// FuzzToken checks that a token without a valid signature never redirects.
func FuzzToken(f *testing.F) {
	f.Add("AQFj", "https://evil.example")
	f.Add("x.y", "//evil.example")
	var m *mounted
	f.Fuzz(func(t *testing.T, token, dest string) {
		if m == nil {
			m = mount(t, email.Config{})
		}
		for _, kind := range []string{"c", "u", "o"} {
			target := "/_kit/email/" + kind + "/" + url.PathEscape(token) + "?url=" + url.QueryEscape(dest) + "&dest=" + url.QueryEscape(dest)
			r := m.Anonymous().Get(target)
			if r.Status/100 == 3 || r.Header.Get("Location") != "" {
				t.Errorf("%s leads to %s", target, r.Header.Get("Location"))
			}
		}
	})
}

func TestMailboxPage(t *testing.T) {
	m := mount(t, email.Config{}, kit.WithEnvironment(capability.Development))
	kept := m.delivered(email.Message{To: "ada@example.com", Subject: "<b>Hi</b>", HTML: `<script>alert(1)</script><a href="https://acme.example/x">x</a>`})
	get := func(path string, change ...func(*http.Request)) *kittest.Response {
		t.Helper()
		return fromLocalhost(t, m.Kit, path, change...)
	}
	list := get("/__kit/mailbox")
	if list.Status != 200 || !strings.Contains(string(list.Body), "&lt;b&gt;Hi&lt;/b&gt;") {
		t.Errorf("%d %s", list.Status, list.Body)
	}
	page := get("/__kit/mailbox/" + kept.ID)
	for _, want := range []string{"sandbox=", "https://acme.example/x", "Message-Id", "/__kit/mailbox/" + kept.ID + "/html"} {
		if !strings.Contains(string(page.Body), want) {
			t.Errorf("the page has no %s", want)
		}
	}
	frame := get("/__kit/mailbox/" + kept.ID + "/html")
	policy := frame.Header.Get("Content-Security-Policy")
	if !strings.HasPrefix(policy, "sandbox ") || strings.Contains(policy, "allow-scripts") || strings.Contains(policy, "allow-same-origin") ||
		!strings.Contains(policy, "default-src 'none'") || frame.Header.Get("X-Frame-Options") != "SAMEORIGIN" {
		t.Errorf("%v", frame.Header)
	}
	get("/__kit/mailbox/absent").Want(404, "kit/not_found")
	for name, change := range map[string]func(*http.Request){
		"another machine": func(r *http.Request) { r.RemoteAddr = "192.0.2.1:5000" },
		"another name":    func(r *http.Request) { r.Host = "evil.example" },
		"another site":    func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "cross-site") },
		"a proxy":         func(r *http.Request) { r.Header.Set("X-Forwarded-For", "192.0.2.1") },
	} {
		for _, path := range []string{"/__kit/mailbox", "/__kit/mailbox/" + kept.ID, "/__kit/mailbox/" + kept.ID + "/html"} {
			if r := get(path, change); r.Status != 404 || strings.Contains(string(r.Body), "Hi") {
				t.Errorf("%s reads %s: %d", name, path, r.Status)
			}
		}
	}
	mount(t, email.Config{}, kit.WithEnvironment(capability.Sandbox)).Anonymous().Get("/__kit/mailbox").Want(404, "kit/not_found")
}
