package main

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"html/template"
	"net/http"
	"strings"
	"time"

	"github.com/kitbackend/kit"
	"github.com/kitbackend/kit/auth"
	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/support"
	"github.com/kitbackend/kit/testers"
)

//go:embed static templates
var files embed.FS

var functions = template.FuncMap{
	"percent": func(p *float64) string {
		if p == nil {
			return "unknown"
		}
		return fmt.Sprintf("%.0f %%", 100**p)
	},
	"words": func(code any) string { return strings.ReplaceAll(fmt.Sprint(code), "_", " ") },
	"short": short,
}

func pageOf(name string) *template.Template {
	return template.Must(template.New("layout.html").Funcs(functions).ParseFS(files, "templates/layout.html", "templates/"+name+".html"))
}

var (
	rosterPage = pageOf("roster")
	inboxPage  = pageOf("inbox")
	appPage    = pageOf("app")
	storePage  = pageOf("store")
)

// policy lets the pages load their own style, and nothing else.
const policy = "default-src 'none'; style-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

// desk serves the pages over a kit. Anyone may be staff here, because it is a demonstration.
type desk struct {
	kit   *kit.Kit
	clock *clock
}

// handler serves the pages, and passes the paths of the kit to the kit.
func (d *desk) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", d.showRoster)
	mux.HandleFunc("POST /invite", d.do(d.invite, "/"))
	mux.HandleFunc("POST /command/invite", d.command)
	mux.HandleFunc("POST /day", d.do(d.pass, "/"))
	mux.HandleFunc("POST /nudge", d.do(d.nudge, "/"))
	mux.HandleFunc("POST /member", d.do(d.member, "/"))
	mux.HandleFunc("GET /inbox", d.showInbox)
	mux.HandleFunc("POST /reply", d.do(d.reply, "/inbox"))
	mux.HandleFunc("GET /app", d.showApp)
	mux.HandleFunc("POST /enter", d.enter)
	mux.HandleFunc("POST /feedback", d.do(d.feedback, "/app"))
	mux.HandleFunc("GET /store", func(w http.ResponseWriter, r *http.Request) { d.show(w, r, storePage, nil) })
	mux.Handle("GET /static/", http.FileServerFS(files))
	var own http.CrossOriginProtection
	return d.kit.Before(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", policy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Cache-Control", "no-store")
		own.Handler(mux).ServeHTTP(w, r)
	}))
}

// view is the data of every page.
type view struct {
	Today string
	Path  string
	// Said is the refusal of the last button, or empty.
	Said string
	Data any
}

func (d *desk) show(w http.ResponseWriter, r *http.Request, page *template.Template, data any) {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	v := view{d.clock.now().UTC().Format("2 January 2006"), r.URL.Path, r.URL.Query().Get("said"), data}
	if err := page.Execute(w, v); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
	}
}

// do runs the action of a button and shows its page again, with the refusal if there is one.
func (d *desk) do(act func(r *http.Request) error, back string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		err := act(r)
		if err == nil {
			_, err = d.kit.Jobs().RunDue(r.Context()) // so that the page shows the results
		}
		to := back
		if err != nil {
			to += "?said=" + template.URLQueryEscaper(capability.AsError(err).Message)
		}
		http.Redirect(w, r, to, http.StatusSeeOther)
	}
}

// rosterView is the data of the cohort's page.
type rosterView struct {
	testers.Cohort
	Plot  plot
	Kinds []testers.MailKind
}

func (d *desk) showRoster(w http.ResponseWriter, r *http.Request) {
	c, err := d.kit.Testers().Cohort(r.Context(), testers.DefaultCohort, testers.Include{Members: true, Forecast: true})
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	kinds := []testers.MailKind{testers.MailConfirm, testers.MailStore, testers.MailInactive, testers.MailClosing}
	d.show(w, r, rosterPage, rosterView{c, draw(*c.Forecast), kinds})
}

func (d *desk) inviteAll(r *http.Request) (testers.InviteResult, error) {
	var people []testers.Tester
	for _, address := range strings.Fields(r.FormValue("addresses")) {
		people = append(people, testers.Tester{Email: strings.Trim(address, ",;")})
	}
	return d.kit.Testers().Invite(r.Context(), "", people)
}

func (d *desk) invite(r *http.Request) error {
	result, err := d.inviteAll(r)
	if err == nil && len(result.Refused) > 0 {
		err = capability.ErrInvalidRequest.Saying("%s: %s", result.Refused[0].Email, result.Refused[0].Code)
	}
	return err
}

