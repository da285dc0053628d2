package signin_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kitbackend/kit/audit"
	"github.com/kitbackend/kit/auth"
	"github.com/kitbackend/kit/auth/signin"
	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/database/databasetest"
	"github.com/kitbackend/kit/hooks"
	"github.com/kitbackend/kit/internal/mount"
	_ "github.com/kitbackend/kit/internal/provoked" // records what the tests provoke
	"github.com/kitbackend/kit/internal/seal"
	"github.com/kitbackend/kit/jobs"
	"github.com/kitbackend/kit/pubsub"
)

var ctx = context.Background()

// clock is a time that only tests move.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// outbox keeps what would be mailed.
type outbox struct {
	mu    sync.Mutex
	mails []auth.Mail
}

func (o *outbox) SendMail(_ context.Context, m auth.Mail) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.mails = append(o.mails, m)
	return nil
}

// nobody is a mailer that is not there.
type nobody struct{ auth.Mailer }

// last returns the last mail to an address.
func (o *outbox) last(to string) (auth.Mail, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for i := len(o.mails) - 1; i >= 0; i-- {
		if o.mails[i].To == to {
			return o.mails[i], true
		}
	}
	return auth.Mail{}, false
}

func (o *outbox) count() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.mails)
}

// app is a composed auth with the library, under HTTP.
type app struct {
	*auth.LibraryHost
	t     testing.TB
	db    *database.DB
	queue *jobs.Queue
	clock *clock
	mail  *outbox
	hooks *hooks.Hooks
	base  *url.URL
	http.Handler
}

const (
	baseURL  = "https://kit.example"
	pages    = "https://app.example" // where the application's pages are
	password = "correct horse battery"
)

// unlimited switches the limits of addresses off: most stories are quicker than
// people.
var unlimited = map[string]auth.RateLimit{
	"auth-sign-in": {Events: -1}, "auth-send": {Events: -1}, "auth-link": {Events: -1},
	"sign-up": {Events: -1}, "sign-up-network": {Events: -1},
}

func open(t testing.TB, db *database.DB, cfg signin.Config) *app {
	t.Helper()
	return openAuth(t, db, auth.Config{Library: signin.Quick(cfg), RateLimits: unlimited})
}

func openAuth(t testing.TB, db *database.DB, cfg auth.Config) *app {
	t.Helper()
	return openAt(t, db, cfg, baseURL, &clock{now: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)})
}

func openAt(t testing.TB, db *database.DB, cfg auth.Config, at string, clock *clock) *app {
	t.Helper()
	return openSealed(t, db, cfg, at, clock, masterKey("k1", 1))
}

// masterKey is one of those that seal, by its id.
func masterKey(id string, fill byte) string {
	return id + ":" + base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{fill}, 32))
}

func openSealed(t testing.TB, db *database.DB, cfg auth.Config, at string, clock *clock, masterKeys string) *app {
	t.Helper()
	base, err := url.Parse(at)
	must(t, err)
	a := &app{t: t, db: db, clock: clock, mail: &outbox{}, base: base}
	db.UseClock(clock.Now)
	log := slog.New(slog.DiscardHandler)
	bus := pubsub.NewMemory()
	a.queue = jobs.New(db, bus, jobs.Options{Log: log, Now: clock.Now})
	keys, err := seal.Load(capability.Production, func(string) string { return masterKeys })
	must(t, err)
	a.hooks = hooks.New()
	host := capability.Host{
		DB: db, Jobs: a.queue, PubSub: bus, Log: log, Now: clock.Now,
		Environment: capability.Sandbox, BaseURL: base, InternalPrefix: "/__kit", Hooks: a.hooks,
		Sealing: func() (capability.Sealer, error) { return keys, nil },
	}
	trail, err := audit.New(host, audit.Config{}, audit.Peers{})
	must(t, err)
	switch cfg.Mailer {
	case nil:
		cfg.Mailer = a.mail
	case nobody{}:
		cfg.Mailer = nil
	}
	cfg.TrustedOrigins = append([]string{pages, "myapp://"}, cfg.TrustedOrigins...)
	made, err := auth.New(host, cfg, auth.Peers{Audit: trail})
	must(t, err)
	a.LibraryHost = &auth.LibraryHost{Auth: made}

	a.Handler = mounted(t, host, a.Users(), trail.Capability(), a.Capability())
	return a
}

