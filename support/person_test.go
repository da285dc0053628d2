package support_test

import (
	"strings"
	"testing"

	"github.com/kitbackend/kit/auth"
	"github.com/kitbackend/kit/support"
)

func TestUnprovedAddressTakesNothing(t *testing.T) {
	k := desk(t, support.Config{})
	receive(t, k, "grace@customer.example", mail("grace@customer.example", "My illness", "A private matter."))
	if _, err := k.Auth().CreateUser(t.Context(), auth.NewUser{ID: "mallory", Email: "grace@customer.example", Name: "M"}); err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	if err := k.ExportUser(t.Context(), "mallory", &out); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(out.String(), "A private matter") {
		t.Error("the export of mallory holds the mail of grace")
	}
	if err := k.EraseUser(t.Context(), "mallory"); err != nil {
		t.Fatal(err)
	}
	k.RunJobs()
	if count(t, k) != 1 {
		t.Error("the erasure of mallory removed the thread of grace")
	}
}

func TestThreadsFollowTheUserNotTheAddress(t *testing.T) {
	k := desk(t, support.Config{})
	bob, err := k.Auth().CreateUser(t.Context(), auth.NewUser{ID: "bob", Email: "team@example.com", EmailVerified: true, Name: "B"})
	if err != nil {
		t.Fatal(err)
	}
	ticket, _, err := k.Support().Submit(t.Context(), support.Feedback{UserID: bob.ID, Subject: "x", Message: "Only bob may read this."})
	if err != nil {
		t.Fatal(err)
	}
	other := "bob@example.com"
	if _, err := k.Auth().UpdateUser(t.Context(), "bob", auth.UserPatch{Email: &other}); err != nil {
		t.Fatal(err)
	}
	if _, err := k.Auth().CreateUser(t.Context(), auth.NewUser{ID: "ada", Email: "team@example.com", EmailVerified: true, Name: "A"}); err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	if err := k.ExportUser(t.Context(), "ada", &out); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(out.String(), "Only bob may read this") {
		t.Error("the export of ada holds what bob wrote in the app")
	}
	if err := k.EraseUser(t.Context(), "ada"); err != nil {
		t.Fatal(err)
	}
	k.RunJobs()
	if _, err := k.Support().Ticket(t.Context(), "bob", ticket.ID); err != nil {
		t.Errorf("the erasure of ada removed bob's thread: %v", err)
	}
}

// TestMailOfAnotherUserOpensAThreadOfItsOwn moves an address to another user: its new user cannot
// write to a thread of the previous one.
func TestMailOfAnotherUserOpensAThreadOfItsOwn(t *testing.T) {
	k := desk(t, support.Config{Authentication: support.Authentication{ServerID: "mx.acme.example"}})
	address := "team@example.com"
	proof := "Authentication-Results: mx.acme.example; dkim=pass header.d=example.com"
	bob := member(t, k, address)
	first := receive(t, k, address, mail(address, "Help", "Of bob.", proof, "Message-ID: <1@example.com>"))
	other := "bob@example.com"
	if _, err := k.Auth().UpdateUser(t.Context(), bob.ID, auth.UserPatch{Email: &other}); err != nil {
		t.Fatal(err)
	}
	ada := member(t, k, address)
	second := receive(t, k, address, mail(address, "Re: Help", "Of ada.", proof, "In-Reply-To: <1@example.com>"))
	if second.ThreadID == first.ThreadID {
		t.Error("bob reads what ada wrote")
	}
	if got := thread(t, k, second.ThreadID); got.UserID == nil || *got.UserID != ada.ID {
		t.Errorf("the thread is of %v, want ada", got.UserID)
	}
}
