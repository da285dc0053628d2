// Package sns verifies the messages that Amazon SNS posts: those of one topic, signed with a
// certificate of the topic's own region.
package sns

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
	"github.com/kitbackend/kit/internal/proof"
	"github.com/kitbackend/kit/internal/rate"
)

const (
	// maxAge bounds the age of a message: SNS retries one for an hour by default, and for up to a
	// day if the topic is so configured.
	maxAge = 24 * time.Hour
	// maxSkew bounds how far ahead of the clock a message may be.
	maxSkew = 5 * time.Minute
	// timeout and maxResponse bound a fetch from SNS.
	timeout     = 10 * time.Second
	maxResponse = 64 << 10
)

// ErrForged is returned for a message that the topic did not send, or did not send recently.
var ErrForged = errors.New("sns: this is no message of the topic")

// fetches bounds how many requests to SNS forged messages can cause: a topic has one certificate,
// replaced about once a year.
var fetches = rate.Limit{Events: 5, Per: time.Minute}

// topicARN is the name of an SNS topic: partition, region, account and name.
var topicARN = regexp.MustCompile(`^arn:(aws|aws-cn|aws-us-gov):sns:([a-z0-9-]{4,32}):[0-9]{12}:[A-Za-z0-9_-]{1,256}$`)

// certificatePath is where SNS keeps its certificates.
var certificatePath = regexp.MustCompile(`^/SimpleNotificationService-[A-Za-z0-9]{1,64}\.pem$`)

// Known reports whether text is the ARN of a topic.
func Known(text string) bool { return topicARN.MatchString(text) }

// Topic verifies the messages of one topic. It fetches certificates from the host of the topic's
// own region alone, whatever address a message names.
type Topic struct {
	// Client sends the requests to SNS; tests replace its transport.
	Client *http.Client

	topic, host string
	now         func() time.Time
	fetches     *rate.Limiter

	mu           sync.Mutex
	certificates map[string]*x509.Certificate // by path
}

// New returns the Topic of an ARN; with an empty one it refuses every message.
func New(topic string, now func() time.Time) *Topic {
	parts := topicARN.FindStringSubmatch(topic)
	if parts == nil {
		return &Topic{Client: &http.Client{Timeout: timeout}, now: now}
	}
	host := "sns." + parts[2] + ".amazonaws.com"
	if parts[1] == "aws-cn" {
		host += ".cn"
	}
	return &Topic{
		topic: topic, host: host, now: now, fetches: rate.New(fetches, now), certificates: make(map[string]*x509.Certificate),
		Client: &http.Client{
			Timeout:       timeout,
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}
}

// message is a message as SNS posts it.
type message struct {
	Type, MessageID, TopicArn, Subject, Message, Timestamp, Token, SubscribeURL string

	SignatureVersion, Signature, SigningCertURL string
}

// signed returns the text that SNS signs: names and values in a fixed order, a line each.
func (n message) signed() []byte {
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

// Verify accepts a message of the topic that is signed with SHA-256 (version 2) and returns
// [ErrForged] for any other. If the certificate cannot be fetched it returns kit/unavailable, and
// SNS retries.
func (t *Topic) Verify(r *http.Request, body []byte) error {
	var n message
	switch err := json.Unmarshal(body, &n); {
	case err != nil:
		return forged("the body is no message of SNS")
	case t.topic == "" || n.TopicArn != t.topic:
		return forged("it is of another topic than the configured one")
	case n.SignatureVersion != "2":
		return forged("the topic signs with another SignatureVersion than 2")
	}
	sent, err := time.Parse(time.RFC3339, n.Timestamp)
	if err != nil {
		return forged("its Timestamp is no time")
	}
	now := t.now()
	if age := now.Sub(sent); age > maxAge || age < -maxSkew {
		return forged("its Timestamp %s is more than %s before or %s after the time here, %s", proof.Time(sent), maxAge, maxSkew, proof.Time(now))
	}
	signature, err := base64.StdEncoding.DecodeString(n.Signature)
	if err != nil {
		return forged("its Signature is not in base64")
	}
	at, err := url.Parse(n.SigningCertURL)
	if err != nil || at.Scheme != "https" || at.Host != t.host || !certificatePath.MatchString(at.Path) || at.RawQuery != "" {
		return forged("its SigningCertURL is not of %s", t.host)
	}
	certificate, err := t.certificate(r.Context(), at.Path)
	if err != nil {
		return capability.ErrUnavailable.Because(err)
	}
	if now.Before(certificate.NotBefore) || now.After(certificate.NotAfter) {
		return forged("the certificate of SNS is valid from %s to %s, and the time here is %s",
			proof.Time(certificate.NotBefore), proof.Time(certificate.NotAfter), proof.Time(now))
	}
	if certificate.CheckSignature(x509.SHA256WithRSA, n.signed(), signature) != nil {
		return forged("its Signature is not by the certificate of SNS")
	}
	return nil
}

// forged returns an error that says to operators why a message is refused.
func forged(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{ErrForged}, args...)...)
}

// certificate returns the certificate at a path, which is fetched once. Only SNS is asked, so it
// alone decides how many paths there are.
func (t *Topic) certificate(ctx context.Context, path string) (*x509.Certificate, error) {
	t.mu.Lock()
	known := t.certificates[path]
	t.mu.Unlock()
	if known != nil {
		return known, nil
	}
	if _, ok := t.fetches.Allow(""); !ok {
		return nil, errors.New("sns: too many certificates of SNS were asked for")
	}
	text, err := t.get(ctx, path)
	if err != nil {
		return nil, err
	}
	block, _ := pem.Decode(text)
	if block == nil {
		return nil, errors.New("sns: SNS returned no certificate")
	}
	fetched, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("sns: the certificate of SNS: %w", err)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.certificates[path] = fetched
	return fetched, nil
}

func (t *Topic) get(ctx context.Context, pathAndQuery string) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+t.host+pathAndQuery, nil)
	if err != nil {
		return nil, err
	}
	response, err := t.Client.Do(request)
	if err != nil {
		return nil, fmt.Errorf("sns: asking SNS: %w", err)
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("sns: SNS returned %s", response.Status)
	}
	return io.ReadAll(io.LimitReader(response.Body, maxResponse))
}

// Read returns the text of a verified notification, and false for any other message. It confirms a
// subscription to the topic at an address that it makes itself, not at the one sent. It refuses
// with kit/unavailable if SNS does not accept the confirmation.
func (t *Topic) Read(ctx context.Context, body []byte) (string, bool, error) {
	var n message
	if err := json.Unmarshal(body, &n); err != nil {
		return "", false, err
	}
	if n.Type == "SubscriptionConfirmation" {
		query := url.Values{"Action": {"ConfirmSubscription"}, "TopicArn": {t.topic}, "Token": {n.Token}}
		if _, err := t.get(ctx, "/?"+query.Encode()); err != nil {
			return "", false, capability.ErrUnavailable.Because(err)
		}
	}
	return n.Message, n.Type == "Notification", nil
}
