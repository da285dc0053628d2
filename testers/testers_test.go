package testers_test

import (
	"context"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kitbackend/kit"
	"github.com/kitbackend/kit/audit"
	"github.com/kitbackend/kit/auth"
	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/capability/capabilitytest"
	"github.com/kitbackend/kit/controlplane"
	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/database/databasetest"
	"github.com/kitbackend/kit/email"
	"github.com/kitbackend/kit/kittest"
	"github.com/kitbackend/kit/testers"
)

const storeURL = "https://play.google.com/apps/testing/com.acme"

const day = 24 * time.Hour

func options(cfg testers.Config) []kit.Option {
	if cfg.CohortDefaults.StoreURL == "" {
		cfg.CohortDefaults.StoreURL = storeURL
	}
	return []kit.Option{
		kit.WithAudit(audit.Config{}), kit.WithControlPlane(controlplane.Config{}),
		kit.WithEmail(email.Config{From: "Acme <hello@acme.example>", PerRecipientPerHour: -1}), kit.WithAuth(auth.Config{}),
		kit.WithTesters(cfg), kit.WithMasterKeys(masterKeys),
	}
}

func masterKeys(context.Context) (string, error) {
	return "1:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=", nil
}

func compose(t testing.TB, cfg testers.Config, more ...kit.Option) *kittest.Kit {
	t.Helper()
	return kittest.New(t, append(options(cfg), more...)...)
}

// each runs a test on every database.
func each(t *testing.T, cfg testers.Config, run func(t *testing.T, k *kittest.Kit)) {
	t.Helper()
	databasetest.Each(t, func(t *testing.T, db *database.DB) { run(t, compose(t, cfg, kit.WithDatabase(db))) })
}

func TestSuite(t *testing.T) {
	capabilitytest.Run(t, func(h capability.Host, basePath string) (capability.Capability, error) {
		mail, err := email.New(h, email.Config{}, email.Peers{})
		if err != nil {
			return capability.Capability{}, err
		}
		roster, err := testers.New(h, testers.Config{BasePath: basePath}, testers.Peers{Email: mail})
		if err != nil {
			return capability.Capability{}, err
		}
		return roster.Capability(), nil
	})
}

// invite invites one person and returns the member.
func invite(t testing.TB, k *kittest.Kit, address string) testers.Member {
	t.Helper()
	result, err := k.Testers().Invite(t.Context(), "", []testers.Tester{{Email: address}})
	if err != nil {
		t.Fatal(err)
	}
	return result.Invited[0]
}

var linkForm = regexp.MustCompile(`http\S+/testers/\S+`)

// links returns the request targets of the next step and the opt-out in the last mail to an
// address; the next step is "" if the mail has none.
func links(t testing.TB, k *kittest.Kit, address string) (next, out string) {
	t.Helper()
	for _, found := range linkForm.FindAllString(k.LastMail(address).Text, -1) {
		u, err := url.Parse(found)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(found, "/opt-out/") {
			out = u.RequestURI()
		} else {
			next = u.RequestURI()
		}
	}
	if out == "" {
		t.Fatalf("the mail to %s has no way out", address)
	}
	return next, out
}

var actionForm = regexp.MustCompile(`action="http://[^/]+([^"]+)"`)

// join confirms and opts in a member by the links.
func join(t testing.TB, k *kittest.Kit, address string) testers.Member {
	t.Helper()
	m := invite(t, k, address)
	confirm, _ := links(t, k, address)
	page := k.Anonymous().Get(confirm+"?go=1").Want(200, "")
	action := actionForm.FindStringSubmatch(string(page.Body))
	if action == nil {
		t.Fatalf("no next step on the page: %s", page.Body)
	}
	r := k.Anonymous().Get(action[1]+"?go=1").Want(303, "")
	if r.Header.Get("Location") != storeURL {
		t.Fatalf("opt-in leads to %s", r.Header.Get("Location"))
	}
	return m
}

