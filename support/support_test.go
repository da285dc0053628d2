package support_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kitbackend/kit"
	"github.com/kitbackend/kit/audit"
	"github.com/kitbackend/kit/auth"
	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/database/databasetest"
	"github.com/kitbackend/kit/email"
	"github.com/kitbackend/kit/kittest"
	"github.com/kitbackend/kit/support"
)

func TestFeedbackOpensAndAppends(t *testing.T) {
	each(t, support.Config{}, func(t *testing.T, k *kittest.Kit) {
		ada := k.User("ada")
		first := object(t, ada.Post("/support/feedback", map[string]any{
			"subject": "It crashes", "message": "The app crashes with an error when I start it.", "declaredCategory": "billing",
			"metadata": map[string]string{"appVersion": "1.2"}}).Want(201, ""))
		id, _ := first["id"].(string)
		for _, hidden := range []string{"category", "priority", "sentiment", "flags", "summary", "classifiedBy", "confidence"} {
			if _, shown := first[hidden]; shown {
				t.Errorf("the user is shown %s", hidden)
			}
		}
		if first["declaredCategory"] != "billing" || first["state"] != "open" {
			t.Errorf("got %v", first)
		}
		ada.Post("/support/feedback", map[string]any{"threadId": id, "message": "Still there.", "declaredCategory": "bug_report"}).Want(201, "")
		k.RunJobs()
		got := thread(t, k, id)
		if got.Category != support.CategoryBugReport || got.By != support.ClassifierFallback || *got.DeclaredCategory != "billing" {
			t.Errorf("category %s by %s, declared %s; want bug_report by fallback, declared billing", got.Category, got.By, *got.DeclaredCategory)
		}
		if len(got.Messages) != 2 || got.Messages[0].Metadata["appVersion"] != "1.2" || !got.Flags.NeedsReply || got.MessageCount != 2 {
			t.Errorf("messages: %+v", got.Messages)
		}
		if *got.AccountLinkSource != support.LinkSession || *got.UserID != "ada" {
			t.Errorf("linked by %v to %v", got.AccountLinkSource, got.UserID)
		}
		eve := k.User("eve")
		eve.Get("/support/feedback/"+id).Want(404, "support/not_found")
		eve.Post("/support/feedback", map[string]any{"threadId": id, "message": "Mine"}).Want(404, "support/not_found")
		if items := object(t, eve.Get("/support/feedback").Want(200, ""))["items"].([]any); len(items) != 0 {
			t.Errorf("eve sees %v", items)
		}
		if items := object(t, ada.Get("/support/feedback").Want(200, ""))["items"].([]any); len(items) != 1 {
			t.Errorf("ada sees %v", items)
		}
	})
}

func TestFeedbackIsChecked(t *testing.T) {
	k := desk(t, support.Config{})
	ada := k.User("ada")
	for name, c := range map[string]struct {
		body map[string]any
		want int
		code string
	}{
		"no message":     {map[string]any{"message": "  "}, 400, "kit/invalid_request"},
		"long message":   {map[string]any{"message": strings.Repeat("x", 10_001)}, 400, "kit/invalid_request"},
		"long subject":   {map[string]any{"message": "x", "subject": strings.Repeat("x", 201)}, 400, "kit/invalid_request"},
		"lines":          {map[string]any{"message": "x", "subject": "a\nBcc: x"}, 400, "kit/invalid_request"},
		"category":       {map[string]any{"message": "x", "declaredCategory": "nonsense"}, 422, "support/invalid_category"},
		"no storage":     {map[string]any{"message": "x", "attachments": []string{"o1"}}, 400, "kit/invalid_request"},
		"unknown":        {map[string]any{"message": "x", "category": "billing"}, 400, "kit/invalid_request"},
		"NUL":            {map[string]any{"message": "a\x00b"}, 400, "kit/invalid_request"},
		"no such thread": {map[string]any{"message": "x", "threadId": strings.Repeat("0", 26)}, 404, "support/not_found"},
	} {
		if r := ada.Post("/support/feedback", c.body); r.Status != c.want || r.Code() != c.code {
			t.Errorf("%s: %d %s, want %d %s", name, r.Status, r.Code(), c.want, c.code)
		}
	}
}

