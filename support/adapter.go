package support

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"mime"
	"mime/multipart"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/kitbackend/kit/capability"
)

// Inbound opens a route under {BasePath}/inbound for each sender of mail over HTTP
// whose signing key is configured; none by default. Mail of adapters
// goes through the same guards as mail over SMTP.
type Inbound struct {
	// Relay is the secret, "whsec_…", of a relay of your own that signs as Standard
	// Webhooks 1.0.0 says: POST …/inbound/relay with {"from", "to": [], "raw":
	// base64 of the mail}.
	Relay string
	// Mailgun is the signing key of Mailgun's routes, whose action forwards to a
	// URL that ends in mime: POST …/inbound/mailgun/mime. Mailgun signs a time and
	// a token and not the mail, so TLS has to keep the mail as it is.
	Mailgun string
}

// signatureAge bounds how old a signature may be, and how far ahead.
const signatureAge = 5 * time.Minute

func (i Inbound) validate(faults *capability.Faults) {
	if key, err := i.relayKey(); i.Relay != "" && (err != nil || len(key) < 24) {
		faults.Add("inbound.relay", nil, "is not a signing secret", "write whsec_ and the base64 of at least 24 random bytes")
	}
	if i.Mailgun != "" && len(i.Mailgun) < 16 {
		faults.Add("inbound.mailgun", nil, "is not a signing key", "copy it from the provider")
	}
}

func (i Inbound) relayKey() ([]byte, error) {
	return base64.StdEncoding.DecodeString(strings.TrimPrefix(i.Relay, "whsec_"))
}

// names lists the senders whose routes are open.
func (i Inbound) names() []string {
	names := []string{}
	for _, one := range [][2]string{{"relay", i.Relay}, {"mailgun", i.Mailgun}} {
		if one[1] != "" {
			names = append(names, one[0])
		}
	}
	return names
}

// handed is a mail as a sender hands it over.
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
				if err != nil {
					return capability.ErrInvalidRequest.Saying("The body holds no mail.").Because(err)
				}
				return s.take(c, mail)
			})})
	}
	add("relay", s.cfg.Inbound.Relay, s.verifyRelay, readRelay)
	add("mailgun/mime", s.cfg.Inbound.Mailgun, s.verifyMailgun, readMailgun)
	return routes
}

// take stores a mail. A status of 2xx tells the sender that it is done with.
func (s *Support) take(c *capability.Call, mail handed) error {
	receipt, err := s.Receive(c.Context(), mail.envelope, mail.raw)
	if err != nil {
		if refusal := new(capability.Error); errors.As(err, &refusal) || errors.Is(err, context.Canceled) {
			return err
		}
		return capability.ErrUnavailable.Because(err)
	}
	c.Writer().Header().Set("Content-Type", "application/json")
	return json.NewEncoder(c.Writer()).Encode(map[string]Outcome{"outcome": receipt.Outcome})
}

// fresh reports whether a signature's time in Unix seconds is near enough.
func (s *Support) fresh(stamp string) bool {
	seconds, err := strconv.ParseInt(stamp, 10, 64)
	return err == nil && s.host.Now().Sub(time.Unix(seconds, 0)).Abs() <= signatureAge
}

func (s *Support) verifyRelay(r *http.Request, body []byte) error {
	id, stamp := r.Header.Get("Webhook-Id"), r.Header.Get("Webhook-Timestamp")
	key, err := s.cfg.Inbound.relayKey()
	if err != nil || id == "" || !s.fresh(stamp) {
		return capability.ErrInvalidSignature
	}
	h := hmac.New(sha256.New, key)
	h.Write([]byte(id + "." + stamp + "."))
	h.Write(body)
	want := h.Sum(nil)
	for signature := range strings.FieldsSeq(r.Header.Get("Webhook-Signature")) {
		encoded, ok := strings.CutPrefix(signature, "v1,")
		got, err := base64.StdEncoding.DecodeString(encoded)
		if ok && err == nil && hmac.Equal(got, want) {
			return nil
		}
	}
	return capability.ErrInvalidSignature
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
	if err != nil || !s.fresh(form.Get("timestamp")) {
		return capability.ErrInvalidSignature
	}
	h := hmac.New(sha256.New, []byte(s.cfg.Inbound.Mailgun))
	h.Write([]byte(form.Get("timestamp") + form.Get("token")))
	got, err := hex.DecodeString(form.Get("signature"))
	if err != nil || !hmac.Equal(got, h.Sum(nil)) {
		return capability.ErrInvalidSignature
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

// mailForm reads either encoding of a form.
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
