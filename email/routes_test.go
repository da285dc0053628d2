package email_test

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kitbackend/kit"
	"github.com/kitbackend/kit/capability/capabilitytest"
	"github.com/kitbackend/kit/controlplane"
	"github.com/kitbackend/kit/database/databasetest"
	"github.com/kitbackend/kit/email"
	"github.com/kitbackend/kit/kittest"
)

// fromLocalhost sends a request like a browser on this machine.
func fromLocalhost(t *testing.T, k *kittest.Kit, path string, change ...func(*http.Request)) *kittest.Response {
	t.Helper()
	r := httptest.NewRequest(http.MethodGet, path, nil)
	r.RemoteAddr, r.Host = "127.0.0.1:50000", "localhost:8080"
	for _, f := range change {
		f(r)
	}
	w := httptest.NewRecorder()
	k.ServeHTTP(w, r)
	response := k.Anonymous().Get("/health") // a response to fill in
	response.Status, response.Header, response.Body = w.Code, w.Header(), w.Body.Bytes()
	return response
}

func TestRoutes(t *testing.T) {
	e, err := email.New(capabilitytest.NewHost(t, databasetest.Memory(t)), email.Config{}, email.Peers{})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, r := range e.Capability().Routes {
		got = append(got, strings.TrimSpace(strings.Join([]string{r.Method, r.Path, r.Guard.Strategy().String(), r.Guard.Scope()}, " ")))
	}
	want := []string{
		"GET /email/jobs control-plane email:jobs:read",
		"GET /email/jobs/:id control-plane email:jobs:read",
		"POST /email/jobs/:id/retry control-plane email:jobs:retry",
		"GET /email/suppressions control-plane email:suppressions:read",
		"POST /email/suppressions control-plane email:suppressions:write",
		"POST /email/suppressions/remove control-plane email:suppressions:delete",
		"GET /_kit/email/c/:token public",
		"GET /_kit/email/o/:token public",
		"GET /_kit/email/u/:token public",
		"POST /_kit/email/u/:token public",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestManagement(t *testing.T) {
	refuse := true
	m := mount(t, email.Config{Providers: []email.Provider{{Name: "own", PerSecond: -1, Transport: transportFunc(func(context.Context, email.Envelope) (string, error) {
		if refuse {
			return "", &email.Failure{Kind: email.FailurePermanent, Code: 554, Enhanced: "5.7.1", Message: "no"}
		}
		return "p-1", nil
	})}}}, kit.WithControlPlane(controlplane.Config{}))
	all := m.Machine("email:jobs:read", "email:jobs:retry", "email:suppressions:read", "email:suppressions:write", "email:suppressions:delete")
	id, err := m.mail.Send(t.Context(), email.Message{To: "ada@example.com", Subject: "s", Text: "the secret", UserID: "ada"})
	if err != nil {
		t.Fatal(err)
	}
	m.RunJobs()
	list := all.Get("/email/jobs?state=failed&to=Ada@example.com&category=transactional&since=2026-01-01T00:00:00Z").Want(200, "")
	var page struct{ Items []map[string]any }
	list.JSON(&page)
	if len(page.Items) != 1 || page.Items[0]["id"] != id || strings.Contains(string(list.Body), "secret") {
		t.Errorf("%s", list.Body)
	}
	one := all.Get("/email/jobs/"+id).Want(200, "")
	if !strings.Contains(string(one.Body), `"enhancedCode":"5.7.1"`) || !strings.Contains(string(one.Body), `"headers":[{`) || strings.Contains(string(one.Body), "the secret") {
		t.Errorf("%s", one.Body)
	}
	all.Get("/email/jobs/absent").Want(404, "email/job_not_found")
	all.Get("/email/jobs?since=today").Want(400, "kit/invalid_request")
	all.Get("/email/jobs?state=%00").Want(400, "kit/invalid_request")
	all.Get("/email/jobs?to=nobody").Want(400, "email/invalid_address")

	all.Post("/email/suppressions", `{"address":"Ada@Example.com","note":"asked"}`).Want(201, "")
	all.Post("/email/suppressions", `{"address":"nobody"}`).Want(400, "email/invalid_address")
	all.Post("/email/suppressions", `{"address":"a@b.c","scope":"some"}`).Want(400, "kit/invalid_request")
	all.Post("/email/jobs/"+id+"/retry", `{}`).Want(409, "email/suppressed")
	held := all.Get("/email/suppressions?q=ada&reason=manual&scope=all").Want(200, "")
	if !strings.Contains(string(held.Body), `"address":"ada@example.com","scope":"all","reason":"manual","source":"controlplane"`) {
		t.Errorf("%s", held.Body)
	}
	all.Post("/email/suppressions/remove", `{"address":"ada@example.com"}`).Want(200, "")
	all.Post("/email/suppressions/remove", `{"address":"ada@example.com"}`).Want(404, "email/suppression_not_found")
	if _, err := m.mail.Ingest(t.Context(), []email.Report{{Kind: email.ReportComplaint, Recipient: "eve@example.com"}}); err != nil {
		t.Fatal(err)
	}
	all.Post("/email/suppressions/remove", `{"address":"eve@example.com"}`).Want(409, "email/suppression_protected")
	all.Post("/email/suppressions/remove", `{"address":"eve@example.com","force":true}`).Want(200, "")

	refuse = false
	all.Post("/email/jobs/"+id+"/retry", nil).Want(202, "")
	all.Post("/email/jobs/"+id+"/retry", nil).Want(409, "email/job_not_retryable")
	m.RunJobs()
	if body := all.Get("/email/jobs/" + id).Body; !strings.Contains(string(body), `"state":"sent"`) {
		t.Errorf("%s", body)
	}
	m.Machine("email:jobs:read").Post("/email/jobs/"+id+"/retry", nil).Want(403, "controlplane/insufficient_scope")
}

func TestLogSaysWhyAReportIsRefused(t *testing.T) {
	public, _, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	m := mount(t, email.Config{Webhooks: email.Webhooks{
		Resend: "whsec_" + base64.StdEncoding.EncodeToString([]byte("0123456789abcdef")), MailPace: base64.StdEncoding.EncodeToString(public), SES: snsTopic,
	}}, kit.WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
	now := m.Clock.Now()
	stamp := func(age time.Duration) string { return strconv.FormatInt(now.Add(-age).Unix(), 10) }
	signature := base64.StdEncoding.EncodeToString(make([]byte, ed25519.SignatureSize))
	for _, c := range []struct {
		provider string
		header   []string
		reason   string
	}{
		{"resend", nil, "the header Svix-Id is missing"},
		{"resend", []string{"Svix-Id", "1"}, "the header Svix-Timestamp is missing"},
		{"resend", []string{"Svix-Id", "1", "Svix-Timestamp", stamp(301 * time.Second), "Svix-Signature", "v1," + signature},
			"the timestamp " + now.Add(-301*time.Second).Format(time.RFC3339) + " is more than 5m0s from the time here, " + now.Format(time.RFC3339)},
		{"resend", []string{"Svix-Id", "1", "Svix-Timestamp", "soon", "Svix-Signature", "v1," + signature}, "is no number of Unix seconds"},
		{"resend", []string{"Svix-Id", "1", "Svix-Timestamp", stamp(0), "Svix-Signature", "v1," + signature}, "no signature is by a key"},
		{"mailpace", nil, "the header X-Mailpace-Signature is missing"},
		{"mailpace", []string{"X-Mailpace-Signature", signature}, "no signature is by a key"},
		{"ses", nil, "of another topic"},
	} {
		log.Reset()
		client := m.Anonymous()
		for i := 0; i < len(c.header); i += 2 {
			client = client.With(c.header[i], c.header[i+1])
		}
		got := client.Post("/email/webhooks/"+c.provider, "{}").Want(401, "email/webhook_invalid")
		if !strings.Contains(log.String(), c.reason) || strings.Contains(log.String(), signature) || strings.Contains(string(got.Body), c.reason) {
			t.Errorf("sent %s and logged %s, expected %q in the log alone, and no signature", got.Body, log.String(), c.reason)
		}
	}
}

func TestWebhooks(t *testing.T) {
	public, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	secret := []byte("0123456789abcdef")
	m := mount(t, email.Config{
		Webhooks: email.Webhooks{
			Resend:   "whsec_" + base64.StdEncoding.EncodeToString(secret),
			MailPace: base64.StdEncoding.EncodeToString(public),
		},
		Providers: []email.Provider{{Name: "own", PerSecond: -1, Transport: transportFunc(func(_ context.Context, e email.Envelope) (string, error) { return "id-" + e.JobID, nil })}},
	})
	send := func(to string) (id, messageID string) {
		t.Helper()
		id, err := m.mail.Send(t.Context(), hello(to))
		if err != nil {
			t.Fatal(err)
		}
		m.RunJobs()
		job, err := m.mail.Job(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		return id, job.MessageID
	}
	state := func(id string) email.State {
		t.Helper()
		job, err := m.mail.Job(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		return job.State
	}
	svix := func(body, stamp string) string {
		h := hmac.New(sha256.New, secret)
		h.Write([]byte("msg_1." + stamp + "." + body))
		return "v1,AAAA v1," + base64.StdEncoding.EncodeToString(h.Sum(nil))
	}
	now := strconv.FormatInt(m.Clock.Now().Unix(), 10)

	id, _ := send("ada@example.com")
	body := `{"type":"email.bounced","data":{"email_id":"id-` + id + `","to":["ada@example.com"],"bounce":{"type":"Permanent","message":"gone"}}}`
	resend := m.Anonymous().With("Svix-Id", "msg_1").With("Svix-Timestamp", now)
	resend.With("Svix-Signature", svix(body+" ", now)).Post("/email/webhooks/resend", body).Want(401, "email/webhook_invalid")
	old := strconv.FormatInt(m.Clock.Now().Unix()-301, 10)
	resend.With("Svix-Timestamp", old).With("Svix-Signature", svix(body, old)).Post("/email/webhooks/resend", body).Want(401, "email/webhook_invalid")
	m.Anonymous().Post("/email/webhooks/resend", body).Want(401, "email/webhook_invalid")
	if state(id) != email.StateSent {
		t.Error("an unsigned report was believed")
	}
	for range 2 {
		resend.With("Svix-Signature", svix(body, now)).Post("/email/webhooks/resend", body).Want(200, "")
	}
	if state(id) != email.StateBounced || m.suppressed("ada@example.com") != "all" {
		t.Errorf("%s %s", state(id), m.suppressed("ada@example.com"))
	}

	resend.With("Svix-Signature", svix("[", now)).Post("/email/webhooks/resend", "[").Want(400, "kit/invalid_request")
	if page := m.Anonymous().Post("/email/webhooks/postmark", "{}"); page.Status != 404 {
		t.Errorf("a provider that signs nothing has a route: %d", page.Status)
	}

	id, messageID := send("eve@example.com")
	encoded, err := json.Marshal(map[string]any{"event": "email.bounced", "payload": map[string]any{"to": "eve@example.com", "message_id": strings.Trim(messageID, "<>"), "more": 1}})
	if err != nil {
		t.Fatal(err)
	}
	signature := base64.StdEncoding.EncodeToString(ed25519.Sign(private, encoded))
	m.Anonymous().With("X-MailPace-Signature", signature).Post("/email/webhooks/mailpace", string(encoded)+" ").Want(401, "email/webhook_invalid")
	m.Anonymous().With("X-MailPace-Signature", signature).Post("/email/webhooks/mailpace", string(encoded)).Want(200, "")
	if state(id) != email.StateBounced {
		t.Error(state(id))
	}
}
