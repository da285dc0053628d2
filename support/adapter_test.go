package support_test

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"flag"
	"fmt"
	"log/slog"
	mimeform "mime/multipart"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/kitbackend/kit"
	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/internal/sns/snstest"
	"github.com/kitbackend/kit/kittest"
	"github.com/kitbackend/kit/support"
)

const (
	relaySecret = "whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIz"
	mailgunKey  = "key-0123456789abcdef"
)

// adapters composes support with the relay and Mailgun routes of inbound mail.
func adapters(t *testing.T, opts ...kit.Option) *kittest.Kit {
	return desk(t, support.Config{Inbound: support.Inbound{Relay: relaySecret, Mailgun: mailgunKey}, Guard: support.Guard{MaxRawBytes: 4096}}, opts...)
}

// reasons is a log of the operator's.
type reasons struct{ bytes.Buffer }

func (r *reasons) option() kit.Option { return kit.WithLogger(slog.New(slog.NewTextHandler(r, nil))) }

// want fails the test unless a refusal was logged, for this reason, and sent without it.
func (r *reasons) want(t *testing.T, got *kittest.Response, reason string) {
	t.Helper()
	got.Want(401, "kit/invalid_signature")
	if log := r.String(); !strings.Contains(log, "msg=refused") || !strings.Contains(log, reason) || bytes.Contains(got.Body, []byte(reason)) {
		t.Errorf("sent %s and logged %s, expected %q in the log alone", got.Body, log, reason)
	}
	r.Reset()
}

// relay sends a mail signed according to Standard Webhooks.
func relay(k *kittest.Kit, secret, body string, age time.Duration) *kittest.Response {
	key, _ := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, "whsec_"))
	stamp := fmt.Sprint(k.Clock.Now().Add(-age).Unix())
	h := hmac.New(sha256.New, key)
	h.Write([]byte("msg_1." + stamp + "." + body))
	return k.Anonymous().With("Content-Type", "application/json").With("Webhook-Id", "msg_1").With("Webhook-Timestamp", stamp).
		With("Webhook-Signature", "v1,AAAA v1,"+base64.StdEncoding.EncodeToString(h.Sum(nil))).Post("/support/inbound/relay", body)
}

func relayed(to, raw string) string {
	body, _ := json.Marshal(map[string]any{"from": "grace@customer.example", "to": []string{to}, "raw": []byte(raw)})
	return string(body)
}

func TestMailByARelay(t *testing.T) {
	var log reasons
	k := adapters(t, log.option())
	raw := mail("grace@customer.example", "Refund", "I was charged twice.")
	body := relayed(inbox, raw)
	for i, want := range []support.Outcome{support.OutcomeStored, support.OutcomeDuplicate} {
		if r := relay(k, relaySecret, body, 0).Want(200, ""); object(t, r)["outcome"] != string(want) {
			t.Errorf("delivery %d: %s, want %s", i, r.Body, want)
		}
	}
	relay(k, relaySecret, relayed("others@example.com", raw), 0).Want(200, "")
	if got := thread(t, k, newest(t, k)); got.Subject != "Refund" || count(t, k) != 1 {
		t.Errorf("stored %q, %d threads", got.Subject, count(t, k))
	}
	log.want(t, relay(k, "whsec_"+base64.StdEncoding.EncodeToString([]byte("of somebody else, and long")), body, 0), "no signature is by a key")
	for _, age := range []time.Duration{6 * time.Minute, -6 * time.Minute} {
		now := k.Clock.Now()
		log.want(t, relay(k, relaySecret, body, age), fmt.Sprintf("the timestamp %s is more than 5m0s from the time here, %s",
			now.Add(-age).Format(time.RFC3339), now.Format(time.RFC3339)))
	}
	log.want(t, k.Anonymous().With("Content-Type", "application/json").Post("/support/inbound/relay", body), "the header Webhook-Id is missing")
	relay(k, relaySecret, "{", 0).Want(400, "kit/invalid_request")
	relay(k, relaySecret, relayed(inbox, strings.Repeat("x", 5000)), 0).Want(413, "kit/body_too_large")
	relay(k, relaySecret, relayed(inbox, "no header"), 0).Want(422, "support/unparseable_message")
	for range 20 {
		if r := relay(k, relaySecret, body, 0); r.Status == 429 {
			r.Want(429, "support/rejected")
			return
		}
	}
	t.Error("a relay goes around the guard")
}