func TestMailIsRepliedToAndTheReplyComesBack(t *testing.T) {
	each(t, support.Config{}, func(t *testing.T, k *kittest.Kit) {
		first := receive(t, k, "grace@customer.example", mail("Grace <grace@customer.example>", "Refund please", "I was charged twice. Please send a refund.",
			"Message-ID: <first@customer.example>"))
		k.RunJobs()
		got := thread(t, k, first.ThreadID)
		if got.Category != support.CategoryBilling || got.Channel != support.ChannelEmail || *got.FromAddress != "grace@customer.example" || got.AccountLinkSource != nil {
			t.Fatalf("thread: %+v", got.Thread)
		}
		reply := object(t, k.Machine("support:threads:reply").Post("/support/threads/"+first.ThreadID+"/reply",
			map[string]any{"message": "We sent it back."}).Want(201, ""))
		if reply["emailJobId"] == nil || reply["delivery"] != "queued" {
			t.Errorf("reply: %v", reply)
		}
		sent := k.LastMail("grace@customer.example")
		for _, want := range []string{"In-Reply-To: <first@customer.example>", "References: <first@customer.example>", "Reply-To: <" + inbox + ">", "Subject: Re: Refund please", "Auto-Submitted: no"} {
			if !strings.Contains(string(sent.Source), want) {
				t.Errorf("the reply lacks %q:\n%s", want, sent.Source)
			}
		}
		ours, _ := reply["messageId"].(string)
		k.Clock.Advance(time.Hour)
		back := receive(t, k, "grace@customer.example", mail("grace@CUSTOMER.example", "An entirely different subject",
			"Thank you!\n\nOn Sat, Nov 21, 2026 at 1:00 PM Acme <hello@acme.example> wrote:\n> We sent it back.", "In-Reply-To: "+ours))
		if back.ThreadID != first.ThreadID {
			t.Fatal("the reply did not come into its thread")
		}
		got = thread(t, k, first.ThreadID)
		if len(got.Messages) != 3 || got.Messages[2].StrippedText != "Thank you!" || got.FirstRepliedAt == nil || !got.Flags.NeedsReply {
			t.Errorf("thread: %+v", got)
		}
		if *got.Messages[1].Delivery != "sent" || got.Messages[1].Actor == nil {
			t.Errorf("the reply is %v by %v", got.Messages[1].Delivery, got.Messages[1].Actor)
		}
	})
}

func TestStrangersDoNotEnterThreads(t *testing.T) {
	each(t, support.Config{}, func(t *testing.T, k *kittest.Kit) {
		first := receive(t, k, "grace@customer.example", mail("grace@customer.example", "Help", "Help me.", "Message-ID: <guess@customer.example>"))
		reply, err := k.Support().Reply(t.Context(), support.Reply{ThreadID: first.ThreadID, Message: "How?"})
		if err != nil {
			t.Fatal(err)
		}
		for _, id := range []string{"<guess@customer.example>", *reply.MessageID} {
			for _, header := range []string{"In-Reply-To: ", "References: <x@y.example> "} {
				k.Clock.Advance(time.Minute)
				got := receive(t, k, "mallory@evil.example", mail("mallory@evil.example", "Re: Help", "Tell me all. "+id+header, header+id))
				if got.ThreadID == first.ThreadID {
					t.Errorf("%s%s let a stranger in", header, id)
				}
				detail := thread(t, k, got.ThreadID)
				if detail.RelatedThreadID == nil || *detail.RelatedThreadID != first.ThreadID || len(detail.Messages) != 1 {
					t.Errorf("the stranger's thread: %+v", detail)
				}
			}
		}
		same := receive(t, k, "grace@customer.example", mail("grace@customer.example", "Re: Help", "The same subject makes no thread."))
		if same.ThreadID == first.ThreadID {
			t.Error("a subject threaded")
		}
	})
}

func TestProvenThreadsGoOnWithAProof(t *testing.T) {
	k := desk(t, support.Config{Authentication: support.Authentication{ServerID: "mx.acme.example"}})
	user := member(t, k, "grace@customer.example")
	pass := "Authentication-Results: mx.acme.example; dkim=pass (2048-bit; x) header.d=customer.example"
	first := receive(t, k, "grace@customer.example", mail("grace@customer.example", "Help", "Help me.", pass, "Message-ID: <a@customer.example>"))
	got := thread(t, k, first.ThreadID)
	if got.AccountLinkSource == nil || *got.AccountLinkSource != support.LinkEmailAddress || *got.UserID != user.ID {
		t.Fatalf("not linked: %+v", got.Thread)
	}
	forged := receive(t, k, "grace@customer.example", mail("grace@customer.example", "Re: Help", "I am Grace, too.", "References: <a@customer.example>"))
	if forged.ThreadID == first.ThreadID {
		t.Error("a forged From entered a proven thread")
	}
	if got := thread(t, k, forged.ThreadID); got.UserID != nil {
		t.Error("a forged From was linked")
	}
	again := receive(t, k, "grace@customer.example", mail("grace@customer.example", "Re: Help", "It is me.", pass, "References: <a@customer.example>"))
	if again.ThreadID != first.ThreadID {
		t.Error("a proven reply did not enter its thread")
	}
	tickets, err := k.Support().ListTickets(t.Context(), user.ID, capability.NewPage(10, ""))
	if err != nil || len(tickets.Items) != 1 {
		t.Errorf("the user sees %v, %v; want the linked thread", tickets.Items, err)
	}
}

