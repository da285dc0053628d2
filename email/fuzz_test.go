package email_test

import (
	"strings"
	"testing"

	"github.com/kitbackend/kit/email"
	"github.com/kitbackend/kit/internal/budget"
)

// helped replaces a fuzz target's F in helpers, because F must not be used inside the target's
// function.
type helped struct{ testing.TB }

func (helped) Helper() {}

// FuzzWebhook posts arbitrary reports of mail providers: without a valid signature none is
// accepted, and none causes a failure.
func FuzzWebhook(f *testing.F) {
	var mail *email.Email
	m := composedFor(helped{f}, &mail, email.Config{Webhooks: email.Webhooks{SES: snsTopic, Resend: "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"}})
	f.Add("ses", `{"Type":"Notification","TopicArn":"`+snsTopic+`","SignatureVersion":"2","Timestamp":"2026-11-21T12:00:00Z","SigningCertURL":"https://sns.evil.example/x.pem"}`, "")
	f.Add("resend", `{"type":"email.bounced"}`, "v1,AAAA v1,BBBB")
	f.Fuzz(func(t *testing.T, provider, body, signature string) {
		if strings.ContainsAny(provider, "/?#%") || strings.ContainsAny(signature, "\r\n\x00") || strings.ContainsFunc(provider, func(r rune) bool { return r <= ' ' || r > '~' }) {
			return
		}
		budget.Hold(t, len(body)+len(signature), func() {
			status := m.Anonymous().With("svix-id", "x").With("svix-timestamp", "1795262400").With("svix-signature", signature).
				With("Content-Type", "text/plain").Post("/email/webhooks/"+provider, body).Status
			if status < 400 || status == 500 {
				t.Fatalf("%s %q: %d", provider, body, status)
			}
		})
	})
}
