package testers_test

import (
	"bytes"
	"net/mail"
	"net/url"
	"strings"
	"testing"

	"github.com/kitbackend/kit/kittest"
	"github.com/kitbackend/kit/testers"
)

// wantWaysOut checks that the last mail to an address has the same opt-out link for people and for
// mail programs, and that one click on it works.
func wantWaysOut(t *testing.T, k *kittest.Kit, address string) (out string) {
	t.Helper()
	_, out = links(t, k, address)
	m, err := mail.ReadMessage(bytes.NewReader(k.LastMail(address).Source))
	if err != nil {
		t.Fatal(err)
	}
	if m.Header.Get("List-Unsubscribe-Post") != "List-Unsubscribe=One-Click" {
		t.Errorf("List-Unsubscribe-Post: %q", m.Header.Get("List-Unsubscribe-Post"))
	}
	header, _, _ := strings.Cut(strings.TrimPrefix(m.Header.Get("List-Unsubscribe"), "<"), ">")
	if u, err := url.Parse(strings.ReplaceAll(header, " ", "")); err != nil || u.RequestURI() != out {
		t.Errorf("List-Unsubscribe is %q, the text says %s", header, out)
	}
	return out
}

// TestEveryMailCarriesBothWaysOut sends the invitation and each kind of reminder.
func TestEveryMailCarriesBothWaysOut(t *testing.T) {
	k := compose(t, testers.Config{CohortDefaults: testers.CohortDefaults{TargetSize: 1, WindowDays: 5}})
	asked, in := invite(t, k, "asked@example.com"), join(t, k, "in@example.com")
	yes := invite(t, k, "yes@example.com")
	confirm, _ := links(t, k, "yes@example.com")
	k.Anonymous().Get(confirm+"?go=1").Want(200, "")
	wantWaysOut(t, k, "asked@example.com")
	if err := k.Testers().Daily(t.Context()); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		k.Clock.Advance(day)
		if err := k.Testers().Daily(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	remind := func(kind testers.MailKind, id, address string) {
		t.Helper()
		r, err := k.Testers().Nudge(t.Context(), testers.NudgeRequest{Kind: kind, MemberIDs: []string{id}})
		if err != nil || len(r.Sent) != 1 {
			t.Fatalf("%s: %+v, %v", kind, r, err)
		}
		wantWaysOut(t, k, address)
	}
	remind(testers.MailConfirm, asked.ID, "asked@example.com")
	remind(testers.MailStore, yes.ID, "yes@example.com")
	remind(testers.MailClosing, in.ID, "in@example.com")
	k.Clock.Advance(3 * day)
	remind(testers.MailInactive, in.ID, "in@example.com")
	out := wantWaysOut(t, k, "in@example.com")
	k.Anonymous().With("Content-Type", "application/x-www-form-urlencoded").Post(out, "List-Unsubscribe=One-Click").Want(200, "")
	want(t, k, in.ID, testers.StateWithdrawn)
}