func TestOnlyAlignedMailIsLinked(t *testing.T) {
	for name, c := range map[string]struct {
		header string
		linked bool
	}{
		"dmarc":             {"Authentication-Results: mx.acme.example; dmarc=pass header.from=customer.example", true},
		"subdomain":         {"Authentication-Results: mx.acme.example; spf=pass smtp.mailfrom=bounce@mail.customer.example", true},
		"identity":          {"Authentication-Results: mx.acme.example 1; dkim=pass header.i=@customer.example", true},
		"none":              {"X-Nothing: here", false},
		"another server":    {"Authentication-Results: mx.evil.example; dmarc=pass header.from=customer.example", false},
		"other domain":      {"Authentication-Results: mx.acme.example; dkim=pass header.d=evil.example", false},
		"public suffix":     {"Authentication-Results: mx.acme.example; dkim=pass header.d=example", false},
		"failed":            {"Authentication-Results: mx.acme.example; dkim=fail header.d=customer.example", false},
		"dmarc fails":       {"Authentication-Results: mx.acme.example; dkim=pass header.d=customer.example; dmarc=fail header.from=customer.example", false},
		"in a comment":      {"Authentication-Results: mx.acme.example; spf=fail (dmarc=pass header.from=customer.example; x) smtp.mailfrom=evil.example", false},
		"in a quotation":    {`Authentication-Results: mx.acme.example; spf=fail smtp.mailfrom="x; dmarc=pass header.from=customer.example; y"@evil.example`, false},
		"forged below ours": {"Authentication-Results: mx.acme.example; spf=none\r\nAuthentication-Results: mx.acme.example; dmarc=pass header.from=customer.example", false},
		"two senders":       {"From: grace@customer.example\r\nAuthentication-Results: mx.acme.example; dmarc=pass header.from=customer.example", false},
	} {
		t.Run(name, func(t *testing.T) {
			k := desk(t, support.Config{Authentication: support.Authentication{ServerID: "mx.acme.example"}})
			member(t, k, "grace@customer.example")
			got := receive(t, k, "grace@customer.example", mail("grace@customer.example", "Help", "Help me.", c.header))
			if source := thread(t, k, got.ThreadID).AccountLinkSource; (source != nil) != c.linked {
				t.Errorf("linked by %v, want %t", source, c.linked)
			}
		})
	}
	k := desk(t, support.Config{Authentication: support.Authentication{ServerID: "mx.acme.example"}})
	if _, err := k.Auth().CreateUser(t.Context(), auth.NewUser{Email: "grace@customer.example"}); err != nil {
		t.Fatal(err)
	}
	got := receive(t, k, "grace@customer.example", mail("grace@customer.example", "Help", "Help me.", "Authentication-Results: mx.acme.example; dmarc=pass header.from=customer.example"))
	if thread(t, k, got.ThreadID).UserID != nil {
		t.Error("an address that nobody verified was linked")
	}
}

func TestStaffActs(t *testing.T) {
	each(t, support.Config{}, func(t *testing.T, k *kittest.Kit) {
		ticket, _, err := k.Support().Submit(t.Context(), support.Feedback{UserID: "ada", Message: "Please add a dark mode, that would be great."})
		if err != nil {
			t.Fatal(err)
		}
		at := "/support/threads/" + ticket.ID
		k.RunJobs()
		archived := object(t, k.Machine("support:threads:archive").Post(at+"/archive", map[string]any{"archived": true}).Want(200, ""))
		if archived["state"] != "archived" || archived["archivedAt"] == nil {
			t.Errorf("got %v", archived)
		}
		k.Machine("support:threads:archive").Post(at+"/archive", map[string]any{}).Want(200, "")
		flags := object(t, k.Machine("support:threads:flag").Post(at+"/flags", map[string]any{"flags": map[string]any{
			"starred": true, "assignee": "grace", "snoozedUntil": "2026-12-01T00:00:00Z"}}).Want(200, ""))["flags"].(map[string]any)
		want := map[string]any{"starred": true, "needsReply": true, "spam": false, "suspicious": false, "assignee": "grace", "snoozedUntil": "2026-12-01T00:00:00.000Z"}
		if diff := cmp.Diff(want, flags); diff != "" {
			t.Error(diff)
		}
		k.Machine("support:threads:flag").Post(at+"/flags", map[string]any{"flags": map[string]any{"snoozedUntil": "soon"}}).Want(400, "kit/invalid_request")
		set := object(t, k.Machine("support:threads:reclassify").Post(at+"/reclassify", map[string]any{"category": "billing"}).Want(200, ""))
		if set["category"] != "billing" || set["classifiedBy"] != "staff" {
			t.Errorf("got %v", set)
		}
		k.Machine("support:threads:reclassify").Post(at+"/reclassify", map[string]any{"category": "nonsense"}).Want(422, "support/invalid_category")
		judged := object(t, k.Machine("support:threads:reclassify").Post(at+"/reclassify", map[string]any{}).Want(200, ""))
		if judged["category"] != "feature_request" || judged["classifiedBy"] != "fallback" || judged["priority"] != "low" {
			t.Errorf("got %v", judged)
		}
		reply := object(t, k.Machine("support:threads:reply").Post(at+"/reply", map[string]any{"message": "Soon."}).Want(201, ""))
		if reply["emailJobId"] != nil || reply["channel"] != "app" {
			t.Errorf("a reply to the app went by mail: %v", reply)
		}
		shown := object(t, k.User("ada").Get("/support/feedback/"+ticket.ID).Want(200, ""))
		messages := shown["messages"].([]any)
		if len(messages) != 2 || messages[1].(map[string]any)["text"] != "Soon." || messages[1].(map[string]any)["actor"] != nil {
			t.Errorf("the user sees %v", messages)
		}
		k.User("ada").Post("/support/feedback", map[string]any{"threadId": ticket.ID, "message": "When?"}).Want(201, "")
		if got := thread(t, k, ticket.ID); got.State != support.StateOpen || got.Flags.SnoozedUntil != nil || !got.Flags.NeedsReply {
			t.Errorf("a new message left the thread %+v", got.Thread)
		}
		k.Machine("support:threads:archive").Post("/support/threads/nothing/archive", map[string]any{}).Want(404, "support/not_found")
		k.Machine("support:threads:flag").Post("/support/threads/nothing/flags", map[string]any{"flags": map[string]any{}}).Want(404, "support/not_found")
		k.Machine("support:threads:reply").Post("/support/threads/nothing/reply", map[string]any{"message": "x"}).Want(404, "support/not_found")
		k.Machine("support:threads:read").Get("/support/threads/nothing").Want(404, "support/not_found")
		var actions []string
		events, err := k.Audit().ListEvents(t.Context(), audit.Filter{Namespace: "support"}, capability.NewPage(100, ""))
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range events.Items {
			actions = append(actions, e.Action)
		}
		for _, want := range []string{"support/thread_archived", "support/thread_flagged", "support/thread_reclassified", "support/reply_sent"} {
			if !strings.Contains(strings.Join(actions, " "), want) {
				t.Errorf("the trail lacks %s: %v", want, actions)
			}
		}
	})
}

