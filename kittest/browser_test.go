package kittest_test

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/kitbackend/kit"
	"github.com/kitbackend/kit/audit"
	"github.com/kitbackend/kit/auth"
	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/kittest"
)

// pages returns an application's router: a page, a form that signs up, one that changes the name,
// and the kit.
func pages(k *kittest.Kit) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /hello", func(w http.ResponseWriter, r *http.Request) {
		session, found, err := k.Auth().Current(r)
		if err != nil || !found {
			http.Redirect(w, r, "/sign-up?next=/hello", http.StatusSeeOther)
			return
		}
		fmt.Fprintf(w, "hello %s of %s", session.UserID, capability.RequestInfoOf(r.Context()).Caller.UserID)
	})
	mux.HandleFunc("GET /sign-up", func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "sign up, then ", r.FormValue("next")) })
	mux.HandleFunc("POST /sign-up", func(w http.ResponseWriter, r *http.Request) {
		reply, err := k.Auth().Call(w, r, "/sign-up/email", map[string]string{
			"email": r.FormValue("email"), "password": r.FormValue("password"), "name": "Ada"})
		if err != nil || reply.Refused() {
			http.Error(w, reply.Code, http.StatusUnprocessableEntity)
			return
		}
		http.Redirect(w, r, "/hello", http.StatusSeeOther)
	})
	mux.HandleFunc("POST /name", func(w http.ResponseWriter, r *http.Request) {
		session, found, err := k.Auth().Current(r)
		if err != nil || !found {
			http.Error(w, "no", http.StatusForbidden)
			return
		}
		name := r.FormValue("name")
		if _, err := k.Auth().UpdateUser(r.Context(), session.UserID, auth.UserPatch{Name: &name}); err != nil {
			http.Error(w, "no", http.StatusBadRequest)
			return
		}
		if err := k.Audit().Record(r.Context(), audit.Event{Action: "pages/named"}); err != nil {
			http.Error(w, "no", http.StatusInternalServerError)
		}
	})
	mux.Handle("/", k)
	return k.Identify(mux)
}

func TestBrowserDrivesTheApplicationsRouter(t *testing.T) {
	k := kittest.New(t, kit.WithAudit(audit.Config{}), kit.WithAuth(auth.Config{}))
	app := pages(k)
	ada := k.Browser("ada").Via(app)
	if body := string(ada.Get("/hello").Want(200, "").Body); body != "hello ada of ada" {
		t.Errorf("the page says %q", body)
	}
	ada.Form("/name", url.Values{"name": {"Ada L."}}).Want(200, "")
	ada.Do("DELETE", "/auth/sessions/none", nil) // a script of a page, with the token of its session
	if r := ada.With("Origin", "https://evil.example").With("Sec-Fetch-Site", "cross-site").Form("/name", url.Values{"name": {"x"}}); r.Status != 403 {
		t.Errorf("a form of another site: %d", r.Status)
	}
	trail, err := k.Audit().ListEvents(t.Context(), audit.Filter{}, capability.NewPage(10, ""))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range trail.Items {
		if e.Action == "pages/named" && (e.Actor != audit.Actor{Kind: audit.ActorUser, ID: "ada"} || e.RequestID == "") {
			t.Errorf("the trail has %+v, want the caller and the request of the page", e)
		}
	}
	if ada.Post("/auth/sign-out", `{}`).Want(200, ""); ada.Get("/hello").Status != 303 {
		t.Error("still signed in after signing out")
	}
}

func TestBrowserSignsUpByTheApplicationsForm(t *testing.T) {
	k := kittest.New(t, kit.WithAuth(auth.Config{}))
	somebody := k.Anonymous().Via(pages(k))
	asked := somebody.Get("/hello")
	if body := string(somebody.Follow(asked).Body); body != "sign up, then /hello" {
		t.Errorf("sent to %q", body)
	}
	fields := url.Values{"email": {"ada@example.com"}, "password": {"correct horse battery"}}
	if r := somebody.Form("/sign-up", url.Values{"email": {"ada@example.com"}, "password": {"x"}}); r.Status != 422 {
		t.Errorf("a short password: %d", r.Status)
	}
	if body := string(somebody.Follow(somebody.Form("/sign-up", fields)).Want(200, "").Body); !strings.HasPrefix(body, "hello ") {
		t.Errorf("after signing up: %q", body)
	}
	somebody.Post("/auth/sign-out", `{}`).Want(200, "")
}
