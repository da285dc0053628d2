// Package snstest simulates Amazon SNS in tests.
package snstest

import (
	"bytes"
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"io"
	"math/big"
	"net/http"
	"strings"
	"testing"
	"time"
)

// Topic is the ARN of the topic whose messages Amazon signs.
const Topic = "arn:aws:sns:eu-west-1:123456789012:mail"

// Amazon responds as the host of SNS does and signs with the key of its certificate.
type Amazon struct {
	t   testing.TB
	key *rsa.PrivateKey
	pem []byte
	// Asked lists the addresses that were requested.
	Asked []string
	// Down makes the host fail.
	Down bool
}

// New makes a host whose certificate begins an hour before now and ends in 30 days.
func New(t testing.TB, now time.Time) *Amazon {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "sns.amazonaws.com"},
		NotBefore: now.Add(-time.Hour), NotAfter: now.Add(30 * 24 * time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return &Amazon{t: t, key: key, pem: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})}
}

// RoundTrip serves the requests of a client whose transport the Amazon is.
func (s *Amazon) RoundTrip(r *http.Request) (*http.Response, error) {
	s.Asked = append(s.Asked, r.URL.String())
	status, body := http.StatusOK, s.pem
	if s.Down {
		status = http.StatusBadGateway
	}
	if r.URL.Path == "/SimpleNotificationService-moved.pem" {
		status = http.StatusFound
	}
	return &http.Response{
		StatusCode: status, Status: http.StatusText(status), Request: r,
		Header: http.Header{"Location": {"https://evil.example/cert.pem"}}, Body: io.NopCloser(bytes.NewReader(body)),
	}, nil
}

// Message is what SNS posts to subscribers of Topic, with more or other fields, signed.
func (s *Amazon) Message(fields map[string]string, now time.Time) map[string]string {
	m := map[string]string{
		"Type": "Notification", "MessageId": "m1", "TopicArn": Topic, "SignatureVersion": "2",
		"Timestamp":      now.UTC().Format("2006-01-02T15:04:05.000Z"),
		"SigningCertURL": "https://sns.eu-west-1.amazonaws.com/SimpleNotificationService-0a1b.pem",
	}
	for name, value := range fields {
		m[name] = value
	}
	var lines strings.Builder
	for _, name := range []string{"Message", "MessageId", "Subject", "SubscribeURL", "Timestamp", "Token", "TopicArn", "Type"} {
		if m[name] != "" {
			lines.WriteString(name + "\n" + m[name] + "\n")
		}
	}
	sum := sha256.Sum256([]byte(lines.String()))
	signature, err := rsa.SignPKCS1v15(nil, s.key, crypto.SHA256, sum[:])
	if err != nil {
		s.t.Fatal(err)
	}
	m["Signature"] = base64.StdEncoding.EncodeToString(signature)
	return m
}
