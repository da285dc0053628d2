package email_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/database/databasetest"
	"github.com/kitbackend/kit/email"
)

const ourID = "<06gzvyj600c52qv6fqyke0g3f0.bpf4rcp4mwvvw7az@acme.example>"

// status returns a delivery status notification (RFC 3464).
func status(recipient, action, code, diagnostic, original string) string {
	return "Return-Path: <>\r\nFrom: Mail Delivery System <MAILER-DAEMON@mx.example>\r\nTo: hello@acme.example\r\nSubject: Undelivered Mail Returned to Sender\r\n" +
		"Auto-Submitted: auto-replied\r\nMIME-Version: 1.0\r\nContent-Type: multipart/report; report-type=delivery-status; boundary=\"b\"\r\n\r\n" +
		"--b\r\nContent-Type: text/plain\r\n\r\nI'm sorry to have to inform you that your message could not be delivered.\r\n\r\n" +
		"--b\r\nContent-Type: message/delivery-status\r\n\r\nReporting-MTA: dns; mx.example\r\nArrival-Date: Sat, 21 Nov 2026 12:00:00 +0000\r\n\r\n" +
		"Final-Recipient: rfc822; " + recipient + "\r\nAction: " + action + "\r\nStatus: " + code + "\r\nDiagnostic-Code: smtp; " + diagnostic + "\r\n\r\n" +
		"--b\r\nContent-Type: " + original + "\r\n\r\nFrom: hello@acme.example\r\nTo: ada@example.com\r\nSubject: Hello\r\nMessage-ID: " + ourID + "\r\n\r\nHello there.\r\n--b--\r\n"
}

func abuse(kind, recipient string) string {
	return "From: fbl@provider.example\r\nTo: fbl@acme.example\r\nSubject: complaint\r\nMIME-Version: 1.0\r\n" +
		"Content-Type: multipart/report; report-type=feedback-report; boundary=b\r\n\r\n--b\r\nContent-Type: text/plain\r\n\r\nThis is an abuse report.\r\n" +
		"--b\r\nContent-Type: message/feedback-report\r\n\r\nFeedback-Type: " + kind + "\r\nUser-Agent: Provider/1.0\r\nVersion: 1\r\n" + recipient + "\r\n" +
		"--b\r\nContent-Type: message/rfc822\r\n\r\nFrom: hello@acme.example\r\nTo: ada@example.com\r\nMessage-ID: " + ourID + "\r\n\r\nNews.\r\n--b--\r\n"
}

func prose(head, text string) string {
	return head + "MIME-Version: 1.0\r\nContent-Type: text/plain; charset=us-ascii\r\n\r\n" + text
}