// TestEmailJobMeansTheEmailChannel replies by mail in a thread of the app, which the user also sees
// there, and in a thread whose user has no address.
func TestEmailJobMeansTheEmailChannel(t *testing.T) {
	each(t, support.Config{}, func(t *testing.T, k *kittest.Kit) {
		ada := member(t, k, "ada@example.com").ID
		ticket, _, err := k.Support().Submit(t.Context(), support.Feedback{UserID: ada, Message: "Help"})
		if err != nil {
			t.Fatal(err)
		}
		mailed, err := k.Support().Reply(t.Context(), support.Reply{ThreadID: ticket.ID, Message: "By mail."})
		if err != nil || mailed.Channel != support.ChannelEmail || mailed.EmailJobID == nil {
			t.Fatalf("channel %s, job %v, %v; want email with a job", mailed.Channel, mailed.EmailJobID, err)
		}
		receive(t, k, "ada@example.com", mail("ada@example.com", "Re: Help", "Thanks", "In-Reply-To: "+*mailed.MessageID))
		unverified := "ada@other.example"
		if _, err := k.Auth().UpdateUser(t.Context(), ada, auth.UserPatch{Email: &unverified}); err != nil {
			t.Fatal(err)
		}
		if _, err := k.Support().Reply(t.Context(), support.Reply{ThreadID: ticket.ID, Message: "In the app."}); err != nil {
			t.Fatal(err)
		}
		detail := thread(t, k, ticket.ID)
		var got []string
		for _, m := range detail.Messages {
			got = append(got, fmt.Sprintf("%s %s %t", m.Direction, m.Channel, m.EmailJobID != nil))
		}
		want := []string{"inbound app false", "outbound email true", "inbound email false", "outbound app false"}
		if diff := cmp.Diff(want, got); diff != "" || detail.Channel != support.ChannelApp {
			t.Errorf("a thread of channel %s holds %s", detail.Channel, diff)
		}
		shown, err := k.Support().Ticket(t.Context(), ada, ticket.ID)
		if err != nil || len(shown.Messages) != 4 || shown.Messages[1].Text != "By mail." {
			t.Errorf("the user sees %+v, %v", shown.Messages, err)
		}
	})
}

// TestReplyInTheLanguageOfTheUser chooses the template by a read in the transaction of the reply.
func TestReplyInTheLanguageOfTheUser(t *testing.T) {
	templates := fstest.MapFS{"reply.de.txt": {Data: []byte(`{{define "subject"}}AW: {{.Thread.Subject}}{{end}}Guten Tag: {{.Message}}`)}}
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		var k *kittest.Kit
		broken := errors.New("no language")
		k = kittest.New(t, kit.WithDatabase(db), kit.WithAuth(auth.Config{}),
			kit.WithEmail(email.Config{From: "Acme <hello@acme.example>", Templates: templates}),
			kit.WithSupport(support.Config{ReplyTemplate: func(ctx context.Context, thread support.Thread) (string, error) {
				u, err := k.Auth().User(ctx, *thread.UserID)
				if err == nil && u.Name == "broken" {
					err = broken
				}
				if err != nil || u.Name != "Deutsch" {
					return "", err
				}
				return "reply.de", nil
			}}))
		for name, want := range map[string]string{"Deutsch": "Guten Tag: Open it.", "English": "Open it.", "broken": ""} {
			address := name + "@example.org"
			u, err := k.Auth().CreateUser(t.Context(), auth.NewUser{Email: address, EmailVerified: true, Name: name})
			if err != nil {
				t.Fatal(err)
			}
			ticket, _, err := k.Support().Submit(t.Context(), support.Feedback{UserID: u.ID, Message: "The door does not open."})
			if err != nil {
				t.Fatal(err)
			}
			_, err = k.Support().Reply(t.Context(), support.Reply{ThreadID: ticket.ID, Message: "Open it."})
			if want == "" {
				if !errors.Is(err, broken) {
					t.Errorf("%s: %v", name, err)
				}
				continue
			}
			if err != nil {
				t.Fatal(err)
			}
			if m := k.LastMail(address); m.Text != want {
				t.Errorf("%s: %q, want %q", name, m.Text, want)
			}
		}
	})
}

