package support

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"mime/multipart"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/internal/proof"
	"github.com/kitbackend/kit/internal/sns"
)

// Inbound configures the routes of mail over HTTP: one under {BasePath}/inbound for each sender
// whose signing key is set, none by default. Mail received there passes the same guards as mail
// over SMTP. There is no route for a provider that signs nothing, such as Postmark, or whose
// request contains no mail, such as Resend: verify and fetch the mail in the application and call
// [Support.Receive], or run a relay that signs it.
type Inbound struct {
	// Relay is the secret, "whsec_…", of a relay of your own that signs according to Standard
	// Webhooks 1.0.0: POST …/inbound/relay with {"from", "to": [], "raw": base64 of the mail}.
	Relay string
	// Mailgun is the signing key of Mailgun's routes, whose action forwards to a URL that ends in
	// mime: POST …/inbound/mailgun/mime. Mailgun signs a timestamp and a token but not the mail, so
	// that only TLS protects the mail from changes.
	Mailgun string
	// SendGrid is the public key, in base64, of the security policy of a parse setting that sends
	// raw mail; it signs the whole body: POST …/inbound/sendgrid.
	SendGrid string
	// SES is the ARN of the SNS topic of a receipt rule's SNS action, with SignatureVersion 2: POST
	// …/inbound/ses. The subscription confirms itself. SNS carries mails of at most 150 KB: SES
	// refuses larger ones.
	SES string
}

// signatureAge bounds how far the time of a signature may be in the past or in the future.
const signatureAge = 5 * time.Minute

func (i Inbound) validate(faults *capability.Faults) {
	if key, err := i.relayKey(); i.Relay != "" && (err != nil || len(key) < 24) {
		faults.Add("inbound.relay", nil, "is not a signing secret", "write whsec_ and the base64 of at least 24 random bytes")
	}
	if i.Mailgun != "" && len(i.Mailgun) < 16 {
		faults.Add("inbound.mailgun", nil, "is not a signing key", "copy it from the provider")
	}
	if _, err := i.sendGridKey(); i.SendGrid != "" && err != nil {
		faults.Add("inbound.sendGrid", nil, "is not a public key", "copy the public key of the security policy")
	}
	if i.SES != "" && !sns.Known(i.SES) {
		faults.Add("inbound.ses", i.SES, "is not the ARN of an SNS topic", "write it like arn:aws:sns:eu-west-1:123456789012:mail")
	}
}

func (i Inbound) relayKey() ([]byte, error) {
	return base64.StdEncoding.DecodeString(strings.TrimPrefix(i.Relay, "whsec_"))
}

func (i Inbound) sendGridKey() (*ecdsa.PublicKey, error) {
	der, err := base64.StdEncoding.DecodeString(i.SendGrid)
	if err != nil {
		return nil, err
	}
	parsed, err := x509.ParsePKIXPublicKey(der)
	if err != nil {
		return nil, err
	}
	if key, ok := parsed.(*ecdsa.PublicKey); ok {
		return key, nil
	}
	return nil, errors.New("support: this is no key of an elliptic curve")
}

// names returns the senders whose routes are open.
func (i Inbound) names() []string {
	names := []string{}
	for _, one := range [][2]string{{"relay", i.Relay}, {"mailgun", i.Mailgun}, {"sendgrid", i.SendGrid}, {"ses", i.SES}} {
		if one[1] != "" {
			names = append(names, one[0])
		}
	}
	return names
}

// handed is a mail as received from a sender, with its envelope.
type handed struct {
	envelope Envelope
	raw      []byte
}

func (s *Support) inboundRoutes() []capability.Route {
	var routes []capability.Route
	add := func(path, secret string, verify capability.Verifier, read func(*http.Request, []byte) (handed, error)) {
		if secret == "" {
			return
		}
		routes = append(routes, capability.Route{Method: http.MethodPost, Path: "/inbound/" + path, Guard: capability.SignedWebhook(verify),
			Summary: "A mail, handed over by HTTP.", MaxBody: 2*s.cfg.Guard.MaxRawBytes + 64<<10,
			Refusals: []*capability.Error{ErrRejected, ErrUnparseable},
			Handle: capability.Raw(func(c *capability.Call) error {
				body, err := c.Body()
				if err != nil {
					return err
				}
				mail, err := read(c.Request(), body)
				if refusal := new(capability.Error); errors.As(err, &refusal) {
					return err
				} else if err != nil {
					return capability.ErrInvalidRequest.Saying("The body holds no mail.").Because(err)
				}
				return s.take(c, mail)
			})})
	}
	add("relay", s.cfg.Inbound.Relay, s.verifyRelay, readRelay)
	add("mailgun/mime", s.cfg.Inbound.Mailgun, s.verifyMailgun, readMailgun)
	add("sendgrid", s.cfg.Inbound.SendGrid, s.verifySendGrid, readSendGrid)
	add("ses", s.cfg.Inbound.SES, s.ses.Verify, s.readSES)
	return routes
}

// take stores a mail. A status of 2xx tells the sender not to send it again. A request without a
// mail, such as the confirmation of a subscription, is ignored.
func (s *Support) take(c *capability.Call, mail handed) error {
	if mail.raw == nil && len(mail.envelope.To) == 0 {
		return told(c, OutcomeIgnored)
	}
	receipt, err := s.Receive(c.Context(), mail.envelope, mail.raw)
	if err != nil {
		if refusal := new(capability.Error); errors.As(err, &refusal) || errors.Is(err, context.Canceled) {
			return err
		}
		return capability.ErrUnavailable.Because(err)
	}
	return told(c, receipt.Outcome)
}