func TestMailByMailgun(t *testing.T) {
	var log reasons
	k := adapters(t, log.option())
	post := func(key, subject string, age time.Duration, multi bool) *kittest.Response {
		stamp := fmt.Sprint(k.Clock.Now().Add(-age).Unix())
		h := hmac.New(sha256.New, []byte(key))
		h.Write([]byte(stamp + "token"))
		form := url.Values{"timestamp": {stamp}, "token": {"token"}, "signature": {hex.EncodeToString(h.Sum(nil))},
			"sender": {"grace@customer.example"}, "recipient": {"x@other.example, " + inbox}, "body-mime": {mail("grace@customer.example", subject, "Hello.")}}
		kind, body := "application/x-www-form-urlencoded", form.Encode()
		if multi {
			var buffer bytes.Buffer
			w := mimeform.NewWriter(&buffer)
			for name, values := range form {
				_ = w.WriteField(name, values[0])
			}
			_ = w.Close()
			kind, body = w.FormDataContentType(), buffer.String()
		}
		return k.Anonymous().With("Content-Type", kind).Post("/support/inbound/mailgun/mime", body)
	}
	post(mailgunKey, "One", 0, false).Want(200, "")
	post(mailgunKey, "Three", 0, true).Want(200, "")
	if n := count(t, k); n != 2 {
		t.Errorf("%d threads, want 2", n)
	}
	log.want(t, post("key-of-somebody-else", "Two", 0, false), "no signature is by a key")
	log.want(t, post(mailgunKey, "Two", 6*time.Minute, false), "is more than 5m0s from the time here")
	log.want(t, k.Anonymous().With("Content-Type", "text/plain").Post("/support/inbound/mailgun/mime", "x"), "the timestamp is missing")
}

// form encodes fields as a multipart form.
func form(fields map[string]string) (kind, body string) {
	var buffer bytes.Buffer
	w := mimeform.NewWriter(&buffer)
	for name, value := range fields {
		_ = w.WriteField(name, value)
	}
	_ = w.Close()
	return w.FormDataContentType(), buffer.String()
}

func TestMailBySendGrid(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	public, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		t.Fatal(err)
	}
	var log reasons
	k := desk(t, support.Config{Inbound: support.Inbound{SendGrid: base64.StdEncoding.EncodeToString(public)}}, log.option())
	post := func(kind, body string, age time.Duration, alter string) *kittest.Response {
		stamp := fmt.Sprint(k.Clock.Now().Add(-age).Unix())
		sum := sha256.Sum256([]byte(stamp + body))
		signature, err := ecdsa.SignASN1(rand.Reader, key, sum[:])
		if err != nil {
			t.Fatal(err)
		}
		return k.Anonymous().With("Content-Type", kind).With("X-Twilio-Email-Event-Webhook-Timestamp", stamp).
			With("X-Twilio-Email-Event-Webhook-Signature", base64.StdEncoding.EncodeToString(signature)).Post("/support/inbound/sendgrid", body+alter)
	}
	fields := func(subject, envelope string) (kind, body string) {
		return form(map[string]string{"headers": "x", "dkim": "{@customer.example : pass}", "to": "Others <others@example.com>", "envelope": envelope,
			"subject": subject, "charsets": `{"to":"UTF-8"}`, "email": mail("grace@customer.example", subject, "I was charged twice.")})
	}
	kind, body := fields("Refund", `{"to":["help@acme.example"],"from":"grace@customer.example"}`)
	for i, want := range []support.Outcome{support.OutcomeStored, support.OutcomeDuplicate} {
		if r := post(kind, body, 0, "").Want(200, ""); object(t, r)["outcome"] != string(want) {
			t.Errorf("delivery %d: %s, want %s", i, r.Body, want)
		}
	}
	if got := thread(t, k, newest(t, k)); got.Subject != "Refund" || count(t, k) != 1 {
		t.Errorf("stored %q, %d threads", got.Subject, count(t, k))
	}
	log.want(t, post(kind, body, 0, " "), "no signature is by a key")
	log.want(t, post(kind, body, 6*time.Minute, ""), "is more than 5m0s from the time here")
	log.want(t, k.Anonymous().With("Content-Type", kind).Post("/support/inbound/sendgrid", body), "the header X-Twilio-Email-Event-Webhook-Timestamp is missing")
	kind, body = fields("Refund", "nobody")
	post(kind, body, 0, "").Want(400, "kit/invalid_request")
	kind, body = fields("Refund", `{"to":["`+strings.Repeat(`x@acme.example","`, 200)+`y@acme.example"]}`)
	post(kind, body, 0, "").Want(400, "kit/invalid_request")
}