func TestRepliesAreRefused(t *testing.T) {
	k := desk(t, support.Config{})
	got := receive(t, k, "grace@customer.example", mail("grace@customer.example", "Help", "Help me."))
	if _, _, err := k.Email().Suppress(t.Context(), "grace@customer.example", email.ScopeAll, ""); err != nil {
		t.Fatal(err)
	}
	k.Machine("support:threads:reply").Post("/support/threads/"+got.ThreadID+"/reply", map[string]any{"message": "x"}).Want(409, "support/reply_failed")
	reply := support.Reply{ThreadID: receive(t, k, "ada@home.example", mail("ada@home.example", "x", "y")).ThreadID, Message: "One", IdempotencyKey: "k"}
	one, err := k.Support().Reply(t.Context(), reply)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := k.Support().Reply(t.Context(), reply); err != nil || again.ID != one.ID {
		t.Errorf("the same again: %v, %v", again.ID, err)
	}
	reply.Message = "Two"
	if _, err := k.Support().Reply(t.Context(), reply); !errors.Is(err, capability.ErrIdempotencyConflict) {
		t.Errorf("another under the key: %v", err)
	}
	nobody := receive(t, k, "someone@customer.example", "Subject: no sender\r\n\r\nHello\r\n")
	if _, err := k.Support().Reply(t.Context(), support.Reply{ThreadID: nobody.ThreadID, Message: "x"}); !errors.Is(err, support.ErrReplyFailed) {
		t.Errorf("a reply to nobody: %v", err)
	}
	if got := thread(t, k, got.ThreadID); got.MessageCount != 1 || len(got.Messages) != 1 {
		t.Error("a refused reply left a message")
	}
}

func TestGuards(t *testing.T) {
	each(t, support.Config{Guard: support.Guard{MaxPerSenderPerHour: 3, MaxPerHour: 5, MaxRawBytes: 2048}}, func(t *testing.T, k *kittest.Kit) {
		send := func(from, text string) error {
			_, err := k.Support().Receive(t.Context(), support.Envelope{From: from, To: []string{inbox}}, []byte(mail(from, "x", text)))
			return err
		}
		reason := func(err error) support.RejectionReason {
			if refusal, ok := capability.AsError(err).Details.(support.Rejection); ok {
				return refusal.Reason
			}
			return ""
		}
		for i := range 100 {
			err := send("flood@a.example", strings.Repeat("x", i))
			if (i < 3) != (err == nil) || (i >= 3 && reason(err) != support.RejectionSender) {
				t.Fatalf("mail %d: %v", i, err)
			}
		}
		for i := range 4 {
			err := send("b"+strings.Repeat("b", i)+"@b.example", "x")
			if (i < 2) != (err == nil) || (i >= 2 && reason(err) != support.RejectionTotal) {
				t.Fatalf("sender %d: %v", i, err)
			}
		}
		err := send("c@c.example", strings.Repeat("x", 3000))
		if !errors.Is(err, capability.ErrBodyTooLarge) || capability.AsError(err).Details != (capability.BodyLimit{MaxBytes: 2048}) {
			t.Errorf("a large mail: %v %v", err, capability.AsError(err).Details)
		}
		for i := range 4 { // the app has a separate total
			r := k.User("ada").Post("/support/feedback", map[string]any{"message": "x"})
			if want := map[bool]int{true: 201, false: 429}[i < 3]; r.Status != want {
				t.Fatalf("feedback %d: %d %s", i, r.Status, r.Body)
			} else if left := fmt.Sprint(3600 - k.Clock.Now().Unix()%3600); want == 429 && (r.Code() != "support/rejected" || r.Header.Get("Retry-After") != left) {
				t.Errorf("refused with %s, Retry-After %q, want the %s s to the next hour", r.Code(), r.Header.Get("Retry-After"), left)
			}
		}
		k.Clock.Advance(time.Hour)
		if err := send("flood@a.example", "later"); err != nil {
			t.Errorf("in the next hour: %v", err)
		}
		k.RunJobs()
	})
}

func TestInboxWithoutAddressesIsInert(t *testing.T) {
	k := desk(t, support.Config{InboundAddresses: []string{}})
	for range 3 {
		receipt, err := k.Support().Receive(t.Context(), support.Envelope{From: "a@b.example", To: []string{inbox}}, []byte(mail("a@b.example", "x", "y")))
		if err != nil || receipt.Outcome != support.OutcomeIgnored {
			t.Errorf("%+v, %v; want ignored", receipt, err)
		}
	}
	if count(t, k) != 0 {
		t.Error("an inert inbox stored something")
	}
	k.User("ada").Post("/support/feedback", map[string]any{"message": "The app goes on."}).Want(201, "")
}

func TestRecipientsAreThoseOfTheEnvelope(t *testing.T) {
	k := desk(t, support.Config{})
	for to, want := range map[string]support.Outcome{
		inbox: support.OutcomeStored, "HELP@ACME.example": support.OutcomeStored, "help+billing@acme.example": support.OutcomeStored,
		"helper@acme.example": support.OutcomeIgnored, "help@acme.example.evil.example": support.OutcomeIgnored, "": support.OutcomeIgnored,
	} {
		got, err := k.Support().Receive(t.Context(), support.Envelope{From: "a@b.example", To: []string{to}}, []byte(mail("a@b.example", "to "+to, "y", "Message-ID: <"+strings.ReplaceAll(to, "@", ".")+"@b.example>")))
		if err != nil || got.Outcome != want {
			t.Errorf("%s: %s, %v; want %s", to, got.Outcome, err, want)
		}
	}
}

