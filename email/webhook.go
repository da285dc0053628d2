package email

import (
	"context"
	"crypto/ed25519"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/internal/proof"
	"github.com/kitbackend/kit/internal/sns"
)

// Webhooks enables a route under {BasePath}/webhooks for each provider whose signature over the
// body is configured; none by default. If a provider does not sign its reports, the application has
// to authenticate them and pass them to [Email.Ingest].
type Webhooks struct {
	// Resend is the signing secret, "whsec_…" (Svix HMAC): POST …/webhooks/resend.
	Resend string
	// MailPace is the Ed25519 public key in base64: POST …/webhooks/mailpace.
	MailPace string
	// SES is the ARN of the SNS topic of SES reports, with SignatureVersion set to 2: POST
	// …/webhooks/ses. The kit confirms the subscription.
	SES string
}

// webhookSkew bounds the age of a signature with a timestamp.
const webhookSkew = 5 * time.Minute

func (w Webhooks) validate(faults *capability.Faults) {
	if _, err := w.resendKey(); w.Resend != "" && err != nil {
		faults.Add("webhooks.resend", nil, "is not a signing secret", "copy it from the provider: whsec_ and base64")
	}
	if key, err := base64.StdEncoding.DecodeString(w.MailPace); w.MailPace != "" && (err != nil || len(key) != ed25519.PublicKeySize) {
		faults.Add("webhooks.mailPace", nil, "is not an Ed25519 public key", "copy it from the provider")
	}
	if w.SES != "" && !sns.Known(w.SES) {
		faults.Add("webhooks.ses", w.SES, "is not the ARN of an SNS topic", "write it like arn:aws:sns:eu-west-1:123456789012:mail")
	}
}

// names lists the providers whose routes are enabled.
func (w Webhooks) names() []string {
	names := []string{}
	for _, hook := range [][2]string{{"resend", w.Resend}, {"mailpace", w.MailPace}, {"ses", w.SES}} {
		if hook[1] != "" {
			names = append(names, hook[0])
		}
	}
	return names
}

func (w Webhooks) resendKey() ([]byte, error) {
	return base64.StdEncoding.DecodeString(strings.TrimPrefix(w.Resend, "whsec_"))
}

func (e *Email) webhookRoutes() []capability.Route {
	var routes []capability.Route
	add := func(name, secret string, verify capability.Verifier, read func(context.Context, []byte) ([]Report, error)) {
		if secret == "" {
			return
		}
		routes = append(routes, capability.Route{
			Method: http.MethodPost, Path: "/webhooks/" + name, Guard: capability.SignedWebhook(invalid(verify)),
			Summary: "What " + name + " reports of messages.", MaxBody: maxWebhook, Refusals: []*capability.Error{ErrInvalidWebhook},
			Handle: capability.Raw(func(c *capability.Call) error {
				body, err := c.Body()
				if err != nil {
					return err
				}
				reports, err := read(c.Context(), body)
				if refusal := new(capability.Error); errors.As(err, &refusal) {
					return err
				} else if err != nil {
					return capability.ErrInvalidRequest.Saying("The body is not a report.").Because(err)
				}
				if _, err := e.Ingest(c.Context(), reports); err != nil {
					return capability.ErrUnavailable.Because(err)
				}
				c.Writer().WriteHeader(http.StatusOK)
				return nil
			}),
		})
	}
	add("resend", e.cfg.Webhooks.Resend, e.verifyResend, of(readResend))
	add("mailpace", e.cfg.Webhooks.MailPace, e.verifyMailPace, of(readMailPace))
	add("ses", e.cfg.Webhooks.SES, e.ses.Verify, e.ses.read)
	return capability.Mount(e.cfg.BasePath, routes...)
}

// invalid returns a verifier that refuses with [ErrInvalidWebhook] where verify does not refuse.
func invalid(verify capability.Verifier) capability.Verifier {
	return func(r *http.Request, body []byte) error {
		err := verify(r, body)
		if refusal := new(capability.Error); err == nil || errors.As(err, &refusal) {
			return err
		}
		return ErrInvalidWebhook.Because(err)
	}
}

