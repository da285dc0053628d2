package testers_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/kitbackend/kit/auth"
	"github.com/kitbackend/kit/kittest"
	"github.com/kitbackend/kit/testers"
)

// walker is a member with the links received so far.
type walker struct {
	t                      *testing.T
	k                      *kittest.Kit
	address, id, user      string
	confirm, optIn, optOut string
}

func (w *walker) follow(path string) int {
	w.t.Helper()
	return w.k.Anonymous().Get(path + "?go=1").Status
}

func (w *walker) invited() {
	w.t.Helper()
	w.id = invite(w.t, w.k, w.address).ID
	w.confirm, w.optOut = links(w.t, w.k, w.address)
}

func (w *walker) accepted() {
	w.t.Helper()
	w.invited()
	page := w.k.Anonymous().Get(w.confirm+"?go=1").Want(200, "")
	w.optIn = actionForm.FindStringSubmatch(string(page.Body))[1]
}

func (w *walker) optedIn() {
	w.t.Helper()
	w.accepted()
	w.k.Anonymous().Get(w.optIn+"?go=1").Want(303, "")
}

// silent lets a member wait until the pass presumes that no answer comes.
func (w *walker) silent(wait time.Duration) {
	w.t.Helper()
	w.k.Clock.Advance(wait)
	if err := w.k.Testers().Daily(w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
}

// ways bring a member into each state; a lapse is recorded, or presumed of members who did not say
// yes, did not follow the store's link, or no longer use the app.
var ways = map[string]func(w *walker){
	"invited":  (*walker).invited,
	"accepted": (*walker).accepted,
	"opted_in": (*walker).optedIn,
	"left": func(w *walker) {
		w.optedIn()
		if err := w.k.Testers().Left(w.t.Context(), testers.Ref{MemberID: w.id}); err != nil {
			w.t.Fatal(err)
		}
	},
	"silent": func(w *walker) {
		w.invited()
		w.silent(15 * day)
	},
	"silent with a new link": func(w *walker) {
		w.invited()
		w.k.Clock.Advance(10 * day)
		if _, err := w.k.Testers().Nudge(w.t.Context(), testers.NudgeRequest{Kind: testers.MailConfirm, MemberIDs: []string{w.id}}); err != nil {
			w.t.Fatal(err)
		}
		w.confirm, w.optOut = links(w.t, w.k, w.address)
		w.silent(5 * day)
	},
	"silent after yes": func(w *walker) {
		w.accepted()
		w.silent(15 * day)
	},
	"idle": func(w *walker) {
		w.optedIn()
		if err := w.k.Testers().Seen(w.t.Context(), w.user, testers.Visit{}); err != nil {
			w.t.Fatal(err)
		}
		w.silent(22 * day)
	},
	"idle, and silent to another mail": func(w *walker) {
		w.optedIn()
		if err := w.k.Testers().Seen(w.t.Context(), w.user, testers.Visit{}); err != nil {
			w.t.Fatal(err)
		}
		w.silent(22 * day)
		if _, err := w.k.Testers().Resend(w.t.Context(), testers.Ref{MemberID: w.id}); err != nil {
			w.t.Fatal(err)
		}
		w.silent(15 * day)
	},
	"removed": func(w *walker) {
		w.optedIn()
		if _, err := w.k.Testers().Remove(w.t.Context(), testers.Ref{MemberID: w.id}); err != nil {
			w.t.Fatal(err)
		}
	},
	"withdrawn": func(w *walker) {
		w.optedIn()
		w.leave()
	},
}

func (w *walker) leave() string {
	r := w.k.Anonymous().With("Content-Type", "application/x-www-form-urlencoded").Post(w.optOut, "do=opt-out")
	return fmt.Sprint(r.Status)
}

// events are all that can happen to a member; each returns a code, the status of a page, or "".
var events = map[string]func(w *walker) string{
	"invite": func(w *walker) string {
		_, err := w.k.Testers().Invite(w.t.Context(), "", []testers.Tester{{Email: w.address}})
		return code(err)
	},
	"resend": func(w *walker) string {
		_, err := w.k.Testers().Resend(w.t.Context(), testers.Ref{MemberID: w.id})
		return code(err)
	},
	"remove": func(w *walker) string {
		_, err := w.k.Testers().Remove(w.t.Context(), testers.Ref{MemberID: w.id})
		return code(err)
	},
	"left": func(w *walker) string { return code(w.k.Testers().Left(w.t.Context(), testers.Ref{MemberID: w.id})) },
	"nudge": func(w *walker) string {
		r, err := w.k.Testers().Nudge(w.t.Context(), testers.NudgeRequest{Kind: testers.MailInactive, MemberIDs: []string{w.id}})
		if err == nil && len(r.Skipped) == 1 {
			return r.Skipped[0].Reason
		}
		return code(err)
	},
	"seen": func(w *walker) string { return code(w.k.Testers().Seen(w.t.Context(), w.user, testers.Visit{})) },
	"pass": func(w *walker) string { return code(w.k.Testers().Daily(w.t.Context())) },
	"confirm": func(w *walker) string {
		page, m := w.k.Anonymous().Get(w.confirm), member(w.t, w.k, w.id)
		if asks := strings.Contains(string(page.Body), "Yes, I will test"); page.Status == 200 && asks != (m.ConsentAt == nil) {
			w.t.Errorf("consent of %v, and the page says %s", m.ConsentAt, page.Body)
		}
		return fmt.Sprint(w.follow(w.confirm))
	},
	"opt-in": func(w *walker) string {
		if w.optIn == "" {
			return fmt.Sprint(w.follow("/testers/opt-in/" + w.confirm[len("/testers/confirm/"):])) // a link of another kind
		}
		return fmt.Sprint(w.follow(w.optIn))
	},
	"opt-out": (*walker).leave,
}

// TestEveryTransition applies every event to a member of every state, and checks the new state and
// the result.
func TestEveryTransition(t *testing.T) {
	const there, withdrawn, none = "testers/already_on_roster", "testers/withdrawn", "testers/member_not_found"
	table := map[string]map[string][2]string{
		"invited": {
			"invite": {"invited", there}, "resend": {"invited", ""}, "remove": {"removed", ""}, "left": {"invited", none},
			"nudge": {"invited", "not_eligible"}, "seen": {"invited", ""}, "pass": {"invited", ""}, "confirm": {"accepted", "200"},
			"opt-in": {"invited", "404"}, "opt-out": {"withdrawn", "200"},
		},
		"accepted": {
			"invite": {"accepted", there}, "resend": {"accepted", ""}, "remove": {"removed", ""}, "left": {"accepted", none},
			"nudge": {"accepted", "not_eligible"}, "seen": {"accepted", ""}, "pass": {"accepted", ""}, "confirm": {"accepted", "200"},
			"opt-in": {"opted_in", "303"}, "opt-out": {"withdrawn", "200"},
		},
		"opted_in": {
			"invite": {"opted_in", there}, "resend": {"opted_in", there}, "remove": {"removed", ""}, "left": {"lapsed", ""},
			"nudge": {"opted_in", ""}, "seen": {"opted_in", ""}, "pass": {"opted_in", ""}, "confirm": {"opted_in", "200"},
			"opt-in": {"opted_in", "303"}, "opt-out": {"withdrawn", "200"},
		},
		"left": {
			"invite": {"lapsed", there}, "resend": {"accepted", ""}, "remove": {"removed", ""}, "left": {"lapsed", none},
			"nudge": {"lapsed", "not_eligible"}, "seen": {"lapsed", ""}, "pass": {"lapsed", ""}, "confirm": {"lapsed", "200"},
			"opt-in": {"opted_in", "303"}, "opt-out": {"withdrawn", "200"},
		},
		"silent": {
			"invite": {"lapsed", there}, "resend": {"invited", ""}, "remove": {"removed", ""}, "left": {"lapsed", none},
			"nudge": {"lapsed", "not_eligible"}, "seen": {"lapsed", ""}, "pass": {"lapsed", ""}, "confirm": {"lapsed", "404"},
			"opt-in": {"lapsed", "404"}, "opt-out": {"withdrawn", "200"},
		},
		"silent with a new link": {
			"invite": {"lapsed", there}, "resend": {"invited", ""}, "remove": {"removed", ""}, "left": {"lapsed", none},
			"nudge": {"lapsed", "not_eligible"}, "seen": {"lapsed", ""}, "pass": {"lapsed", ""}, "confirm": {"accepted", "200"},
			"opt-in": {"lapsed", "404"}, "opt-out": {"withdrawn", "200"},
		},
		"silent after yes": {
			"invite": {"lapsed", there}, "resend": {"accepted", ""}, "remove": {"removed", ""}, "left": {"lapsed", none},
			"nudge": {"lapsed", "not_eligible"}, "seen": {"lapsed", ""}, "pass": {"lapsed", ""}, "confirm": {"lapsed", "404"},
			"opt-in": {"lapsed", "404"}, "opt-out": {"withdrawn", "200"},
		},
		"idle": {
			"invite": {"lapsed", there}, "resend": {"accepted", ""}, "remove": {"removed", ""}, "left": {"lapsed", none},
			"nudge": {"lapsed", "not_eligible"}, "seen": {"opted_in", ""}, "pass": {"lapsed", ""}, "confirm": {"lapsed", "404"},
			"opt-in": {"lapsed", "404"}, "opt-out": {"withdrawn", "200"},
		},
		"idle, and silent to another mail": {
			"invite": {"lapsed", there}, "resend": {"accepted", ""}, "remove": {"removed", ""}, "left": {"lapsed", none},
			"nudge": {"lapsed", "not_eligible"}, "seen": {"opted_in", ""}, "pass": {"lapsed", ""}, "confirm": {"lapsed", "404"},
			"opt-in": {"lapsed", "404"}, "opt-out": {"withdrawn", "200"},
		},
		"removed": {
			"invite": {"invited", ""}, "resend": {"removed", none}, "remove": {"removed", ""}, "left": {"removed", none},
			"nudge": {"removed", "not_eligible"}, "seen": {"removed", ""}, "pass": {"removed", ""}, "confirm": {"removed", "404"},
			"opt-in": {"removed", "404"}, "opt-out": {"withdrawn", "200"},
		},
		"withdrawn": {
			"invite": {"withdrawn", withdrawn}, "resend": {"withdrawn", withdrawn}, "remove": {"withdrawn", ""}, "left": {"withdrawn", none},
			"nudge": {"withdrawn", withdrawn}, "seen": {"withdrawn", ""}, "pass": {"withdrawn", ""}, "confirm": {"withdrawn", "404"},
			"opt-in": {"withdrawn", "404"}, "opt-out": {"withdrawn", "200"},
		},
	}
	k := compose(t, testers.Config{CohortDefaults: testers.CohortDefaults{MaxRosterSize: 500}})
	for state, way := range ways {
		if len(table[state]) != len(events) {
			t.Errorf("the table knows %d of %d events in %s", len(table[state]), len(events), state)
		}
		for event, want := range table[state] {
			t.Run(state+"/"+event, func(t *testing.T) {
				w := &walker{t: t, k: k, address: fmt.Sprintf("%s.%s@example.com", strings.ReplaceAll(strings.ReplaceAll(state, ",", ""), " ", "."), event)}
				user, err := k.Auth().CreateUser(t.Context(), auth.NewUser{Email: w.address, EmailVerified: true})
				if err != nil {
					t.Fatal(err)
				}
				w.user = user.ID
				way(w)
				if state == "opted_in" && event == "nudge" {
					k.Clock.Advance(4 * day) // during which the member is not linked
				}
				var before string
				if state == "withdrawn" {
					before = string(k.LastMail(w.address).Source)
				}
				got := events[event](w)
				if m := member(t, k, w.id); string(m.State) != want[0] || got != want[1] {
					t.Errorf("%s, %q; want %s, %q", m.State, got, want[0], want[1])
				}
				if state == "withdrawn" && string(k.LastMail(w.address).Source) != before {
					t.Error("somebody who withdrew was mailed")
				}
			})
		}
	}
}