func TestMailBySES(t *testing.T) {
	var log reasons
	k := desk(t, support.Config{Inbound: support.Inbound{SES: snstest.Topic}}, log.option())
	amazon := snstest.New(t, k.Clock.Now())
	support.ReachSNS(k.Support(), amazon)
	post := func(fields map[string]string, age time.Duration) *kittest.Response {
		body, err := json.Marshal(amazon.Message(fields, k.Clock.Now().Add(-age)))
		if err != nil {
			t.Fatal(err)
		}
		return k.Anonymous().With("Content-Type", "text/plain; charset=UTF-8").Post("/support/inbound/ses", string(body))
	}
	notice := func(to, encoding, content string) string {
		text, err := json.Marshal(map[string]any{
			"notificationType": "Received", "content": content,
			"mail": map[string]any{"source": "grace@customer.example", "messageId": "d6iitobk", "destination": []string{"others@example.com"}, "headersTruncated": false},
			"receipt": map[string]any{"recipients": strings.Split(to, " "), "spfVerdict": map[string]string{"status": "PASS"},
				"action": map[string]string{"type": "SNS", "topicArn": snstest.Topic, "encoding": encoding}},
		})
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	post(map[string]string{"Type": "SubscriptionConfirmation", "Token": "t1", "SubscribeURL": "https://elsewhere.example/", "Message": "confirm"}, 0).Want(200, "")
	if got := amazon.Asked[len(amazon.Asked)-1]; !strings.HasPrefix(got, "https://sns.eu-west-1.amazonaws.com/?Action=ConfirmSubscription&Token=t1&") {
		t.Errorf("confirmed at %s", got)
	}
	plain, latin := mail("grace@customer.example", "Refund", "I was charged twice."), mail("grace@customer.example", "Caf\xe9", "Hello.")
	message := map[string]string{"Message": notice("others@example.com "+inbox, "UTF8", plain), "Subject": "Amazon SES Email Receipt Notification"}
	for i, want := range []support.Outcome{support.OutcomeStored, support.OutcomeDuplicate} {
		if r := post(message, time.Hour).Want(200, ""); object(t, r)["outcome"] != string(want) {
			t.Errorf("delivery %d: %s, want %s", i, r.Body, want)
		}
	}
	post(map[string]string{"Message": notice(inbox, "BASE64", base64.StdEncoding.EncodeToString([]byte(latin)))}, 0).Want(200, "")
	post(map[string]string{"Message": notice("others@example.com", "UTF8", plain)}, 0).Want(200, "")
	post(map[string]string{"Message": `{"notificationType":"AmazonSnsSubscriptionSucceeded"}`}, 0).Want(200, "")
	if n := count(t, k); n != 2 {
		t.Errorf("%d threads, want 2", n)
	}
	for name, text := range map[string]string{"no JSON": "[", "no content": notice(inbox, "", ""), "no base64": notice(inbox, "BASE64", "*"),
		"recipients": notice(strings.Repeat("x@acme.example ", 200), "UTF8", plain)} {
		t.Log(name)
		post(map[string]string{"Message": text}, 0).Want(400, "kit/invalid_request")
	}
	log.want(t, post(map[string]string{"Message": notice(inbox, "UTF8", plain), "TopicArn": snstest.Topic + "2"}, 0), "of another topic")
	log.want(t, post(message, 25*time.Hour), "is more than 24h0m0s before or 5m0s after the time here")
	log.want(t, k.Anonymous().With("Content-Type", "text/plain").Post("/support/inbound/ses", "{}"), "of another topic")
	amazon.Down = true
	post(map[string]string{"Type": "SubscriptionConfirmation", "Token": "t2", "SubscribeURL": "https://elsewhere.example/", "Message": "confirm"}, 0).Want(503, "kit/unavailable")
}

// helped wraps the F of a fuzz target, whose methods must not be called inside the fuzz function.
type helped struct{ testing.TB }

func (helped) Helper() {}

// FuzzInbound sends unsigned requests: none is accepted, and none fails.
func FuzzInbound(f *testing.F) {
	k := desk(helped{f}, support.Config{Inbound: support.Inbound{Relay: relaySecret, Mailgun: mailgunKey, SES: snstest.Topic,
		SendGrid: "MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEmgmjvPAR/Lmwn2teL2WJUDIx35PqsnLKjPhPbrKkfMg6vK4NZQB1VeFSKbV7whQbEJRFHjF8+1zJxsXRP1GbWw=="}})
	stamp := fmt.Sprint(k.Clock.Now().Unix())
	f.Add("text/plain", `{"Type":"Notification","TopicArn":"`+snstest.Topic+`","SignatureVersion":"2","SigningCertURL":"https://elsewhere.example/x.pem"}`, "")
	f.Add("multipart/form-data; boundary=x", "--x\r\nContent-Disposition: form-data; name=timestamp\r\n\r\n"+stamp+"\r\n--x--", "v1,AAAA")
	f.Add("application/x-www-form-urlencoded", "timestamp="+stamp+"&token=x&signature=00", "MEUCIQ==")
	f.Fuzz(func(t *testing.T, kind, body, signature string) {
		if strings.ContainsFunc(kind+signature, func(r rune) bool { return r < ' ' || r > '~' }) {
			return
		}
		for _, path := range []string{"relay", "mailgun/mime", "sendgrid", "ses"} {
			status := k.Anonymous().With("Content-Type", kind).With("Webhook-Id", "x").With("Webhook-Timestamp", stamp).With("Webhook-Signature", signature).
				With("X-Twilio-Email-Event-Webhook-Timestamp", stamp).With("X-Twilio-Email-Event-Webhook-Signature", signature).Post("/support/inbound/"+path, body).Status
			if status < 400 || status == 500 {
				t.Fatalf("%s %q: %d", path, body, status)
			}
		}
	})
}

// TestAdaptersAreOff expects no route without a configured key.
func TestAdaptersAreOff(t *testing.T) {
	k := desk(t, support.Config{})
	for _, path := range []string{"/support/inbound/relay", "/support/inbound/mailgun/mime", "/support/inbound/sendgrid", "/support/inbound/ses"} {
		k.Anonymous().Post(path, "{}").Want(404, "kit/not_found")
	}
}

var floodMails = flag.Int("mails", 1000, "how many mails TestAFloodCostsWhatTheGuardSays sends")

// TestAFloodCostsWhatTheGuardSays sends many mails of one sender within an hour: as many as the
// guard admits are stored, and the others have no effect.
func TestAFloodCostsWhatTheGuardSays(t *testing.T) {
	each(t, support.Config{}, func(t *testing.T, k *kittest.Kit) {
		stored, rejected := 0, 0
		start := time.Now()
		for i := range *floodMails {
			raw := mail("flood@a.example", "x", "y", fmt.Sprintf("Message-ID: <%d@a.example>", i))
			_, err := k.Support().Receive(t.Context(), support.Envelope{From: "flood@a.example", To: []string{inbox}}, []byte(raw))
			switch capability.AsError(err).Code {
			case "support/rejected":
				rejected++
			default:
				if err != nil {
					t.Fatal(err)
				}
				stored++
			}
		}
		t.Logf("%d mails in %s, %d stored", *floodMails, time.Since(start).Round(time.Millisecond), stored)
		if n := count(t, k); stored != 20 || rejected != *floodMails-20 || n != 20 {
			t.Errorf("%d stored in %d threads, %d rejected; want 20 and the rest", stored, n, rejected)
		}
		if ran := k.RunJobs(); ran > 40 {
			t.Errorf("%d jobs ran, want those of 20 mails", ran)
		}
		if _, err := k.Support().Receive(t.Context(), support.Envelope{From: "grace@customer.example", To: []string{inbox}},
			[]byte(mail("grace@customer.example", "Help", "Help me."))); err != nil {
			t.Errorf("another sender meanwhile: %v", err)
		}
	})
}

// TestThreadingShapes replies to a thread in the ways of mail programs and mailing lists.
func TestThreadingShapes(t *testing.T) {
	k := desk(t, support.Config{Guard: support.Guard{MaxPerSenderPerHour: 1000}})
	first := receive(t, k, "grace@customer.example", mail("grace@customer.example", "Help", "Help me.", "Message-ID: <CAF+first=x@mail.gmail.com>"))
	reply, err := k.Support().Reply(t.Context(), support.Reply{ThreadID: first.ThreadID, Message: "How?"})
	if err != nil {
		t.Fatal(err)
	}
	ours, theirs := *reply.MessageID, "<CAF+first=x@mail.gmail.com>"
	n := 0
	for name, headers := range map[string][]string{
		"Gmail":                    {"References: " + theirs + " " + ours, "In-Reply-To: " + ours},
		"Outlook":                  {"References: " + theirs + "\r\n " + ours, "In-Reply-To: " + ours, "Thread-Topic: Help", "Thread-Index: AdXyz0"},
		"Outlook, no references":   {"In-Reply-To: " + ours},
		"Exchange, from the phone": {"References: <AM0PR01@eurprd01.prod.outlook.com>," + ours, "In-Reply-To: <AM0PR01@eurprd01.prod.outlook.com>"},
		"Apple Mail":               {"In-Reply-To: " + ours, "References: " + ours},
		"old programs":             {"In-Reply-To: Your message of \"Sat, 21 Nov 2026 12:00:00 +0000\" " + ours},
		"several parents":          {"In-Reply-To: <other@x.example> " + ours},
		"references only":          {"References: " + ours},
		"the first mail only":      {"References: " + theirs},
		"a tab, and no space":      {"References:\t" + theirs + "\t" + ours},
		"a long history":           {"References: " + strings.Repeat("<old@x.example> ", 60) + ours},
	} {
		n++
		k.Clock.Advance(time.Minute)
		raw := mail("Grace <grace@customer.example>", "AW: something else", "Reply "+name, append(headers, fmt.Sprintf("Message-ID: <shape%d@x.example>", n))...)
		if got := receive(t, k, "grace@customer.example", raw); got.ThreadID != first.ThreadID {
			t.Errorf("%s: the reply opened a thread", name)
		}
	}
	list := mail("grace@customer.example", "[acme-users] Help", "On the list.", "List-Id: <users.acme.example>", "Precedence: list", "In-Reply-To: "+ours,
		"Message-ID: <list@x.example>")
	if got := receive(t, k, "users-bounces@acme.example", list); got.ThreadID != first.ThreadID {
		t.Error("a person's mail over a list opened a thread")
	} else if detail := thread(t, k, got.ThreadID); !detail.Messages[len(detail.Messages)-1].Automated {
		t.Error("a list's mail is not marked")
	}
	for name, headers := range map[string][]string{
		"the same subject": nil, "Thread-Topic": {"Thread-Topic: Help", "Thread-Index: AdXyz0"}, "an id in the text": {"X-Thread: " + ours},
		"an id without brackets": {"In-Reply-To: " + strings.Trim(ours, "<>")},
	} {
		n++
		raw := mail("grace@customer.example", "Re: Help", ours, append(headers, fmt.Sprintf("Message-ID: <shape%d@x.example>", n))...)
		if got := receive(t, k, "grace@customer.example", raw); got.ThreadID == first.ThreadID {
			t.Errorf("%s: threaded", name)
		}
	}
}