// of adapts a parser that makes no requests.
func of(read func([]byte) ([]Report, error)) func(context.Context, []byte) ([]Report, error) {
	return func(_ context.Context, body []byte) ([]Report, error) { return read(body) }
}

// verifyResend checks a Svix signature: HMAC-SHA256 of "id.timestamp.body".
func (e *Email) verifyResend(r *http.Request, body []byte) error {
	key, err := e.cfg.Webhooks.resendKey()
	if err != nil {
		return err
	}
	id, stamp, signatures, err := proof.Standard(r.Header, "Svix")
	if err != nil {
		return err
	}
	if err := proof.Fresh(stamp, e.host.Now(), webhookSkew); err != nil {
		return err
	}
	h := hmac.New(sha256.New, key)
	h.Write([]byte(id + "." + stamp + "."))
	h.Write(body)
	want := h.Sum(nil)
	for signature := range strings.FieldsSeq(signatures) {
		encoded, ok := strings.CutPrefix(signature, "v1,")
		got, err := base64.StdEncoding.DecodeString(encoded)
		if ok && err == nil && hmac.Equal(got, want) {
			return nil
		}
	}
	return proof.ErrUnmatched
}

func (e *Email) verifyMailPace(r *http.Request, body []byte) error {
	key, err := base64.StdEncoding.DecodeString(e.cfg.Webhooks.MailPace)
	if err != nil {
		return err
	}
	encoded, err := proof.Header(r.Header, "X-Mailpace-Signature")
	if err != nil {
		return err
	}
	signature, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil || !ed25519.Verify(key, body, signature) {
		return proof.ErrUnmatched
	}
	return nil
}

// readResend parses {"type": "email.bounced", "data": {...}}. Other types are not reports.
func readResend(body []byte) ([]Report, error) {
	var event struct {
		Type string
		Data struct {
			EmailID string `json:"email_id"`
			To      []string
			Bounce  struct{ Type, SubType, Message string }
		}
	}
	if err := json.Unmarshal(body, &event); err != nil {
		return nil, err
	}
	r := Report{ProviderID: event.Data.EmailID, Detail: event.Data.Bounce.Message}
	switch event.Type {
	case "email.delivered":
		r.Kind = ReportDelivered
	case "email.delivery_delayed":
		r.Kind = ReportDelayed
	case "email.complained":
		r.Kind = ReportComplaint
	case "email.bounced":
		r.Kind = ReportSoftBounce
		if event.Data.Bounce.Type == "Permanent" {
			r.Kind = ReportHardBounce
		}
	default:
		return nil, nil
	}
	if len(event.Data.To) == 1 {
		r.Recipient = event.Data.To[0]
	}
	return []Report{r}, nil
}

// readMailPace parses {"event": "email.bounced", "payload": {...}}.
func readMailPace(body []byte) ([]Report, error) {
	var event struct {
		Event   string
		Payload struct {
			To        string
			MessageID string `json:"message_id"`
			Reason    string
		}
	}
	if err := json.Unmarshal(body, &event); err != nil {
		return nil, err
	}
	r := Report{Recipient: event.Payload.To, MessageID: angled(event.Payload.MessageID), Detail: event.Payload.Reason}
	switch event.Event {
	case "email.delivered":
		r.Kind = ReportDelivered
	case "email.bounced":
		r.Kind = ReportHardBounce
	case "email.spam":
		r.Kind = ReportComplaint
	case "email.deferred":
		r.Kind = ReportDelayed
	default:
		return nil, nil
	}
	return []Report{r}, nil
}

// angled returns a message ID in angle brackets, as in headers.
func angled(id string) string {
	if id = strings.Trim(id, "<> "); id == "" {
		return ""
	}
	return "<" + id + ">"
}