func TestAMailIsStoredOnce(t *testing.T) {
	each(t, support.Config{}, func(t *testing.T, k *kittest.Kit) {
		raw := mail("grace@customer.example", "Help", "Help me.")
		first := receive(t, k, "grace@customer.example", raw)
		again, err := k.Support().Receive(t.Context(), support.Envelope{From: "grace@customer.example", To: []string{inbox}}, []byte("Received: twice\r\n"+raw))
		if err != nil || again.Outcome != support.OutcomeDuplicate || again.ThreadID != first.ThreadID || again.MessageID != first.MessageID {
			t.Errorf("again: %+v, %v", again, err)
		}
		if count(t, k) != 1 {
			t.Error("stored twice")
		}
		// A stranger's mail with the same id is stored in another thread.
		other := receive(t, k, "eve@customer.example", mail("eve@customer.example", "Help", "Other.", "Message-ID: "+*thread(t, k, first.ThreadID).Messages[0].MessageID))
		if other.ThreadID == first.ThreadID {
			t.Error("an id let a stranger in")
		}
	})
}

func TestBouncesGoToEmail(t *testing.T) {
	k := desk(t, support.Config{})
	jobID, err := k.Email().Send(t.Context(), email.Message{To: "gone@customer.example", Subject: "Hi", Text: "Hi"})
	if err != nil {
		t.Fatal(err)
	}
	k.RunJobs()
	job, err := k.Email().Job(t.Context(), jobID)
	if err != nil {
		t.Fatal(err)
	}
	bounce := strings.ReplaceAll(`From: MAILER-DAEMON@mx.example
To: help@acme.example
Subject: Undelivered
MIME-Version: 1.0
Content-Type: multipart/report; report-type=delivery-status; boundary=b

--b
Content-Type: text/plain

Gone.
--b
Content-Type: message/delivery-status

Reporting-MTA: dns; mx.example

Final-Recipient: rfc822; gone@customer.example
Action: failed
Status: 5.1.1

--b
Content-Type: message/rfc822

Message-ID: `+job.MessageID+`
Subject: Hi

Hi
--b--
`, "\n", "\r\n")
	got, err := k.Support().Receive(t.Context(), support.Envelope{To: []string{inbox}}, []byte(bounce))
	if err != nil || got.Outcome != support.OutcomeBounce {
		t.Fatalf("%+v, %v", got, err)
	}
	if job, _ = k.Email().Job(t.Context(), jobID); job.State != email.StateBounced {
		t.Errorf("the job is %s, want bounced", job.State)
	}
	if count(t, k) != 0 {
		t.Error("a bounce opened a thread")
	}
}

func TestForwardedBounceIsAMessage(t *testing.T) {
	k := desk(t, support.Config{})
	for name, c := range map[string]struct{ kind, disposition string }{
		"attached":  {"message/delivery-status", "attachment; filename=details.txt"},
		"inline":    {"message/feedback-report", "inline"},
		"forwarded": {"multipart/report; boundary=r", "inline"},
	} {
		got := receive(t, k, "grace@customer.example", multipart("mixed", "Content-Type: text/plain\n\nYour invoices do not reach me, I got this: "+name,
			"Content-Type: "+c.kind+"\nContent-Disposition: "+c.disposition+"\n\n--r\nContent-Type: message/delivery-status\n\nAction: failed\n--r--\n"))
		m := thread(t, k, got.ThreadID).Messages[0]
		if !strings.Contains(m.Text, "I got this: "+name) || m.Automated || len(m.Attachments) != 1 {
			t.Errorf("%s: automated %t, %d files, %q; want what a person wrote and the report", name, m.Automated, len(m.Attachments), m.Text)
		}
	}
}

func TestReportsOfPeoplesProgramsAreNoMessages(t *testing.T) {
	k := desk(t, support.Config{})
	for name, raw := range map[string]string{
		"receipt": multipart("report; report-type=disposition-notification", "Content-Type: text/plain\n\nRead.", "Content-Type: message/disposition-notification\n\nDisposition: x"),
		"bare":    lines("From: a@b.example\nContent-Type: message/feedback-report\n\nFeedback-Type: abuse\n"),
	} {
		got, err := k.Support().Receive(t.Context(), support.Envelope{From: "a@b.example", To: []string{inbox}}, []byte(raw))
		if err != nil || got.Outcome != support.OutcomeBounce {
			t.Errorf("%s: %+v, %v; want a bounce", name, got, err)
		}
	}
}

func TestListsByEachFilter(t *testing.T) {
	each(t, support.Config{}, func(t *testing.T, k *kittest.Kit) {
		for i, text := range []string{"The app crashes, an error.", "Please add an export, that would be nice.", "I was charged twice, refund me."} {
			k.Clock.Advance(time.Second)
			receive(t, k, "p"+strings.Repeat("p", i)+"@customer.example", mail("p"+strings.Repeat("p", i)+"@customer.example", "Number "+strings.Repeat("I", i+1), text))
		}
		if _, _, err := k.Support().Submit(t.Context(), support.Feedback{UserID: "ada", Message: "Thanks, this is great and amazing!"}); err != nil {
			t.Fatal(err)
		}
		k.RunJobs()
		reader := func(query string) []any {
			return object(t, k.Machine("support:threads:read").Get("/support/threads?"+query).Want(200, ""))["items"].([]any)
		}
		for query, want := range map[string]int{
			"": 4, "state=open": 4, "state=archived": 0, "category=bug_report": 1, "category=billing&state=open": 1, "priority=low": 1,
			"sentiment=positive": 1, "channel=app": 1, "channel=email": 3, "flag=needsReply": 4, "flag=starred": 0, "flag=snoozed": 0,
			"q=NUMBER+ii": 2, "q=ppp%40": 1, "assignee=grace": 0, "userId=ada": 1, "limit=2": 2,
		} {
			if got := len(reader(query)); got != want {
				t.Errorf("%s: %d threads, want %d", query, got, want)
			}
		}
		for query, code := range map[string]string{"state=closed": "kit/invalid_request", "flag=x": "kit/invalid_request", "category=x": "support/invalid_category", "cursor=x": "kit/invalid_request"} {
			if r := k.Machine("support:threads:read").Get("/support/threads?" + query); r.Code() != code {
				t.Errorf("%s: %d %s, want %s", query, r.Status, r.Code(), code)
			}
		}
		seen, cursor := 0, ""
		for {
			page := object(t, k.Machine("support:threads:read").Get("/support/threads?limit=1&q=number&cursor="+cursor).Want(200, ""))
			seen += len(page["items"].([]any))
			if page["nextCursor"] == nil {
				break
			}
			cursor = page["nextCursor"].(string)
		}
		if seen != 3 {
			t.Errorf("the walk of a query saw %d, want 3", seen)
		}
	})
}