// pass advances the clock by a day, to noon of the next one.
func (d *desk) pass(r *http.Request) error {
	now := d.clock.now().UTC()
	noon := now.Truncate(24 * time.Hour).Add(36 * time.Hour)
	d.clock.advance(noon.Sub(now))
	return d.kit.Testers().Daily(r.Context())
}

func (d *desk) nudge(r *http.Request) error {
	result, err := d.kit.Testers().Nudge(r.Context(), testers.NudgeRequest{Kind: testers.MailKind(r.FormValue("kind"))})
	if err == nil && len(result.Sent) == 0 {
		err = capability.ErrInvalidRequest.Saying("There is nobody to remind now.")
	}
	return err
}

// member performs an action on a tester, or uses the app as the tester.
func (d *desk) member(r *http.Request) error {
	ref := testers.Ref{MemberID: r.FormValue("id")}
	var err error
	switch r.FormValue("do") {
	case "use":
		var userID string
		if userID, err = d.userOf(r.Context(), r.FormValue("email")); err == nil {
			err = d.kit.Testers().Seen(r.Context(), userID, testers.Visit{AppVersion: "1.0"})
		}
	case "left":
		err = d.kit.Testers().Left(r.Context(), ref)
	case "resend":
		_, err = d.kit.Testers().Resend(r.Context(), ref)
	case "remove":
		_, err = d.kit.Testers().Remove(r.Context(), ref)
	default:
		err = capability.ErrInvalidRequest
	}
	return err
}

// userOf returns the id of the user with an address, who is created if absent.
func (d *desk) userOf(ctx context.Context, address string) (string, error) {
	user, found, err := d.kit.Auth().UserByEmail(ctx, address)
	if err == nil && !found {
		user, err = d.kit.Auth().CreateUser(ctx, auth.NewUser{Email: address, EmailVerified: true})
	}
	return user.ID, err
}

func (d *desk) showInbox(w http.ResponseWriter, r *http.Request) {
	list, err := d.kit.Support().ListThreads(r.Context(), support.Filter{}, capability.NewPage(20, ""))
	threads := make([]support.ThreadDetail, len(list.Items))
	for i := range list.Items {
		if err == nil {
			threads[i], err = d.kit.Support().Thread(r.Context(), list.Items[i].ID)
		}
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	d.show(w, r, inboxPage, threads)
}

func (d *desk) reply(r *http.Request) error {
	_, err := d.kit.Support().Reply(r.Context(), support.Reply{ThreadID: r.FormValue("thread"), Message: r.FormValue("message"), Actor: "staff"})
	return err
}

// appView is the data of the page of the app that is tested.
type appView struct {
	User        string
	Memberships []testers.Membership
	Tickets     []support.TicketDetail
}

// user returns the user who is signed in to the app.
func (d *desk) user(r *http.Request) (auth.User, bool) {
	caller, ok, err := d.kit.Auth().Users().Session(r)
	if err != nil || !ok {
		return auth.User{}, false
	}
	user, err := d.kit.Auth().User(r.Context(), caller.UserID)
	return user, err == nil
}

func (d *desk) showApp(w http.ResponseWriter, r *http.Request) {
	user, ok := d.user(r)
	if !ok {
		d.show(w, r, appPage, appView{})
		return
	}
	v := appView{User: user.Email}
	memberships, err := d.kit.Testers().MembershipsOf(r.Context(), user.ID)
	v.Memberships = memberships.Memberships
	list, failed := d.kit.Support().ListTickets(r.Context(), user.ID, capability.NewPage(20, ""))
	err = errors.Join(err, failed)
	for _, ticket := range list.Items {
		detail, failed := d.kit.Support().Ticket(r.Context(), user.ID, ticket.ID)
		v.Tickets, err = append(v.Tickets, detail), errors.Join(err, failed)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	d.show(w, r, appPage, v)
}

// enter signs a tester in to the app without credentials, and records the visit.
func (d *desk) enter(w http.ResponseWriter, r *http.Request) {
	userID, err := d.userOf(r.Context(), r.FormValue("email"))
	if err == nil {
		session, failed := d.kit.Auth().CreateSession(r.Context(), userID)
		if err = failed; err == nil {
			http.SetCookie(w, d.kit.Auth().SessionCookie(session))
		}
	}
	d.do(func(*http.Request) error { return err }, "/app")(w, r)
}

func (d *desk) feedback(r *http.Request) error {
	user, ok := d.user(r)
	if !ok {
		return capability.ErrUnauthenticated
	}
	_, _, err := d.kit.Support().Submit(r.Context(), support.Feedback{UserID: user.ID, ThreadID: r.FormValue("thread"),
		Message: r.FormValue("message"), Metadata: map[string]string{"appVersion": "1.0"}})
	return err
}
