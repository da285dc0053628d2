package email

import (
	"context"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/internal/rate"
)

const (
	// sesAge bounds the age of a notification: SNS repeats one for an hour by
	// default, a topic may be told to go on for a day.
	sesAge = 24 * time.Hour
	// sesTimeout and sesSize bound what is fetched from SNS.
	sesTimeout = 10 * time.Second
	sesSize    = 64 << 10
)

// sesFetches bounds what forged messages can make a node ask of SNS: a topic has
// one certificate, replaced about once a year.
var sesFetches = rate.Limit{Events: 5, Per: time.Minute}

// topicARN is the name of an SNS topic: partition, region, account and name.
var topicARN = regexp.MustCompile(`^arn:(aws|aws-cn|aws-us-gov):sns:([a-z0-9-]{4,32}):[0-9]{12}:[A-Za-z0-9_-]{1,256}$`)

// certificatePath is where SNS keeps its certificates.
var certificatePath = regexp.MustCompile(`^/SimpleNotificationService-[A-Za-z0-9]{1,64}\.pem$`)

// ses takes what Amazon SES reports through one SNS topic. Whatever a message
// says, certificates come from the host of the topic's own region alone.
type ses struct {
	topic, host string
	client      *http.Client
	now         func() time.Time
	fetches     *rate.Limiter

	mu           sync.Mutex
	certificates map[string]*x509.Certificate // by path
}

func newSES(topic string, now func() time.Time) *ses {
	parts := topicARN.FindStringSubmatch(topic)
	if parts == nil {
		return &ses{}
	}
	host := "sns." + parts[2] + ".amazonaws.com"
	if parts[1] == "aws-cn" {
		host += ".cn"
	}
	return &ses{
		topic: topic, host: host, now: now, fetches: rate.New(sesFetches, now), certificates: make(map[string]*x509.Certificate),
		client: &http.Client{
			Timeout:       sesTimeout,
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}
}

// notification is a message of SNS over HTTPS.
type notification struct {
	Type, MessageID, TopicArn, Subject, Message, Timestamp, Token, SubscribeURL string

	SignatureVersion, Signature, SigningCertURL string
}

// signed is what SNS signs: names and values in their order, a line each.
func (n notification) signed() []byte {
	fields := []string{"Message", n.Message, "MessageId", n.MessageID}
	if n.Type != "Notification" {
		fields = append(fields, "SubscribeURL", n.SubscribeURL)
	} else if n.Subject != "" {
		fields = append(fields, "Subject", n.Subject)
	}
	fields = append(fields, "Timestamp", n.Timestamp)
	if n.Type != "Notification" {
		fields = append(fields, "Token", n.Token)
	}
	fields = append(fields, "TopicArn", n.TopicArn, "Type", n.Type)
	return []byte(strings.Join(fields, "\n") + "\n")
}

// verify believes the configured topic alone, signed with SHA-256 (version 2).
// A certificate that cannot be fetched is a failure of ours: SNS tries again.
func (s *ses) verify(r *http.Request, body []byte) error {
	var n notification
	if json.Unmarshal(body, &n) != nil || n.TopicArn != s.topic || n.SignatureVersion != "2" {
		return ErrInvalidWebhook
	}
	sent, err := time.Parse(time.RFC3339, n.Timestamp)
	if age := s.now().Sub(sent); err != nil || age > sesAge || age < -webhookSkew {
		return ErrInvalidWebhook
	}
	signature, err := base64.StdEncoding.DecodeString(n.Signature)
	if err != nil {
		return ErrInvalidWebhook
	}
	at, err := url.Parse(n.SigningCertURL)
	if err != nil || at.Scheme != "https" || at.Host != s.host || !certificatePath.MatchString(at.Path) || at.RawQuery != "" {
		return ErrInvalidWebhook
	}
	certificate, err := s.certificate(r.Context(), at.Path)
	if err != nil {
		return capability.ErrUnavailable.Because(err)
	}
	if now := s.now(); now.Before(certificate.NotBefore) || now.After(certificate.NotAfter) {
		return ErrInvalidWebhook
	}
	if certificate.CheckSignature(x509.SHA256WithRSA, n.signed(), signature) != nil {
		return ErrInvalidWebhook
	}
	return nil
}

// certificate returns the one at a path, fetched once. Another host than SNS
// cannot be asked, so SNS alone decides how many paths there are.
func (s *ses) certificate(ctx context.Context, path string) (*x509.Certificate, error) {
	s.mu.Lock()
	known := s.certificates[path]
	s.mu.Unlock()
	if known != nil {
		return known, nil
	}
	if _, ok := s.fetches.Allow(""); !ok {
		return nil, errors.New("email: too many certificates of SNS were asked for")
	}
	text, err := s.get(ctx, path)
	if err != nil {
		return nil, err
	}
	block, _ := pem.Decode(text)
	if block == nil {
		return nil, errors.New("email: SNS returned no certificate")
	}
	fetched, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("email: the certificate of SNS: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.certificates[path] = fetched
	return fetched, nil
}

func (s *ses) get(ctx context.Context, pathAndQuery string) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+s.host+pathAndQuery, nil)
	if err != nil {
		return nil, err
	}
	response, err := s.client.Do(request)
	if err != nil {
		return nil, fmt.Errorf("email: asking SNS: %w", err)
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("email: SNS returned %s", response.Status)
	}
	return io.ReadAll(io.LimitReader(response.Body, sesSize))
}