func told(c *capability.Call, outcome Outcome) error {
	c.Writer().Header().Set("Content-Type", "application/json")
	return json.NewEncoder(c.Writer()).Encode(map[string]Outcome{"outcome": outcome})
}

func (s *Support) verifyRelay(r *http.Request, body []byte) error {
	key, err := s.cfg.Inbound.relayKey()
	if err != nil {
		return err
	}
	id, stamp, signatures, err := proof.Standard(r.Header, "Webhook")
	if err != nil {
		return err
	}
	if err := proof.Fresh(stamp, s.host.Now(), signatureAge); err != nil {
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

func readRelay(_ *http.Request, body []byte) (handed, error) {
	var mail struct {
		From string
		To   []string
		Raw  []byte
	}
	if err := json.Unmarshal(body, &mail); err != nil {
		return handed{}, err
	}
	if len(mail.To) > maxRecipients {
		return handed{}, errors.New("too many recipients")
	}
	return handed{Envelope{From: mail.From, To: mail.To}, mail.Raw}, nil
}

func (s *Support) verifyMailgun(r *http.Request, body []byte) error {
	form, err := mailForm(r, body)
	if err != nil {
		return fmt.Errorf("the body is no form: %w", err)
	}
	if err := proof.Fresh(form.Get("timestamp"), s.host.Now(), signatureAge); err != nil {
		return err
	}
	h := hmac.New(sha256.New, []byte(s.cfg.Inbound.Mailgun))
	h.Write([]byte(form.Get("timestamp") + form.Get("token")))
	got, err := hex.DecodeString(form.Get("signature"))
	if err != nil || !hmac.Equal(got, h.Sum(nil)) {
		return proof.ErrUnmatched
	}
	return nil
}

func readMailgun(r *http.Request, body []byte) (handed, error) {
	form, err := mailForm(r, body)
	if err != nil {
		return handed{}, err
	}
	to := strings.FieldsFunc(form.Get("recipient"), func(r rune) bool { return r == ',' || r == ' ' })
	if len(to) > maxRecipients {
		return handed{}, errors.New("too many recipients")
	}
	return handed{Envelope{From: form.Get("sender"), To: to}, []byte(form.Get("body-mime"))}, nil
}

// verifySendGrid checks an ECDSA signature of the timestamp and the body as received.
func (s *Support) verifySendGrid(r *http.Request, body []byte) error {
	key, err := s.cfg.Inbound.sendGridKey()
	if err != nil {
		return err
	}
	stamp, err := proof.Header(r.Header, "X-Twilio-Email-Event-Webhook-Timestamp")
	if err != nil {
		return err
	}
	encoded, err := proof.Header(r.Header, "X-Twilio-Email-Event-Webhook-Signature")
	if err != nil {
		return err
	}
	if err := proof.Fresh(stamp, s.host.Now(), signatureAge); err != nil {
		return err
	}
	signature, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil {
		return proof.ErrUnmatched
	}
	h := sha256.New()
	h.Write([]byte(stamp))
	h.Write(body)
	if !ecdsa.VerifyASN1(key, h.Sum(nil), signature) {
		return proof.ErrUnmatched
	}
	return nil
}

// readSendGrid reads the form of a parse setting with "send raw": the field email contains the mail
// and the field envelope a JSON object.
func readSendGrid(r *http.Request, body []byte) (handed, error) {
	form, err := mailForm(r, body)
	if err != nil {
		return handed{}, err
	}
	var envelope struct {
		From string
		To   []string
	}
	if err := json.Unmarshal([]byte(form.Get("envelope")), &envelope); err != nil {
		return handed{}, err
	}
	if len(envelope.To) > maxRecipients {
		return handed{}, errors.New("too many recipients")
	}
	return handed{Envelope{From: envelope.From, To: envelope.To}, []byte(form.Get("email"))}, nil
}

// readSES reads the notification of a receipt rule's SNS action. Its encoding is a setting of the
// rule: UTF-8, or base64, which preserves mails in other charsets.
func (s *Support) readSES(r *http.Request, body []byte) (handed, error) {
	text, ok, err := s.ses.Read(r.Context(), body)
	if err != nil || !ok {
		return handed{}, err
	}
	var notice struct {
		NotificationType string
		Mail             struct{ Source string }
		Receipt          struct {
			Recipients []string
			Action     struct{ Encoding string }
		}
		Content string
	}
	if err := json.Unmarshal([]byte(text), &notice); err != nil {
		return handed{}, err
	}
	if notice.NotificationType != "Received" {
		return handed{}, nil // such as the notification that SES sends when a rule is created
	}
	if len(notice.Receipt.Recipients) > maxRecipients {
		return handed{}, errors.New("too many recipients")
	}
	raw := []byte(notice.Content)
	if strings.EqualFold(notice.Receipt.Action.Encoding, "base64") {
		if raw, err = base64.StdEncoding.DecodeString(notice.Content); err != nil {
			return handed{}, err
		}
	}
	if len(raw) == 0 {
		return handed{}, errors.New("the notification is of another action than SNS")
	}
	return handed{Envelope{From: notice.Mail.Source, To: notice.Receipt.Recipients}, raw}, nil
}

// mailForm reads a multipart or a URL-encoded form.
func mailForm(r *http.Request, body []byte) (url.Values, error) {
	kind, params, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil {
		return nil, err
	}
	if kind != "multipart/form-data" {
		return url.ParseQuery(string(body))
	}
	form, err := multipart.NewReader(bytes.NewReader(body), params["boundary"]).ReadForm(int64(len(body)) + 1)
	if err != nil {
		return nil, err
	}
	return form.Value, nil
}