// mounted does what the kit does with capabilities.
func mounted(t testing.TB, host capability.Host, users capability.Users, all ...capability.Capability) http.Handler {
	t.Helper()
	sets := []database.Migrations{jobs.Migrations(), mount.Migrations()}
	var entries []mount.Entry
	for _, c := range all {
		sets = append(sets, c.Lines()...)
		must(t, host.Jobs.Register(c.Jobs...))
		for _, r := range c.Routes {
			entries = append(entries, mount.Entry{Domain: c.Domain(), Route: r})
		}
		if c.Close != nil {
			t.Cleanup(func() { must(t, c.Close(ctx)) })
		}
	}
	must(t, host.DB.Migrate(ctx, sets...))
	return mount.New(mount.Config{
		Entries: entries, Users: &users, DB: host.DB, Log: host.Log, Now: host.Now, BaseURL: host.BaseURL,
	})
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// deliver sends the mails that wait and returns the last one to an address.
func (a *app) deliver(to string) auth.Mail {
	a.t.Helper()
	a.work()
	mail, ok := a.mail.last(to)
	if !ok {
		a.t.Fatalf("no mail to %s", to)
	}
	return mail
}

func (a *app) work() {
	a.t.Helper()
	_, err := a.queue.RunDue(ctx)
	must(a.t, err)
}

// meanwhile has a request wait for the row of a user and changes the user before it goes
// on. The database is PostgreSQL.
func (a *app) meanwhile(userID string, request func() *response, change func(context.Context)) *response {
	a.t.Helper()
	done := make(chan *response, 1)
	must(a.t, a.db.InTx(ctx, func(ctx context.Context) error {
		if _, err := a.db.Exec(ctx, `SELECT 1 FROM auth_user WHERE id = $1 FOR UPDATE`, userID); err != nil {
			return err
		}
		go func() { done <- request() }()
		if err := databasetest.Waits(ctx, a.db, done); err != nil {
			return err
		}
		change(ctx)
		return nil
	}))
	return <-done
}

// browser is a page of the application in a browser, with its cookies.
type browser struct {
	a       *app
	cookies map[string]string
	ip      string
	header  http.Header
}

func (a *app) browser() *browser {
	return &browser{a: a, cookies: map[string]string{}, ip: "192.0.2.1", header: http.Header{
		"Origin": {pages}, "Sec-Fetch-Site": {"same-site"}, "Sec-Fetch-Mode": {"cors"}, "Sec-Fetch-Dest": {"empty"},
	}}
}

// native is an installed application, which keeps no cookies.
func (a *app) native() *browser {
	return &browser{a: a, cookies: map[string]string{}, ip: "192.0.2.2", header: http.Header{"X-Kit-Transport": {"body"}}}
}

// with returns the same browser, sending another header; an empty value leaves
// it out.
func (b *browser) with(key, value string) *browser {
	other := *b
	other.header = b.header.Clone()
	other.header.Set(key, value)
	if value == "" {
		other.header.Del(key)
	}
	return &other
}

// at returns the same browser at another address.
func (b *browser) at(ip string) *browser {
	other := *b
	other.ip = ip
	return &other
}

// navigating returns the same browser as it opens pages, rather than a script.
func (b *browser) navigating() *browser {
	return b.with("Origin", "").with("Sec-Fetch-Site", "cross-site").with("Sec-Fetch-Mode", "navigate").with("Sec-Fetch-Dest", "document")
}

// pressing returns the same browser as it posts the form of one of our pages.
func (b *browser) pressing() *browser {
	return b.navigating().with("Origin", baseURL).with("Sec-Fetch-Site", "same-origin")
}

// response is what came back.
type response struct {
	t      testing.TB
	Status int
	Header http.Header
	Body   []byte
}

func (b *browser) do(method, path string, body any) *response {
	b.a.t.Helper()
	var reader io.Reader
	if body != nil {
		raw, err := json.Marshal(body)
		must(b.a.t, err)
		reader = bytes.NewReader(raw)
	}
	return b.send(method, path, "application/json", reader)
}

func (b *browser) send(method, path, contentType string, body io.Reader) *response {
	b.a.t.Helper()
	path = strings.TrimPrefix(path, b.a.base.String())
	if !strings.HasPrefix(path, "/auth") {
		path = "/auth" + path
	}
	r := httptest.NewRequestWithContext(ctx, method, b.a.base.String()+path, body)
	r.RemoteAddr = b.ip + ":50000"
	if strings.Contains(b.ip, ":") {
		r.RemoteAddr = "[" + b.ip + "]:50000"
	}
	for key, values := range b.header {
		r.Header[key] = values
	}
	if body != nil {
		r.Header.Set("Content-Type", contentType)
	}
	for name, value := range b.cookies {
		r.AddCookie(&http.Cookie{Name: name, Value: value})
	}
	rec := httptest.NewRecorder()
	b.a.ServeHTTP(rec, r)
	for _, cookie := range rec.Result().Cookies() {
		b.cookies[cookie.Name] = cookie.Value
		if cookie.MaxAge < 0 {
			delete(b.cookies, cookie.Name)
		}
	}
	b.a.described(r, rec)
	return &response{b.a.t, rec.Code, rec.Header(), rec.Body.Bytes()}
}

// described fails the test when a response is not what documents say of its row.
func (a *app) described(r *http.Request, got *httptest.ResponseRecorder) {
	a.t.Helper()
	parts := strings.Split(strings.TrimPrefix(r.URL.Path, "/auth"), "/")
	for _, row := range a.LibraryRoutes() {
		same := slices.EqualFunc(strings.Split(row.Path, "/"), parts, func(want, got string) bool { return want == got || strings.HasPrefix(want, ":") })
		if row.Method != r.Method || !same {
			continue
		}
		switch page := strings.HasPrefix(got.Header().Get("Content-Type"), "text/html"); {
		case page && !row.Pages:
			a.t.Errorf("%s %s returns a page and is not marked", row.Method, row.Path)
		case page:
		case got.Code == http.StatusOK && len(a.ProfileFields()) == 0 && !fits(row.Returns, got.Body.Bytes()):
			a.t.Errorf("%s %s returns %s, which is none of %T", row.Method, row.Path, got.Body, row.Returns)
		case got.Code >= 400 && !a.refuses(row, got):
			a.t.Errorf("%s %s refuses with %d %s, which is not in its document", row.Method, row.Path, got.Code, got.Body)
		}
		return
	}
}

// fits reports whether a body is of one of these types, of none if there are none.
func fits(types []any, body []byte) bool {
	return len(types) == 0 || slices.ContainsFunc(types, func(value any) bool {
		if value == nil {
			return string(body) == "null"
		}
		into := reflect.New(reflect.TypeOf(value))
		decoder := json.NewDecoder(bytes.NewReader(body))
		decoder.DisallowUnknownFields()
		return string(body) != "null" && decoder.Decode(into.Interface()) == nil
	})
}

// refuses reports whether the documents of a row have the refusal of a response.
func (a *app) refuses(row auth.LibraryRoute, got *httptest.ResponseRecorder) bool {
	var body struct{ Code string }
	if err := json.Unmarshal(got.Body.Bytes(), &body); err != nil {
		return false
	}
	refusals := slices.Clone(row.Refusals)
	for _, e := range []*capability.Error{
		capability.ErrInvalidRequest, capability.ErrInternal, capability.ErrUnavailable, capability.ErrRateLimited, capability.ErrBodyTooLarge,
	} {
		refusals = append(refusals, auth.LibraryRefusal(e))
	}
	return slices.ContainsFunc(refusals, func(e *capability.Error) bool { return e.Code == body.Code && e.Status == got.Code })
}

func (b *browser) get(path string) *response { b.a.t.Helper(); return b.do(http.MethodGet, path, nil) }

func (b *browser) post(path string, body any) *response {
	b.a.t.Helper()
	if body == nil {
		body = map[string]any{}
	}
	return b.do(http.MethodPost, path, body)
}

// code returns the refusal's code, or "".
func (r *response) code() string {
	var body struct {
		Code  string
		Error struct{ Code string }
	}
	if r.Status < 400 {
		return ""
	}
	if json.Unmarshal(r.Body, &body) != nil || body.Code != body.Error.Code {
		r.t.Errorf("a refusal of another shape: %s", r.Body)
	}
	return body.Code
}

// want fails the test unless the status and the code are these; the code is ""
// for success.
func (r *response) want(status int, code string) *response {
	r.t.Helper()
	if r.Status != status || r.code() != code {
		r.t.Fatalf("got %d %s, want %d %s", r.Status, r.Body, status, code)
	}
	return r
}

func (r *response) ok() *response { r.t.Helper(); return r.want(200, "") }

// lead fails the test unless the browser is sent to a target.
func (r *response) lead(target string) *response {
	r.t.Helper()
	if r.Status != http.StatusFound || r.Header.Get("Location") != target {
		r.t.Fatalf("got %d %q %s, want a redirect to %q", r.Status, r.Header.Get("Location"), r.Body, target)
	}
	return r
}

// page fails the test unless it is a page with or without a button.
func (r *response) page(button bool) *response {
	r.t.Helper()
	if !strings.HasPrefix(r.Header.Get("Content-Type"), "text/html") || strings.Contains(string(r.Body), "<button>") != button {
		r.t.Fatalf("got %d %q %s, want a page, button %v", r.Status, r.Header.Get("Content-Type"), r.Body, button)
	}
	return r
}

func decoded[T any](r *response) (value T) {
	r.t.Helper()
	if err := json.Unmarshal(r.Body, &value); err != nil {
		r.t.Fatalf("%d %s: %v", r.Status, r.Body, err)
	}
	return value
}

type object = map[string]any

// signedUp returns a browser in which a new user is signed in.
func (a *app) signedUp(address string) *browser {
	a.t.Helper()
	b := a.browser()
	b.post("/sign-up/email", object{"name": "Ada", "email": address, "password": password}).ok()
	return b
}

// user returns the user of the browser's session, or nil.
func (b *browser) user() object {
	b.a.t.Helper()
	both := decoded[*struct{ User, Session object }](b.get("/get-session").ok())
	if both == nil {
		return nil
	}
	return both.User
}

// verify proves the address of the user by the link in the mail.
func (a *app) verify(address string) {
	a.t.Helper()
	a.browser().pressing().do(http.MethodPost, a.deliver(address).Link, nil).page(false)
}

// refusedConfig returns why a configuration is refused.
func refusedConfig(t testing.TB, cfg signin.Config) error {
	t.Helper()
	base, err := url.Parse(baseURL)
	must(t, err)
	_, err = signin.New(cfg)(capability.Host{
		Now: time.Now, BaseURL: base, Sealing: func() (capability.Sealer, error) { return nil, nil },
	}, nil)
	return err
}