// read returns the reports of a verified message. A subscription to the
// configured topic is confirmed at an address made here, not the one sent.
func (s *ses) read(ctx context.Context, body []byte) ([]Report, error) {
	var n notification
	if err := json.Unmarshal(body, &n); err != nil {
		return nil, err
	}
	switch n.Type {
	case "SubscriptionConfirmation":
		query := url.Values{"Action": {"ConfirmSubscription"}, "TopicArn": {s.topic}, "Token": {n.Token}}
		if _, err := s.get(ctx, "/?"+query.Encode()); err != nil {
			return nil, capability.ErrUnavailable.Because(err)
		}
		return nil, nil
	case "Notification":
		return readSES([]byte(n.Message))
	default:
		return nil, nil
	}
}

// readSES reads an event or a feedback notification; the two name their kind
// differently.
func readSES(body []byte) ([]Report, error) {
	type recipient struct{ EmailAddress, Status, DiagnosticCode string }
	var event struct {
		EventType, NotificationType string
		Mail                        struct{ MessageID string }
		Bounce                      struct {
			BounceType        string
			BouncedRecipients []recipient
		}
		Complaint struct {
			ComplainedRecipients []recipient
		}
		Delivery struct {
			Recipients []string
		}
		DeliveryDelay struct {
			DelayedRecipients []recipient
		}
	}
	if err := json.Unmarshal(body, &event); err != nil {
		return nil, err
	}
	var reports []Report
	each := func(kind ReportKind, about []recipient) {
		for _, r := range about {
			reports = append(reports, Report{
				Kind: kind, ProviderID: event.Mail.MessageID, Recipient: r.EmailAddress, Status: r.Status, Detail: r.DiagnosticCode,
			})
		}
	}
	switch event.EventType + event.NotificationType {
	case "Bounce":
		kind := ReportSoftBounce
		if event.Bounce.BounceType == "Permanent" {
			kind = ReportHardBounce
		}
		each(kind, event.Bounce.BouncedRecipients)
	case "Complaint":
		each(ReportComplaint, event.Complaint.ComplainedRecipients)
	case "DeliveryDelay":
		each(ReportDelayed, event.DeliveryDelay.DelayedRecipients)
	case "Delivery":
		for _, address := range event.Delivery.Recipients {
			reports = append(reports, Report{Kind: ReportDelivered, ProviderID: event.Mail.MessageID, Recipient: address})
		}
	}
	return reports, nil
}