// The forms of reports by servers, modeled on public collections of bounces, and the expected
// result of each.
var bounces = map[string]struct {
	mail string
	kind email.ReportKind // "" for no report
	to   string
	lost bool // without our Message-ID
}{
	"postfix, unknown":              {mail: status("ada@example.com", "failed", "5.1.1", "550 5.1.1 <ada@example.com>: Recipient address rejected: User unknown", "message/rfc822"), kind: email.ReportHardBounce, to: "ada@example.com"},
	"headers only":                  {mail: status("ada@example.com", "failed", "5.1.1", "550 no", "text/rfc822-headers"), kind: email.ReportHardBounce, to: "ada@example.com"},
	"exchange, not found":           {mail: status("ada@example.com", "failed", "5.1.10", "550 5.1.10 RESOLVER.ADR.RecipientNotFound", "message/rfc822"), kind: email.ReportHardBounce, to: "ada@example.com"},
	"no such domain":                {mail: status("ada@example.com", "failed", "5.1.2", "X-Notes; Host or domain name not found", "message/rfc822"), kind: email.ReportHardBounce, to: "ada@example.com"},
	"status in the diagnostic":      {mail: status("ada@example.com", "failed", "5.0.0", "550 5.1.1 no mailbox", "message/rfc822"), kind: email.ReportHardBounce, to: "ada@example.com"},
	"no status, prose":              {mail: status("ada@example.com", "failed", "", "550 user unknown", "message/rfc822"), kind: email.ReportHardBounce, to: "ada@example.com"},
	"disabled":                      {mail: status("ada@example.com", "failed", "5.2.1", "550 The account is disabled", "message/rfc822"), kind: email.ReportHardBounce, to: "ada@example.com"},
	"full":                          {mail: status("ada@example.com", "failed", "5.2.2", "552 5.2.2 mailbox full", "message/rfc822"), kind: email.ReportSoftBounce, to: "ada@example.com"},
	"policy":                        {mail: status("ada@example.com", "failed", "5.7.1", "554 5.7.1 blocked: user unknown to reputation service", "message/rfc822"), kind: email.ReportSoftBounce, to: "ada@example.com"},
	"too big":                       {mail: status("ada@example.com", "failed", "5.3.4", "552 5.3.4 message too big", "message/rfc822"), kind: email.ReportSoftBounce, to: "ada@example.com"},
	"expired after 5 days":          {mail: status("ada@example.com", "failed", "4.4.7", "451 4.4.1 timeout", "message/rfc822"), kind: email.ReportSoftBounce, to: "ada@example.com"},
	"our own sender refused":        {mail: status("ada@example.com", "failed", "5.1.8", "550 5.1.8 sender domain not found", "message/rfc822"), kind: email.ReportSoftBounce, to: "ada@example.com"},
	"delayed":                       {mail: status("ada@example.com", "delayed", "4.4.1", "connection timed out", "message/rfc822"), kind: email.ReportDelayed, to: "ada@example.com"},
	"delivered":                     {mail: status("ada@example.com", "delivered", "2.0.0", "250 ok", "message/rfc822"), kind: email.ReportDelivered, to: "ada@example.com"},
	"relayed":                       {mail: status("ada@example.com", "relayed", "2.0.0", "250 ok", "message/rfc822")},
	"of a mail spool":               {mail: "From MAILER-DAEMON Sat Nov 21 12:00:00 2026\n" + status("ada@example.com", "failed", "5.1.1", "550 no", "message/rfc822"), kind: email.ReportHardBounce, to: "ada@example.com"},
	"unix lines":                    {mail: strings.ReplaceAll(status("ada@example.com", "failed", "5.1.1", "550 no", "message/rfc822"), "\r\n", "\n"), kind: email.ReportHardBounce, to: "ada@example.com"},
	"mixed instead of report":       {mail: strings.Replace(status("ada@example.com", "failed", "5.1.1", "550 no", "message/rfc822"), "multipart/report; report-type=delivery-status;", "multipart/mixed;", 1), kind: email.ReportHardBounce, to: "ada@example.com"},
	"original recipient":            {mail: strings.Replace(status("other@internal.example", "failed", "5.1.1", "550 no", "message/rfc822"), "Final-Recipient", "Original-Recipient: rfc822;ada@example.com\r\nFinal-Recipient", 1), kind: email.ReportHardBounce, to: "ada@example.com"},
	"cut in the middle":             {mail: status("ada@example.com", "failed", "5.1.1", "550 no", "message/rfc822")[:680], kind: email.ReportHardBounce, to: "ada@example.com", lost: true},
	"unknown charset":               {mail: strings.Replace(status("ada@example.com", "failed", "5.1.1", "550 no", "message/rfc822"), "Content-Type: text/plain\r\n", "Content-Type: text/plain; charset=x-klingon\r\n", 1), kind: email.ReportHardBounce, to: "ada@example.com"},
	"abuse":                         {mail: abuse("abuse", "Original-Rcpt-To: ada@example.com\r\n"), kind: email.ReportComplaint, to: "ada@example.com"},
	"abuse, recipient redacted":     {mail: abuse("abuse", ""), kind: email.ReportComplaint, to: "ada@example.com"},
	"fraud":                         {mail: abuse("fraud", "Original-Rcpt-To: <ada@example.com>\r\n"), kind: email.ReportComplaint, to: "ada@example.com"},
	"not spam after all":            {mail: abuse("not-spam", "")},
	"authentication report":         {mail: abuse("auth-failure", "")},
	"exim":                          {mail: prose("From: Mail Delivery System <Mailer-Daemon@mx.example>\r\nX-Failed-Recipients: ada@example.com\r\nAuto-Submitted: auto-replied\r\nSubject: Mail delivery failed: returning message to sender\r\n", "This message was created automatically by mail delivery software.\n\nA message that you sent could not be delivered. The following address failed:\n\n  ada@example.com\n    SMTP error from remote mail server: 550 Unknown user\n\n------ This is a copy of the message ------\n\nFrom: hello@acme.example\nMessage-Id: "+ourID+"\n\nHello\n"), kind: email.ReportHardBounce, to: "ada@example.com"},
	"exim, full":                    {mail: prose("From: Mailer-Daemon@mx.example\r\nX-Failed-Recipients: ada@example.com\r\nSubject: Mail delivery failed\r\n", "  ada@example.com\n    mailbox is full: retry timeout exceeded\n\nMessage-ID: "+ourID+"\n"), kind: email.ReportSoftBounce, to: "ada@example.com"},
	"qmail":                         {mail: prose("Return-Path: <>\r\nFrom: MAILER-DAEMON@mx.example\r\nSubject: failure notice\r\n", "Hi. This is the qmail-send program at mx.example.\nI'm afraid I wasn't able to deliver your message to the following addresses.\nThis is a permanent error; I've given up. Sorry it didn't work out.\n\n<ada@example.com>:\nSorry, no mailbox here by that name. (#5.1.1)\n\n--- Below this line is a copy of the message.\n\nReturn-Path: <hello@acme.example>\nMessage-ID: "+ourID+"\nSubject: Hello\n\nHello there.\n"), kind: email.ReportHardBounce, to: "ada@example.com"},
	"qmail, delayed warning":        {mail: prose("Return-Path: <>\r\nFrom: MAILER-DAEMON@mx.example\r\nSubject: Warning: could not send message for past 4 hours\r\n", "The delivery of this message is delayed; we will keep trying.\n<ada@example.com>\nMessage-ID: "+ourID+"\n"), kind: email.ReportDelayed, to: "ada@example.com"},
	"gateway in prose":              {mail: prose("From: Postmaster <postmaster@gw.example>\r\nReturn-Path: <>\r\nSubject: Undeliverable: Hello\r\n", "Your message\n  To: ada@example.com\ncould not be delivered. The recipient's mailbox was not found (550).\n> Message-ID: "+ourID+"\n"), kind: email.ReportHardBounce, to: "ada@example.com"},
	"no trace of the message":       {mail: prose("From: MAILER-DAEMON@mx.example\r\nReturn-Path: <>\r\nSubject: Returned mail: see transcript for details\r\n", "550 5.1.1 <ada@example.com>... User unknown\n"), kind: email.ReportHardBounce, to: "ada@example.com", lost: true},
	"out of office":                 {mail: prose("From: Ada <ada@example.com>\r\nReturn-Path: <>\r\nAuto-Submitted: auto-replied\r\nSubject: Out of office: Hello\r\n", "I am away. Your message could not be delivered to my desk.\n")},
	"old autoresponder":             {mail: prose("From: Ada <ada@example.com>\r\nX-Autoreply: yes\r\nSubject: Undeliverable? no, away\r\n", "I am away.\n")},
	"a person":                      {mail: prose("From: Ada <ada@example.com>\r\nReturn-Path: <ada@example.com>\r\nSubject: Re: Undelivered parcel\r\n", "My parcel was not delivered: delivery failed. User unknown, says the note.\n")},
	"read receipt":                  {mail: "From: ada@example.com\r\nSubject: Read: Hello\r\nMIME-Version: 1.0\r\nContent-Type: multipart/report; report-type=disposition-notification; boundary=b\r\n\r\n--b\r\nContent-Type: text/plain\r\n\r\nread\r\n--b\r\nContent-Type: message/disposition-notification\r\n\r\nDisposition: manual-action/MDN-sent-manually; displayed\r\n--b--\r\n"},
	"notice of a server, no bounce": {mail: prose("From: postmaster@mx.example\r\nReturn-Path: <>\r\nSubject: Maintenance on Sunday\r\n", "The server restarts on Sunday.\n")},
	"nothing":                       {mail: ""},
	"no mail":                       {mail: "\x00\xff\xfe"},
}