func TestPrograms(t *testing.T) {
	for name, c := range map[string]struct {
		header    string
		from      string
		automated bool
	}{
		"a person":            {"X-Mailer: x", "a@b.example", false},
		"explicit no":         {"Auto-Submitted: no", "a@b.example", false},
		"no with a comment":   {"Auto-Submitted: no (really)", "a@b.example", false},
		"ours, by a person":   {"Auto-Submitted: no\r\nX-Auto-Response-Suppress: All", "a@b.example", false},
		"auto-replied":        {"Auto-Submitted: auto-replied; x=y", "a@b.example", true},
		"list":                {"Precedence: list", "a@b.example", true},
		"list id":             {"List-Id: <l.example>", "a@b.example", true},
		"outlook":             {"X-Auto-Response-Suppress: All", "a@b.example", true},
		"own address":         {"X-Mailer: x", inbox, true},
		"no reply":            {"X-Mailer: x", "no-reply@b.example", true},
		"a person called Noa": {"X-Mailer: x", "noreplyfan@b.example", false},
	} {
		k := desk(t, support.Config{})
		got := receive(t, k, c.from, mail(c.from, "x", "Your refund", c.header))
		if ran := k.RunJobs(); c.automated && ran > 2 {
			t.Logf("%s: %d jobs", name, ran)
		}
		detail := thread(t, k, got.ThreadID)
		if detail.Messages[0].Automated != c.automated || detail.Flags.NeedsReply == c.automated || (detail.By == support.ClassifierNone) != c.automated {
			t.Errorf("%s: automated %t, needs reply %t, by %s; want automated %t", name, detail.Messages[0].Automated, detail.Flags.NeedsReply, detail.By, c.automated)
		}
	}
}

func TestALoopEndsByItself(t *testing.T) {
	a, b := desk(t, support.Config{InboundAddresses: []string{"help@a.example"}}), desk(t, support.Config{InboundAddresses: []string{"help@b.example"}})
	desks := []*kittest.Kit{a, b}
	own := []string{"help@a.example", "help@b.example"}
	raw, from := []byte(strings.ReplaceAll(mail("help@a.example", "Hello", "Hello"), inbox, own[1])), own[0]
	rounds := 0
	for at := 1; rounds < 20; at = 1 - at {
		got, err := desks[at].Support().Receive(t.Context(), support.Envelope{From: from, To: []string{own[at]}}, raw)
		if err != nil {
			t.Fatal(err)
		}
		_, err = desks[at].Support().Reply(t.Context(), support.Reply{ThreadID: got.ThreadID, Message: "We got your mail.", Automatic: true})
		if errors.Is(err, support.ErrReplyFailed) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		sent := desks[at].LastMail(from)
		raw, from = []byte(strings.ReplaceAll(string(sent.Source), "hello@acme.example", own[at])), own[at]
		rounds++
	}
	if rounds != 1 {
		t.Errorf("the loop ran %d rounds, want 1", rounds)
	}
}

func TestAutomaticRepliesAreOneADay(t *testing.T) {
	k := desk(t, support.Config{})
	got := receive(t, k, "a@b.example", mail("a@b.example", "x", "y"))
	reply := support.Reply{ThreadID: got.ThreadID, Message: "We got your mail.", Automatic: true}
	for i, want := range []error{nil, support.ErrReplyFailed} {
		if _, err := k.Support().Reply(t.Context(), reply); !errors.Is(err, want) {
			t.Errorf("automatic reply %d: %v, want %v", i, err, want)
		}
	}
	k.Clock.Advance(25 * time.Hour)
	if _, err := k.Support().Reply(t.Context(), reply); err != nil {
		t.Error(err)
	}
}

