package email_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/kitbackend/kit/email"
	"github.com/kitbackend/kit/internal/sns/snstest"
)

const snsTopic = snstest.Topic

func text(t *testing.T, message map[string]string) string {
	t.Helper()
	raw, err := json.Marshal(message)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

func TestSES(t *testing.T) {
	m := mount(t, email.Config{
		Webhooks: email.Webhooks{SES: snsTopic},
		Providers: []email.Provider{{Name: "ses", PerSecond: -1,
			Transport: transportFunc(func(_ context.Context, e email.Envelope) (string, error) { return "ses-" + e.JobID, nil })}},
	})
	amazon := snstest.New(t, m.Clock.Now())
	email.ReachSNS(m.mail, amazon)
	post := func(message map[string]string, status int, code string) {
		t.Helper()
		m.Anonymous().With("Content-Type", "text/plain").Post("/email/webhooks/ses", text(t, message)).Want(status, code)
	}
	id, err := m.mail.Send(t.Context(), hello("ada@example.com"))
	if err != nil {
		t.Fatal(err)
	}
	m.RunJobs()
	bounce := `{"notificationType":"Bounce","mail":{"messageId":"ses-` + id + `"},"bounce":{"bounceType":"Permanent",` +
		`"bouncedRecipients":[{"emailAddress":"ada@example.com","status":"5.1.1","diagnosticCode":"smtp; 550 gone"}]}}`
	now := m.Clock.Now()
	good := func() map[string]string { return amazon.Message(map[string]string{"Message": bounce}, now) }

	for name, change := range map[string]func(map[string]string){
		"altered":      func(f map[string]string) { f["Message"] = strings.Replace(bounce, "ada@", "eve@", 1) },
		"other topic":  func(f map[string]string) { f["TopicArn"] = snsTopic + "2" },
		"sha1":         func(f map[string]string) { f["SignatureVersion"] = "1" },
		"no signature": func(f map[string]string) { f["Signature"] = "" },
		"not base64":   func(f map[string]string) { f["Signature"] = "*" },
		"other host": func(f map[string]string) {
			f["SigningCertURL"] = "https://evil.example/SimpleNotificationService-1.pem"
		},
		"other region": func(f map[string]string) {
			f["SigningCertURL"] = "https://sns.us-east-1.amazonaws.com/SimpleNotificationService-1.pem"
		},
		"user info": func(f map[string]string) {
			f["SigningCertURL"] = "https://sns.eu-west-1.amazonaws.com@evil.example/SimpleNotificationService-1.pem"
		},
		"plain http": func(f map[string]string) {
			f["SigningCertURL"] = "http://sns.eu-west-1.amazonaws.com/SimpleNotificationService-1.pem"
		},
		"other path": func(f map[string]string) { f["SigningCertURL"] = "https://sns.eu-west-1.amazonaws.com/x.pem" },
		"no time":    func(f map[string]string) { f["Timestamp"] = "now" },
	} {
		forged := good()
		change(forged)
		t.Log(name)
		post(forged, 401, "email/webhook_invalid")
	}
	post(amazon.Message(map[string]string{"Message": bounce}, now.Add(-25*time.Hour)), 401, "email/webhook_invalid")
	post(amazon.Message(map[string]string{"Message": bounce}, now.Add(6*time.Minute)), 401, "email/webhook_invalid")
	for _, url := range amazon.Asked {
		if !strings.HasPrefix(url, "https://sns.eu-west-1.amazonaws.com/SimpleNotificationService-") {
			t.Errorf("asked %s", url)
		}
	}
	if job, err := m.mail.Job(t.Context(), id); err != nil || job.State != email.StateSent {
		t.Fatalf("a forged report was believed: %s %v", job.State, err)
	}

	moved := amazon.Message(map[string]string{"Message": bounce, "SigningCertURL": "https://sns.eu-west-1.amazonaws.com/SimpleNotificationService-moved.pem"}, now)
	post(moved, 503, "kit/unavailable")
	before := len(amazon.Asked)
	for range 3 {
		post(good(), 200, "")
	}
	if n := len(amazon.Asked) - before; n > 1 {
		t.Errorf("the certificate was fetched %d times", n)
	}
	if job, err := m.mail.Job(t.Context(), id); err != nil || job.State != email.StateBounced || m.suppressed("ada@example.com") != "all" {
		t.Errorf("%s %s %v", job.State, m.suppressed("ada@example.com"), err)
	}
	m.Clock.Advance(31 * 24 * time.Hour)
	post(amazon.Message(map[string]string{"Message": bounce}, m.Clock.Now()), 401, "email/webhook_invalid") // the certificate has expired
}

// TestForgedReportsAskLittle checks that SNS is requested only a few times a minute, whatever paths
// forged messages name, and that valid reports are accepted with the known certificate.
func TestForgedReportsAskLittle(t *testing.T) {
	m := mount(t, email.Config{Webhooks: email.Webhooks{SES: snsTopic}})
	amazon := snstest.New(t, m.Clock.Now())
	email.ReachSNS(m.mail, amazon)
	post := func(forged bool, path string) int {
		fields := amazon.Message(map[string]string{"Message": "{}", "SigningCertURL": "https://sns.eu-west-1.amazonaws.com/SimpleNotificationService-" + path + ".pem"}, m.Clock.Now())
		if forged {
			fields["Signature"] = base64.StdEncoding.EncodeToString(make([]byte, 256))
		}
		return m.Anonymous().With("Content-Type", "text/plain").Post("/email/webhooks/ses", text(t, fields)).Status
	}
	if status := post(false, "known"); status != 200 {
		t.Fatalf("a good report: %d", status)
	}
	for i := range 40 {
		if status := post(true, strconv.Itoa(i)); status != 401 && status != 503 {
			t.Errorf("a forged report: %d", status)
		}
	}
	if n := len(amazon.Asked); n > 5 {
		t.Errorf("forged reports made %d requests to SNS, want at most 5", n)
	}
	if status := post(false, "known"); status != 200 {
		t.Errorf("a good report after the forged ones: %d", status)
	}
}

// TestSESSubscription checks that a subscription is confirmed at a URL made from the topic,
// whatever the message names.
func TestSESSubscription(t *testing.T) {
	m := mount(t, email.Config{Webhooks: email.Webhooks{SES: snsTopic}})
	amazon := snstest.New(t, m.Clock.Now())
	email.ReachSNS(m.mail, amazon)
	message := amazon.Message(map[string]string{
		"Type": "SubscriptionConfirmation", "Token": "t&1", "Message": "confirm", "SubscribeURL": "https://evil.example/",
	}, m.Clock.Now())
	m.Anonymous().Post("/email/webhooks/ses", text(t, message)).Want(200, "")
	want := "https://sns.eu-west-1.amazonaws.com/?Action=ConfirmSubscription&Token=t%261&TopicArn=arn%3Aaws%3Asns%3Aeu-west-1%3A123456789012%3Amail"
	if got := amazon.Asked[len(amazon.Asked)-1]; got != want {
		t.Error(got)
	}
	amazon.Down = true
	m.Anonymous().Post("/email/webhooks/ses", text(t, message)).Want(503, "kit/unavailable")
	message["Token"] = "other"
	m.Anonymous().Post("/email/webhooks/ses", text(t, message)).Want(401, "email/webhook_invalid")
}

// TestSESKinds maps the reports of SES to those of the kit.
func TestSESKinds(t *testing.T) {
	m := mount(t, email.Config{
		Webhooks: email.Webhooks{SES: snsTopic},
		Providers: []email.Provider{{Name: "ses", PerSecond: -1,
			Transport: transportFunc(func(_ context.Context, e email.Envelope) (string, error) { return "ses-" + e.JobID, nil })}},
	})
	amazon := snstest.New(t, m.Clock.Now())
	email.ReachSNS(m.mail, amazon)
	for kind, want := range map[string]email.State{
		`"eventType":"Bounce","bounce":{"bounceType":"Transient","bouncedRecipients":[{"emailAddress":"TO"}]}`: email.StateBounced,
		`"eventType":"Complaint","complaint":{"complainedRecipients":[{"emailAddress":"TO"}]}`:                 email.StateComplained,
		`"eventType":"Delivery","delivery":{"recipients":["TO"]}`:                                              email.StateDelivered,
		`"eventType":"DeliveryDelay","deliveryDelay":{"delayedRecipients":[{"emailAddress":"TO"}]}`:            email.StateSent,
		`"eventType":"Open"`: email.StateSent,
	} {
		to := strings.ToLower(string(want)) + string(rune('a'+len(kind)%26)) + "@example.com"
		id, err := m.mail.Send(t.Context(), hello(to))
		if err != nil {
			t.Fatal(err)
		}
		m.RunJobs()
		event := `{` + strings.ReplaceAll(kind, "TO", to) + `,"mail":{"messageId":"ses-` + id + `"}}`
		message := amazon.Message(map[string]string{"Message": event, "Subject": "Amazon SES"}, m.Clock.Now())
		m.Anonymous().Post("/email/webhooks/ses", text(t, message)).Want(200, "")
		if job, err := m.mail.Job(t.Context(), id); err != nil || job.State != want {
			t.Errorf("%s: %s %v", kind, job.State, err)
		}
	}
	message := amazon.Message(map[string]string{"Message": "["}, m.Clock.Now())
	m.Anonymous().Post("/email/webhooks/ses", text(t, message)).Want(400, "kit/invalid_request")
}