func cohort(t testing.TB, k *kittest.Kit) testers.Cohort {
	t.Helper()
	c, err := k.Testers().Cohort(t.Context(), testers.DefaultCohort, testers.Include{Members: true, Forecast: true})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func member(t testing.TB, k *kittest.Kit, id string) testers.Member {
	t.Helper()
	for _, m := range cohort(t, k).Members {
		if m.ID == id {
			return m
		}
	}
	t.Fatalf("member %s is not there", id)
	return testers.Member{}
}

func want(t testing.TB, k *kittest.Kit, id string, state testers.State) {
	t.Helper()
	if m := member(t, k, id); m.State != state {
		t.Fatalf("the member is %s, want %s", m.State, state)
	}
}

func code(err error) string {
	if err == nil {
		return ""
	}
	return capability.AsError(err).Code
}

// TestJourney follows a tester from the invitation to the opt-out over HTTP.
func TestJourney(t *testing.T) {
	each(t, testers.Config{}, func(t *testing.T, k *kittest.Kit) {
		staff := k.Machine("testers:roster:read", "testers:roster:write", "testers:nudge:send")
		staff.Post("/testers/invite", map[string]any{"testers": []map[string]any{{"email": "Ada@example.com", "name": "Ada"}}}).Want(201, "")
		id := cohort(t, k).Members[0].ID
		want(t, k, id, testers.StateInvited)
		mail := k.LastMail("ada@example.com")
		confirm, out := links(t, k, "ada@example.com")
		if !strings.Contains(mail.Text, "Hello Ada") {
			t.Errorf("the invitation does not greet: %s", mail.Text)
		}
		page := k.Anonymous().Get(confirm).Want(200, "")
		if page.Header.Get("Cache-Control") != "no-store" || page.Header.Get("X-Robots-Tag") != "noindex" || strings.Contains(string(page.Body), "<script") {
			t.Errorf("page: %v", page.Header)
		}
		want(t, k, id, testers.StateInvited)
		k.Anonymous().Do(http.MethodHead, confirm+"?go=1", nil)
		want(t, k, id, testers.StateInvited)
		page = k.Anonymous().Get(confirm+"?go=1").Want(200, "")
		want(t, k, id, testers.StateAccepted)
		optIn := actionForm.FindStringSubmatch(string(page.Body))[1]
		k.Anonymous().Get(optIn).Want(200, "")
		k.Anonymous().Do(http.MethodHead, optIn+"?go=1", nil)
		want(t, k, id, testers.StateAccepted)
		k.Anonymous().Get(optIn+"?go=1").Want(303, "")
		want(t, k, id, testers.StateOptedIn)
		k.Anonymous().Get(confirm+"?go=1").Want(200, "") // does not move the member back
		want(t, k, id, testers.StateOptedIn)
		for _, r := range []string{strings.Replace(confirm, "/confirm/", "/opt-in/", 1), strings.Replace(confirm, "/confirm/", "/opt-out/", 1),
			strings.Replace(out, "/opt-out/", "/opt-in/", 1) + "?go=1", confirm[:len(confirm)-4] + "AAAA?go=1", "/testers/confirm/x", "/testers/opt-out/x"} {
			if page := k.Anonymous().Get(r); page.Status != 404 || !strings.Contains(string(page.Body), "testers/invalid_token") {
				t.Errorf("%s: %d", r, page.Status)
			}
		}
		k.Anonymous().Get(out).Want(200, "")
		k.Anonymous().Do(http.MethodHead, out, nil)
		k.Anonymous().With("Content-Type", "application/x-www-form-urlencoded").Post(out, "x=y").Want(200, "")
		want(t, k, id, testers.StateOptedIn)
		k.Anonymous().With("Content-Type", "application/x-www-form-urlencoded").Post(out, "List-Unsubscribe=One-Click").Want(200, "")
		want(t, k, id, testers.StateWithdrawn)
		for path, body := range map[string]any{
			"/testers/invite": map[string]any{"testers": []map[string]any{{"email": "ada@example.com"}}},
			"/testers/resend": map[string]any{"email": "ada@example.com"},
			"/testers/nudge":  map[string]any{"kind": "inactive", "memberIds": []string{id}},
		} {
			staff.Post(path, body).Want(409, "testers/withdrawn")
		}
		staff.Post("/testers/remove", map[string]any{"memberId": id}).Want(200, "")
		want(t, k, id, testers.StateWithdrawn)
		k.Anonymous().Get(confirm+"?go=1").Want(404, "")
		k.Anonymous().Get(optIn+"?go=1").Want(404, "")
		want(t, k, id, testers.StateWithdrawn)
	})
}

// TestForecastOverHTTP checks the fields of the response that the specification requires.
func TestForecastOverHTTP(t *testing.T) {
	k := compose(t, testers.Config{CohortDefaults: testers.CohortDefaults{TargetSize: 2}})
	staff := k.Machine("testers:roster:read")
	var body struct {
		Items []struct {
			Forecast map[string]any
			Counts   map[string]int
		}
	}
	join(t, k, "a@example.com")
	join(t, k, "b@example.com")
	k.RunJobs()
	staff.Get("/testers/cohorts?id=default&include=members,forecast").Want(200, "").JSON(&body)
	f := body.Items[0].Forecast
	estimates := f["estimates"].(map[string]any)
	if f["disclaimer"] == "" || f["timezone"] != "UTC" || f["resetPolicy"] != "reset" || f["modelVersion"] != "1" ||
		f["calibration"].(map[string]any)["fitted"] != false || f["reconciliation"].(map[string]any)["supported"] != false ||
		f["reconciliation"].(map[string]any)["reason"] == "" || estimates["successProbability"] == nil || body.Items[0].Counts["opted_in"] != 2 {
		t.Errorf("forecast: %v", f)
	}
	if n := len(estimates["curve"].([]any)); n != 46 {
		t.Errorf("%d points, want today and 45 days", n)
	}
	k.Clock.Advance(40 * time.Hour)
	if e := cohort(t, k).Forecast.Estimates; e.SuccessProbability != nil || *e.SuccessProbabilityReason != "stale_snapshot" {
		t.Errorf("without a pass for 40 h: %+v", e)
	}
	if err := k.Testers().Daily(t.Context()); err != nil {
		t.Fatal(err)
	}
	if e := cohort(t, k).Forecast.Estimates; e.SuccessProbability == nil {
		t.Errorf("after the pass: %v", *e.SuccessProbabilityReason)
	}
	if err := k.Testers().CloseCohort(t.Context(), "default"); err != nil {
		t.Fatal(err)
	}
	if e := cohort(t, k).Forecast.Estimates; e.SuccessProbability != nil || *e.SuccessProbabilityReason != "cohort_closed" {
		t.Errorf("closed: %+v", e)
	}
	if err := k.Testers().SetCohort(t.Context(), testers.CohortConfig{ID: "empty"}); err != nil {
		t.Fatal(err)
	}
	c, err := k.Testers().Cohort(t.Context(), "empty", testers.Include{Forecast: true})
	if err != nil || *c.Forecast.Estimates.SuccessProbabilityReason != "no_roster" || c.Forecast.Disclaimer == "" {
		t.Errorf("empty: %+v, %v", c.Forecast, err)
	}
	staff.Get("/testers/cohorts?id=none").Want(404, "testers/cohort_not_found")
	staff.Get("/testers/cohorts?include=all").Want(400, "kit/invalid_request")
	staff.Get("/testers/cohorts").Want(200, "")
}

// TestRefusals produces the refusals that TestJourney does not.
func TestRefusals(t *testing.T) {
	each(t, testers.Config{CohortDefaults: testers.CohortDefaults{MaxRosterSize: 2}}, func(t *testing.T, k *kittest.Kit) {
		staff := k.Machine("testers:roster:write", "testers:nudge:send")
		list := func(cohort string, addresses ...string) map[string]any {
			var people []map[string]any
			for _, a := range addresses {
				people = append(people, map[string]any{"email": a})
			}
			return map[string]any{"cohortId": cohort, "testers": people}
		}
		staff.Post("/testers/invite", list("other", "a@example.com")).Want(404, "testers/cohort_not_found")
		var result testers.InviteResult
		staff.Post("/testers/invite", list("", "a@example.com", "nonsense", "A@example.com", "b@example.com", "c@example.com")).Want(201, "").JSON(&result)
		if len(result.Invited) != 2 || len(result.Refused) != 3 || result.Refused[0].Code != "email/invalid_address" ||
			result.Refused[1].Code != "testers/already_on_roster" || result.Refused[2].Code != "testers/roster_full" {
			t.Errorf("result: %+v", result)
		}
		staff.Post("/testers/invite", list("", "a@example.com")).Want(409, "testers/already_on_roster")
		staff.Post("/testers/invite", list("", "c@example.com")).Want(409, "testers/roster_full")
		staff.Post("/testers/invite", list("", "nonsense")).Want(400, "email/invalid_address")
		staff.Post("/testers/invite", list("")).Want(400, "kit/invalid_request")
		staff.Post("/testers/resend", map[string]any{"email": "x@example.com"}).Want(404, "testers/member_not_found")
		staff.Post("/testers/resend", map[string]any{"email": "nonsense"}).Want(400, "email/invalid_address")
		staff.Post("/testers/nudge", map[string]any{"cohortId": "other", "kind": "confirm"}).Want(404, "testers/cohort_not_found")
		staff.Post("/testers/remove", map[string]any{"email": "x@example.com"}).Want(404, "testers/member_not_found")
		staff.Post("/testers/remove", map[string]any{}).Want(400, "kit/invalid_request")
		staff.Post("/testers/nudge", map[string]any{"kind": "thanks"}).Want(400, "kit/invalid_request")
		staff.Post("/testers/nudge", map[string]any{"kind": "confirm", "memberIds": []string{"x"}}).Want(404, "testers/member_not_found")
		id := result.Invited[0].ID
		k.Clock.Advance(3 * day)
		var nudged testers.NudgeResult
		staff.Post("/testers/nudge", map[string]any{"kind": "confirm", "memberIds": []string{id}}).Want(202, "").JSON(&nudged)
		if len(nudged.Sent) != 1 {
			t.Errorf("nudged: %+v", nudged)
		}
		r := staff.Post("/testers/nudge", map[string]any{"kind": "confirm", "memberIds": []string{id}}).Want(429, "testers/nudge_cooldown")
		if !strings.Contains(string(r.Body), "nextAllowedAt") || r.Header.Get("Retry-After") != "172800" {
			t.Errorf("Retry-After %q, want 48 hours: %s", r.Header.Get("Retry-After"), r.Body)
		}
		staff.Post("/testers/nudge", map[string]any{"kind": "confirm"}).Want(202, "").JSON(&nudged)
		if len(nudged.Sent) != 1 || len(nudged.Skipped) != 1 || nudged.Skipped[0].Reason != "cooldown" {
			t.Errorf("bulk: %+v", nudged)
		}
		staff.Post("/testers/nudge", map[string]any{"kind": "store", "memberIds": []string{id, result.Invited[1].ID}}).Want(202, "").JSON(&nudged)
		k.Clock.Advance(3 * day)
		staff.Post("/testers/nudge", map[string]any{"kind": "store", "memberIds": []string{id, result.Invited[1].ID}}).Want(202, "").JSON(&nudged)
		if len(nudged.Skipped) != 2 || nudged.Skipped[0].Reason != "not_eligible" {
			t.Errorf("not eligible: %+v", nudged)
		}
		staff.Post("/testers/nudge", map[string]any{"kind": "confirm", "copy": map[string]any{"subject": "Hi", "body": "You get a gift card."}}).
			Want(422, "testers/copy_not_allowed")
		if err := k.Testers().CloseCohort(t.Context(), "default"); err != nil {
			t.Fatal(err)
		}
		staff.Post("/testers/invite", list("", "d@example.com")).Want(409, "testers/cohort_closed")
		staff.Post("/testers/resend", map[string]any{"memberId": id}).Want(409, "testers/cohort_closed")
		staff.Post("/testers/nudge", map[string]any{"kind": "confirm"}).Want(409, "testers/cohort_closed")
		confirm, _ := links(t, k, "a@example.com")
		k.Anonymous().Get(confirm+"?go=1").Want(409, "")
		staff.Post("/testers/remove", map[string]any{"memberId": id}).Want(200, "")
		if err := k.Testers().CloseCohort(t.Context(), "other"); code(err) != "testers/cohort_not_found" {
			t.Error(err)
		}
	})
	bare := kittest.New(t, kit.WithAudit(audit.Config{}), kit.WithEmail(email.Config{}), kit.WithTesters(testers.Config{}))
	if _, err := bare.Testers().Invite(t.Context(), "", []testers.Tester{{Email: "a@example.com"}}); code(err) != "testers/not_configured" {
		t.Errorf("without a store address: %v", err)
	}
}

// TestRefusalsOfALostStore produces the refusals of a cohort whose store address was removed, to
// staff and to a member who has opted in.
func TestRefusalsOfALostStore(t *testing.T) {
	k := kittest.New(t, kit.WithAudit(audit.Config{}), kit.WithControlPlane(controlplane.Config{}), kit.WithEmail(email.Config{}), kit.WithTesters(testers.Config{}))
	staff := k.Machine("testers:roster:write", "testers:nudge:send")
	set := func(store string) {
		t.Helper()
		if err := k.Testers().SetCohort(t.Context(), testers.CohortConfig{ID: "beta", StoreURL: store}); err != nil {
			t.Fatal(err)
		}
	}
	set(storeURL)
	staff.Post("/testers/invite", map[string]any{"cohortId": "beta", "testers": []object{{"email": "a@example.com"}, {"email": "b@example.com"}}}).Want(201, "")
	confirm, _ := links(t, k, "a@example.com")
	page := k.Anonymous().Get(confirm+"?go=1").Want(200, "")
	optIn := actionForm.FindStringSubmatch(string(page.Body))[1] + "?go=1"
	k.Anonymous().Get(optIn).Want(303, "")
	staff.Post("/testers/resend", object{"cohortId": "beta", "email": "a@example.com"}).Want(409, "testers/already_on_roster")
	set("")
	k.Anonymous().Get(optIn).Want(503, "testers/not_configured")
	staff.Post("/testers/resend", object{"cohortId": "beta", "email": "b@example.com"}).Want(503, "testers/not_configured")
	staff.Post("/testers/nudge", object{"cohortId": "beta", "kind": "confirm"}).Want(503, "testers/not_configured")
	staff.Post("/testers/invite", map[string]any{"cohortId": "beta", "testers": []object{{"email": "c@example.com"}}}).Want(503, "testers/not_configured")
}

type object = map[string]any

// TestForgedLinksDoNothing changes each letter of each kind of link, and requests the links as
// scanners do.
func TestForgedLinksDoNothing(t *testing.T) {
	k := compose(t, testers.Config{})
	id := invite(t, k, "ada@example.com").ID
	confirm, out := links(t, k, "ada@example.com")
	form := func(path string) int {
		return k.Anonymous().With("Content-Type", "application/x-www-form-urlencoded").Post(path, "List-Unsubscribe=One-Click").Status
	}
	forged := func(link string, call func(path string) int) {
		t.Helper()
		at := strings.LastIndex(link, "/") + 1
		for i := at; i < len(link); i++ {
			other := byte('A')
			if link[i] == other {
				other = 'B'
			}
			k.Clock.Advance(time.Second) // so that no rate limit refuses it first
			if got := call(link[:i] + string(other) + link[i+1:]); got != 404 {
				t.Errorf("%s with letter %d changed: %d, want 404", link, i-at, got)
			}
			if got := call(link[:i]); i > at && got != 404 {
				t.Errorf("%s cut to %d letters: %d, want 404", link, i-at, got)
			}
		}
	}
	get := func(path string) int { return k.Anonymous().Get(path + "?go=1").Status }
	forged(confirm, get)
	forged(strings.Replace(confirm, "/confirm/", "/opt-in/", 1), get)
	forged(out, form)
	for _, method := range []string{"GET", "HEAD", "OPTIONS", "PROPFIND"} {
		k.Anonymous().Do(method, out, nil)
		k.Anonymous().Do(method, confirm, nil)
		if method != "GET" {
			k.Anonymous().Do(method, confirm+"?go=1", nil)
		}
	}
	form(confirm + "?go=1")
	want(t, k, id, testers.StateInvited)
	if got := get(confirm); got != 200 {
		t.Errorf("the link itself: %d, want 200", got)
	}
	want(t, k, id, testers.StateAccepted)
}

// TestTransitions tests the remaining transitions.
func TestTransitions(t *testing.T) {
	each(t, testers.Config{}, func(t *testing.T, k *kittest.Kit) {
		ctx := context.Background()
		pass := func() {
			t.Helper()
			if err := k.Testers().Daily(ctx); err != nil {
				t.Fatal(err)
			}
		}
		silent, accepted, left := invite(t, k, "silent@example.com"), invite(t, k, "accepted@example.com"), join(t, k, "left@example.com")
		confirm, _ := links(t, k, "accepted@example.com")
		k.Anonymous().Get(confirm+"?go=1").Want(200, "")
		k.Clock.Advance(15 * day)
		k.Anonymous().Get(confirm+"?go=1").Want(404, "") // expired
		pass()
		want(t, k, silent.ID, testers.StateLapsed)
		want(t, k, accepted.ID, testers.StateLapsed)
		for id, state := range map[string]testers.State{silent.ID: testers.StateInvited, accepted.ID: testers.StateAccepted} {
			if m, err := k.Testers().Resend(ctx, testers.Ref{MemberID: id}); err != nil || m.State != state {
				t.Errorf("resend: %s, %v; want %s", m.State, err, state)
			}
		}
		if _, err := k.Testers().Resend(ctx, testers.Ref{MemberID: left.ID}); code(err) != "testers/already_on_roster" {
			t.Errorf("resend to an opted-in tester: %v", err)
		}
		old, _ := links(t, k, "silent@example.com")
		if _, err := k.Testers().Resend(ctx, testers.Ref{MemberID: silent.ID}); err != nil {
			t.Fatal(err)
		}
		k.Anonymous().Get(old+"?go=1").Want(404, "") // of the previous generation
		want(t, k, silent.ID, testers.StateInvited)
		optIn, _ := links(t, k, "accepted@example.com")
		if err := k.Testers().Left(ctx, testers.Ref{MemberID: left.ID}); err != nil {
			t.Fatal(err)
		}
		want(t, k, left.ID, testers.StateLapsed)
		if err := k.Testers().Left(ctx, testers.Ref{MemberID: left.ID}); code(err) != "testers/member_not_found" {
			t.Error(err)
		}
		k.Anonymous().Get(optIn+"?go=1").Want(303, "")
		if m := member(t, k, accepted.ID); m.State != testers.StateOptedIn || m.StreakDays != 1 || m.ConsentAt == nil {
			t.Errorf("opted in: %+v", m)
		}
		if m, err := k.Testers().Remove(ctx, testers.Ref{MemberID: silent.ID}); err != nil || m.State != testers.StateRemoved {
			t.Errorf("remove: %v, %v", m.State, err)
		}
		if _, err := k.Testers().Resend(ctx, testers.Ref{MemberID: silent.ID}); code(err) != "testers/member_not_found" {
			t.Errorf("resend to a removed one: %v", err)
		}
		if m := invite(t, k, "silent@example.com"); m.ID != silent.ID || m.State != testers.StateInvited {
			t.Errorf("invited again: %+v", m)
		}
	})
}

// TestUseOfTheApp links by the verified address, records the day, and lapses an inactive member.
func TestUseOfTheApp(t *testing.T) {
	each(t, testers.Config{}, func(t *testing.T, k *kittest.Kit) {
		ctx := context.Background()
		m := join(t, k, "ada@example.com")
		if got := member(t, k, m.ID); got.Activity != testers.PresenceNeverLinked || got.Health != nil {
			t.Errorf("before: %+v", got)
		}
		user, err := k.Auth().CreateUser(ctx, auth.NewUser{Email: "ada@example.com", EmailVerified: true})
		if err != nil {
			t.Fatal(err)
		}
		stranger, err := k.Auth().CreateUser(ctx, auth.NewUser{Email: "eve@example.com"})
		if err != nil {
			t.Fatal(err)
		}
		k.User(stranger.ID).Get("/testers/status").Want(200, "")
		var status testers.Memberships
		k.User(user.ID).Get("/testers/status?appVersion=1.2").Want(200, "").JSON(&status)
		if len(status.Memberships) != 1 || status.Memberships[0].State != testers.StateOptedIn || status.Memberships[0].Window.Days != 14 {
			t.Errorf("status: %+v", status)
		}
		if got := member(t, k, m.ID); got.Activity != testers.PresenceActive || *got.LastSeenOn != "2026-11-21" || *got.AppVersion != "1.2" || got.Health == nil {
			t.Errorf("after: %+v", got)
		}
		k.Clock.Advance(4 * day)
		if got := member(t, k, m.ID); got.Activity != testers.PresenceInactive || got.StreakDays != 5 {
			t.Errorf("four days on: %+v", got)
		}
		k.Clock.Advance(18 * day)
		if err := k.Testers().Daily(ctx); err != nil {
			t.Fatal(err)
		}
		if got := member(t, k, m.ID); got.State != testers.StateLapsed || *got.LapseReason != "inactive" {
			t.Errorf("22 days on: %+v", got)
		}
		if _, err := k.Auth().CreateSession(ctx, user.ID); err != nil {
			t.Fatal(err)
		}
		if got := member(t, k, m.ID); got.State != testers.StateOptedIn || got.StreakDays != 1 {
			t.Errorf("seen by signing in: %+v", got)
		}
	})
}

// TestMissedPassesAreMadeUpFor runs the pass of one kit daily and of another once.
func TestMissedPassesAreMadeUpFor(t *testing.T) {
	cfg := testers.Config{CohortDefaults: testers.CohortDefaults{TargetSize: 2, WindowDays: 5}}
	var daily, once testers.Observed
	for i, into := range []*testers.Observed{&daily, &once} {
		k := compose(t, cfg)
		a := join(t, k, "a@example.com")
		join(t, k, "b@example.com")
		steps := func(days int) {
			for range days {
				k.Clock.Advance(day)
				if i == 0 {
					if err := k.Testers().Daily(t.Context()); err != nil {
						t.Fatal(err)
					}
				}
			}
		}
		if err := k.Testers().Daily(t.Context()); err != nil {
			t.Fatal(err)
		}
		steps(3)
		if err := k.Testers().Left(t.Context(), testers.Ref{MemberID: a.ID}); err != nil {
			t.Fatal(err)
		}
		steps(2)
		join(t, k, "c@example.com")
		steps(2)
		for range 2 { // a day is counted once
			if err := k.Testers().Daily(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		*into = cohort(t, k).Forecast.Observed
	}
	if len(daily.Snapshots) != 8 || len(once.Snapshots) != 8 || daily.Resets != 1 || once.Resets != 1 ||
		once.WindowDaysElapsed != daily.WindowDaysElapsed || once.WindowDaysElapsed != 2 {
		t.Fatalf("daily %+v\nonce %+v", daily, once)
	}
	for i := range daily.Snapshots {
		if daily.Snapshots[i].Date != once.Snapshots[i].Date || daily.Snapshots[i].OptedIn != once.Snapshots[i].OptedIn {
			t.Errorf("day %d: %+v and %+v", i, daily.Snapshots[i], once.Snapshots[i])
		}
	}
}

// TestAPassGoesOnBehindACohortThatFails makes the mails of one cohort fail.
func TestAPassGoesOnBehindACohortThatFails(t *testing.T) {
	k := compose(t, testers.Config{
		Cohorts: []testers.CohortConfig{{ID: "a"}, {ID: "b"}}, Nudges: testers.Nudges{Auto: true},
		MailTemplate: func(_ context.Context, kind testers.MailKind, _ testers.Member) (string, error) {
			if kind == testers.MailConfirm {
				return "gone", nil
			}
			return "", nil
		},
	})
	if _, err := k.Testers().Invite(t.Context(), "a", []testers.Tester{{Email: "ada@example.com"}}); err != nil {
		t.Fatal(err)
	}
	k.Clock.Advance(7 * day)
	if err := k.Testers().Daily(t.Context()); code(err) != "email/template_not_found" {
		t.Errorf("the pass: %v, want what failed", err)
	}
	b, err := k.Testers().Cohort(t.Context(), "b", testers.Include{Forecast: true})
	if err != nil || len(b.Forecast.Observed.Snapshots) != 1 {
		t.Errorf("the cohort behind it was not passed: %+v, %v", b.Forecast.Observed, err)
	}
}

// TestDaysOfAClockThatWasAheadAreTakenBack runs one pass thirty days too early.
func TestDaysOfAClockThatWasAheadAreTakenBack(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		k := compose(t, testers.Config{CohortDefaults: testers.CohortDefaults{TargetSize: 1}}, kit.WithDatabase(db))
		join(t, k, "ada@example.com")
		first := k.Clock.Now()
		for _, step := range []time.Duration{0, day, 30 * day, -30 * day, day} {
			k.Clock.Advance(step)
			if err := k.Testers().Daily(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		got := cohort(t, k).Forecast.Observed
		if got.WindowDaysElapsed != 3 || got.WindowStartedOn == nil || *got.WindowStartedOn != first.Format(time.DateOnly) || got.Resets != 0 ||
			len(got.Snapshots) != 3 || got.Snapshots[2].Date != k.Clock.Now().Format(time.DateOnly) {
			t.Errorf("%+v", got)
		}
	})
}

// TestChangedConstantsNeedAVersion starts kits one after another on a database.
func TestChangedConstantsNeedAVersion(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		start := func(cfg testers.Config) error {
			_, err := kittest.Compose(t, append(options(cfg), kit.WithDatabase(db))...)
			return err
		}
		if err := start(testers.Config{}); err != nil {
			t.Fatal(err)
		}
		for name, cfg := range map[string]testers.Config{
			"horizon": {Forecast: testers.Forecast{HorizonDays: 60}},
			"hazards": {Forecast: testers.Forecast{Hazard: testers.Hazard{Active: .01}}},
			"priors":  {Forecast: testers.Forecast{Join: testers.Joins{Lapsed: testers.Join{Ever: .2, Daily: .1}}}},
			"days":    {Activity: testers.Activity{ActiveWithinDays: 4}},
			"weights": {Health: testers.Health{Recency: .4, Streak: .4, Reach: .2}},
			"goal":    {Forecast: testers.Forecast{CompletionProbability: .8}},
			"age":     {Forecast: testers.Forecast{StaleAfter: 48 * time.Hour}},
			"bounces": {Health: testers.Health{SoftReach: .25}},
		} {
			if err := start(cfg); err == nil || !strings.Contains(err.Error(), "forecast constants changed without modelVersion bump") {
				t.Errorf("changed %s: %v, want a refusal", name, err)
			}
			if cfg.Forecast.ModelVersion = name; start(cfg) != nil {
				t.Errorf("changed %s under a new version: %v", name, start(cfg))
			}
		}
		if err := start(testers.Config{}); err != nil {
			t.Errorf("as before: %v", err)
		}
	})
}

// TestConstantsAreConfiguration changes the constants that no prior or weight contains.
func TestConstantsAreConfiguration(t *testing.T) {
	cfg := testers.Config{CohortDefaults: testers.CohortDefaults{TargetSize: 1}}
	completion := func(k *kittest.Kit) string {
		join(t, k, "a@example.com")
		report(t, k, "a@example.com", email.ReportSoftBounce)
		k.RunJobs()
		k.Clock.Advance(40 * time.Hour)
		e := cohort(t, k).Forecast.Estimates
		if e.CompletionDate == nil {
			return ""
		}
		return *e.CompletionDate
	}
	if got := completion(compose(t, cfg)); got != "" {
		t.Errorf("a pass 40 hours ago: completion on %s, want no estimate", got)
	}
	cfg.Forecast.StaleAfter = 48 * time.Hour
	if got := completion(compose(t, cfg)); got == "" {
		t.Error("a pass 40 hours ago is too old for a configured age of 48")
	}
	cfg.Forecast.CompletionProbability = .999
	if got := completion(compose(t, cfg)); got != "" {
		t.Errorf("completion on %s, want none at a probability of .999", got)
	}
	health := func(soft float64) int {
		k := compose(t, testers.Config{Health: testers.Health{SoftReach: soft}})
		m := join(t, k, "a@example.com")
		user, err := k.Auth().CreateUser(t.Context(), auth.NewUser{Email: "a@example.com", EmailVerified: true})
		if err != nil {
			t.Fatal(err)
		}
		if err := k.Testers().Seen(t.Context(), user.ID, testers.Visit{}); err != nil {
			t.Fatal(err)
		}
		report(t, k, "a@example.com", email.ReportSoftBounce)
		return *member(t, k, m.ID).Health
	}
	if without, with := health(0), health(1); with-without != 10 {
		t.Errorf("health %d with a soft bounce at .5, %d at 1; a weight of .2 makes it 10 more", without, with)
	}
}

// TestNudgesCarryBothWaysOut sends all four kinds.
func TestNudgesCarryBothWaysOut(t *testing.T) {
	k := compose(t, testers.Config{CohortDefaults: testers.CohortDefaults{TargetSize: 1, WindowDays: 5}})
	in, yes, asked := join(t, k, "in@example.com"), invite(t, k, "yes@example.com"), invite(t, k, "asked@example.com")
	confirm, _ := links(t, k, "yes@example.com")
	k.Anonymous().Get(confirm+"?go=1").Want(200, "")
	for range 4 {
		k.RunJobs()
		k.Clock.Advance(day)
	}
	for kind, who := range map[testers.MailKind]struct{ id, address string }{
		testers.MailConfirm: {asked.ID, "asked@example.com"}, testers.MailStore: {yes.ID, "yes@example.com"}, testers.MailInactive: {in.ID, "in@example.com"},
	} {
		r, err := k.Testers().Nudge(t.Context(), testers.NudgeRequest{Kind: kind, Copy: &testers.CustomCopy{Subject: "Hi {{name}}", Body: "No reward is given. {{link}}"}})
		if err != nil || len(r.Sent) != 1 || r.Sent[0] != who.id {
			t.Errorf("%s: %+v, %v", kind, r, err)
		}
		links(t, k, who.address)
	}
	if err := k.Testers().Daily(t.Context()); err != nil {
		t.Fatal(err)
	}
	k.Clock.Advance(-day)
	if r, err := k.Testers().Nudge(t.Context(), testers.NudgeRequest{Kind: testers.MailClosing}); err != nil || len(r.Skipped) != 1 || r.Skipped[0].Reason != "cooldown" {
		t.Errorf("closing: %+v, %v; want a cooldown over all kinds", r, err)
	}
}

// TestWithdrawalOutlivesErasure erases a person who had withdrawn, and follows the opt-out link of
// a person who was erased.
func TestWithdrawalOutlivesErasure(t *testing.T) {
	each(t, testers.Config{}, func(t *testing.T, k *kittest.Kit) {
		ctx := context.Background()
		for _, withdrawFirst := range []bool{true, false} {
			address := map[bool]string{true: "first@example.com", false: "later@example.com"}[withdrawFirst]
			invite(t, k, address)
			_, out := links(t, k, address)
			leave := func() {
				k.Anonymous().With("Content-Type", "application/x-www-form-urlencoded").Post(out, "do=opt-out").Want(200, "")
			}
			if withdrawFirst {
				leave()
			}
			person := capability.Person{Emails: []string{address}}
			kinds := 0
			if err := k.Testers().Export(ctx, person, func(string, any) error { kinds++; return nil }); err != nil || kinds < 2 {
				t.Errorf("%d records exported, %v", kinds, err)
			}
			erasure, err := k.Testers().Erase(ctx, person)
			if err != nil || erasure.Removed == 0 || (len(erasure.Kept) == 1) != withdrawFirst {
				t.Errorf("erased: %+v, %v", erasure, err)
			}
			if again, err := k.Testers().Erase(ctx, person); err != nil || again.Removed != 0 {
				t.Errorf("erased again: %+v, %v", again, err)
			}
			if !withdrawFirst {
				leave()
			}
			if _, err := k.Testers().Invite(ctx, "", []testers.Tester{{Email: address}}); code(err) != "testers/withdrawn" {
				t.Errorf("invited after withdrawal and erasure: %v", err)
			}
		}
	})
}

// news sends another mail to ada@example.com and returns its unsubscribe link.
func news(t testing.TB, k *kittest.Kit) (link string) {
	t.Helper()
	job, err := k.Email().Send(t.Context(), email.Message{To: "ada@example.com", Category: email.CategoryList, Subject: "News", Text: "News."})
	if err != nil || job == "" {
		t.Fatal(err)
	}
	k.RunJobs()
	raw := k.LastMail("ada@example.com")
	list := regexp.MustCompile(`http://[^/]+(/\S+/u/[^>\s]+)`).FindStringSubmatch(strings.ReplaceAll(string(raw.Source), "=\r\n", ""))
	if list == nil {
		t.Fatalf("no unsubscribe link in %s", raw.Source)
	}
	return list[1]
}

// TestUnsubscribingFromEverythingWithdraws withdraws by email's hook.
func TestUnsubscribingFromEverythingWithdraws(t *testing.T) {
	k := compose(t, testers.Config{})
	m := invite(t, k, "ada@example.com")
	link := news(t, k)
	k.Anonymous().With("Content-Type", "application/x-www-form-urlencoded").Post(link, "do=unsubscribe-all").Want(200, "")
	want(t, k, m.ID, testers.StateWithdrawn)
}

// TestTwoNodes runs the daily pass and invites on two kits with one PostgreSQL.
func TestTwoNodes(t *testing.T) {
	dbs := databasetest.Shared(t, 2)
	nodes := []*kittest.Kit{compose(t, testers.Config{}, kit.WithDatabase(dbs[0])), compose(t, testers.Config{}, kit.WithDatabase(dbs[1]))}
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			_, err := nodes[i%2].Testers().Invite(context.Background(), "", []testers.Tester{{Email: "ada@example.com"}})
			if err != nil && code(err) != "testers/already_on_roster" {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	for i := range 8 {
		wg.Go(func() {
			if err := nodes[i%2].Testers().Daily(context.Background()); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if c := cohort(t, nodes[0]); len(c.Members) != 1 || len(c.Forecast.Observed.Snapshots) != 1 {
		t.Errorf("%d members and %d snapshots, want one of each", len(c.Members), len(c.Forecast.Observed.Snapshots))
	}
	confirm, _ := links(t, nodes[0], "ada@example.com")
	nodes[1].Anonymous().Get(confirm+"?go=1").Want(200, "") // each node opens the other's key
}

// TestImport imports a roster with and without a header line.
func TestImport(t *testing.T) {
	k := compose(t, testers.Config{})
	for file, want := range map[string][2]int{
		"\ufeffName,Email\r\nAda,ada@example.com\r\n\"Hopper, Grace\",grace@example.com\r\n,nonsense\r\n": {2, 1},
		"linus@example.com\nada@example.com\n\n":                                                          {1, 1},
	} {
		// The first of the files invites Ada; the map's order is random.
		r, err := k.Testers().Import(t.Context(), "", strings.NewReader(file))
		if err != nil || len(r.Invited)+len(r.Refused) != want[0]+want[1] {
			t.Errorf("%q: %+v, %v", file, r, err)
		}
	}
	if n := len(cohort(t, k).Members); n != 3 {
		t.Errorf("%d members, want 3", n)
	}
	if _, err := k.Testers().Import(t.Context(), "", strings.NewReader("email\n\"a")); code(err) != "kit/invalid_request" {
		t.Errorf("not CSV: %v", err)
	}
}