func TestParseReport(t *testing.T) {
	for name, c := range bounces {
		t.Run(name, func(t *testing.T) {
			reports := email.ParseReport([]byte(c.mail))
			if c.kind == "" {
				if len(reports) > 0 {
					t.Errorf("taken for a report: %+v", reports)
				}
				return
			}
			if len(reports) != 1 {
				t.Fatalf("%d reports: %+v", len(reports), reports)
			}
			want := email.Report{Kind: c.kind, Recipient: c.to, MessageID: ourID}
			if c.lost {
				want.MessageID = ""
			}
			got := reports[0]
			got.Status, got.Detail, got.ProviderID = "", "", ""
			if diff := cmp.Diff(want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func FuzzParseReport(f *testing.F) {
	for _, c := range bounces {
		f.Add([]byte(c.mail))
	}
	f.Fuzz(func(t *testing.T, mail []byte) {
		if reports := email.ParseReport(mail); len(reports) > 1000 {
			t.Errorf("%d reports", len(reports))
		}
	})
}

func TestIngestMail(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		s := open(t, db, email.Config{})
		deliver := func(to string) string {
			t.Helper()
			id := s.send(hello(to))
			s.runJobs()
			return id
		}
		ingest := func(mail, messageID string) int {
			t.Helper()
			n, err := s.IngestMail(t.Context(), []byte(strings.ReplaceAll(mail, ourID, messageID)))
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
		hard := status("ada@example.com", "failed", "5.1.1", "550 no", "message/rfc822")
		// A sender that does not know a Message-ID changes nothing.
		if n := ingest(hard, "<forged@acme.example>"); n != 0 {
			t.Errorf("a forged bounce was applied %d times", n)
		}
		// A sender that does can only report about the message's own recipient.
		id := deliver("bob@example.com")
		ingest(hard, s.job(id).MessageID)
		if _, held, _ := s.Suppression(t.Context(), "ada@example.com"); held {
			t.Error("a bounce of bob's mail suppressed ada")
		}
		s.wantState(id, email.StateBounced)
		if got, _, _ := s.Suppression(t.Context(), "bob@example.com"); got.Reason != email.ReasonHardBounce || got.Source != "dsn" || *got.JobID != id || got.ExpiresAt != nil {
			t.Errorf("%+v", got)
		}
		// A complaint after a delivery; a late delivery report changes nothing.
		id = deliver("eve@example.com")
		messageID := s.job(id).MessageID
		ingest(status("eve@example.com", "delivered", "2.0.0", "250 ok", "message/rfc822"), messageID)
		s.wantState(id, email.StateDelivered)
		for range 2 {
			ingest(abuse("abuse", ""), messageID)
		}
		ingest(status("eve@example.com", "delivered", "2.0.0", "250 ok", "message/rfc822"), messageID)
		if job := s.wantState(id, email.StateComplained); len(job.Events) != 2 || job.DeliveredAt == nil {
			t.Errorf("%+v", job.Events)
		}
		// Three soft bounces suppress temporarily; two do not, nor does a repeated one.
		full := status("tom@example.com", "failed", "5.2.2", "552 full", "message/rfc822")
		for i := range 3 {
			id := deliver("tom@example.com")
			for range 2 {
				ingest(full, s.job(id).MessageID)
			}
			got, held, err := s.Suppression(t.Context(), "tom@example.com")
			if err != nil || held != (i == 2) {
				t.Errorf("after %d soft bounces: %+v %v", i+1, got, err)
			}
		}
		s.clock.Advance(31 * 24 * time.Hour)
		if _, held, _ := s.Suppression(t.Context(), "tom@example.com"); held {
			t.Error("a soft suppression lasts for ever")
		}
		// A delay does not change the state.
		id = deliver("sam@example.com")
		ingest(status("sam@example.com", "delayed", "4.4.1", "timeout", "message/rfc822"), s.job(id).MessageID)
		s.wantState(id, email.StateSent)
	})
}

// TestReportsFasterThanTheNote checks that a report counts that arrives before the acceptance is
// recorded, and that a delivered message is not sent again.
func TestReportsFasterThanTheNote(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		var s *setup
		var fails *email.Failure
		kind, calls := email.ReportDelivered, 0
		s = open(t, db, email.Config{Providers: []email.Provider{{Name: "p", PerSecond: -1, Transport: transportFunc(func(_ context.Context, m email.Envelope) (string, error) {
			calls++
			if n, err := s.Ingest(t.Context(), []email.Report{{Kind: kind, MessageID: s.job(m.JobID).MessageID}}); err != nil || n != 1 {
				t.Errorf("%d reports applied, %v", n, err)
			}
			if fails != nil {
				return "", fails
			}
			return "7", nil
		})}}})
		job := s.send(hello("ada@example.com"))
		s.runJobs()
		if got := s.wantState(job, email.StateDelivered); got.SentAt == nil || got.ProviderMessageID == nil || len(got.Events) != 1 {
			t.Errorf("%+v", got)
		}
		kind, calls, fails = email.ReportSoftBounce, 0, &email.Failure{Kind: email.FailureUnclear, Message: "no response"}
		job = s.send(hello("ada@example.com"))
		s.runJobs()
		s.clock.Advance(time.Hour)
		s.runJobs()
		if s.wantState(job, email.StateBounced); calls != 1 {
			t.Errorf("handed over %d times, want once", calls)
		}
	})
}
