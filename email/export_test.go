package email

import (
	"context"
	"net/http"
)

// Sign is what an attempt does to a message.
var Sign = sign

// Redirectable reports whether a click may redirect to a link.
var Redirectable = redirectable

// ReachSNS makes e request SNS through another transport.
func ReachSNS(e *Email, transport http.RoundTripper) { e.ses.Client.Transport = transport }

// SignedHeaders are the headers covered by DKIM.
var SignedHeaders = signedHeaders

// Keep returns the transport that stores mail in e's mailbox.
func Keep(e *Email) Transport { return keep{e.mailbox} }

// Unsubscribe does what the button of the unsubscribe page does.
func Unsubscribe(ctx context.Context, e *Email, text string) error {
	t, err := e.tokens.read(ctx, unsubscribeToken, text)
	if err != nil {
		return err
	}
	return e.unsubscribe(ctx, t, ScopeList)
}

// Deliver makes a run of the job that delivers a message.
func Deliver(ctx context.Context, e *Email, jobID string) error { return e.deliver(ctx, jobID) }