func TestExportAndErase(t *testing.T) {
	each(t, support.Config{}, func(t *testing.T, k *kittest.Kit) {
		if _, _, err := k.Support().Submit(t.Context(), support.Feedback{UserID: "ada", Message: "Mine"}); err != nil {
			t.Fatal(err)
		}
		byMail := receive(t, k, "ada@home.example", mail("Ada <ada@home.example>", "Also mine", "By mail"))
		other := receive(t, k, "eve@home.example", mail("eve@home.example", "Not hers", "By mail"))
		if _, err := k.Support().Reply(t.Context(), support.Reply{ThreadID: byMail.ThreadID, Message: "Well."}); err != nil {
			t.Fatal(err)
		}
		if _, err := k.Support().SetFlags(t.Context(), other.ThreadID, support.FlagChange{Assignee: ptr("ada")}); err != nil {
			t.Fatal(err)
		}
		person := capability.Person{ID: "ada", Emails: []string{"ada@home.example"}}
		kinds := map[string]int{}
		emit := func(kind string, _ any) error { kinds[kind]++; return nil }
		if err := k.Support().Export(t.Context(), person, emit); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(map[string]int{"support_thread": 2, "support_message": 3}, kinds); diff != "" {
			t.Error(diff)
		}
		erasure, err := k.Support().Erase(t.Context(), person)
		if err != nil || erasure.Removed != 6 {
			t.Errorf("erased %+v, %v; want 6 rows", erasure, err)
		}
		if erasure, err = k.Support().Erase(t.Context(), person); err != nil || erasure.Removed != 0 {
			t.Errorf("erased again: %+v, %v", erasure, err)
		}
		clear(kinds)
		if err := k.Support().Export(t.Context(), person, emit); err != nil || len(kinds) != 0 {
			t.Errorf("after it: %v, %v", kinds, err)
		}
		if got := thread(t, k, other.ThreadID); got.Flags.Assignee != nil {
			t.Error("still assigned")
		}
		k.RunJobs()
	})
}

func TestMailDuringAnErasureIsNotLinked(t *testing.T) {
	each(t, support.Config{Authentication: support.Authentication{ServerID: "mx.acme.example"}}, func(t *testing.T, k *kittest.Kit) {
		user := member(t, k, "ada@example.com")
		if err := k.EraseUser(t.Context(), user.ID); err != nil { // disables the user; a job does the rest and has not run
			t.Fatal(err)
		}
		if _, err := k.Support().Erase(t.Context(), capability.Person{ID: user.ID, Emails: []string{"ada@example.com"}}); err != nil {
			t.Fatal(err)
		}
		got := receive(t, k, "ada@example.com", mail("ada@example.com", "Hello", "One more thing.",
			"Authentication-Results: mx.acme.example; dkim=pass header.d=example.com"))
		if linked := thread(t, k, got.ThreadID); linked.UserID != nil || linked.AccountLinkSource != nil {
			t.Errorf("the thread is linked to a user who is being erased: %+v", linked.Thread)
		}
	})
}

func ptr[T any](v T) *T { return &v }

func TestConfigIsRefused(t *testing.T) {
	for name, cfg := range map[string]support.Config{
		"address":     {InboundAddresses: []string{"nobody"}},
		"model":       {AI: support.AI{Enabled: true}},
		"key":         {Categories: []support.Category{{Key: "Big Word"}}},
		"twice":       {Categories: []support.Category{{Key: "crafting"}, {Key: "crafting"}}},
		"raw bytes":   {Guard: support.Guard{MaxRawBytes: 10}},
		"negative":    {Guard: support.Guard{MaxPerHour: -1}},
		"network":     {Listen: support.Listen{Network: "udp"}},
		"relay":       {Inbound: support.Inbound{Relay: "short"}},
		"mailgun":     {Inbound: support.Inbound{Mailgun: "short"}},
		"sendgrid":    {Inbound: support.Inbound{SendGrid: "MFkw"}},
		"ses":         {Inbound: support.Inbound{SES: "arn:aws:sns:here"}},
		"description": {Categories: []support.Category{{Key: "crafting", Description: "a\nb"}}},
	} {
		if _, err := support.New(capability.Host{}, cfg, support.Peers{}); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

func TestFaultsNameTheGuard(t *testing.T) {
	_, err := support.New(capability.Host{}, support.Config{Guard: support.Guard{MaxPerSenderPerHour: -1}}, support.Peers{})
	var fault *capability.Fault
	if !errors.As(err, &fault) || fault.Key != "guard.maxPerSenderPerHour" || fault.Value != -1 {
		t.Errorf("got %v, want a fault of guard.maxPerSenderPerHour", err)
	}
	_, err = support.New(capability.Host{}, support.Config{Guard: support.Guard{MaxPerSenderPerHour: -1, MaxPerHour: -2}}, support.Peers{})
	if err == nil || !strings.Contains(err.Error(), "guard.maxPerSenderPerHour") || !strings.Contains(err.Error(), "guard.maxPerHour") {
		t.Errorf("got %v, want both faults", err)
	}
}

func TestOwnCategoriesAreMerged(t *testing.T) {
	k := desk(t, support.Config{Categories: []support.Category{{Key: "crafting", Description: "Recipes and workbenches."}, {Key: "billing", Description: "Coins."}, {Key: "spam"}}})
	var keys []string
	for _, c := range k.Support().Categories() {
		keys = append(keys, c.Key)
		if (c.Key == "billing" && c.Description != "Coins.") || c.Description == "" {
			t.Errorf("%s is described as %q", c.Key, c.Description)
		}
	}
	want := "billing account_access bug_report feature_request abuse_report privacy_request spam uncategorized crafting"
	if strings.Join(keys, " ") != want {
		t.Errorf("got %v, want %s", keys, want)
	}
	k.User("ada").Post("/support/feedback", map[string]any{"message": "The workbenches of crafting recipes", "declaredCategory": "crafting"}).Want(http.StatusCreated, "")
}
