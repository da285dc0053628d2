package email

import (
	"context"
	"net/http"
)

// Sign is what an attempt does to a message.
var Sign = sign

// Redirectable is what a click may lead to.
var Redirectable = redirectable

// ReachSNS makes e ask SNS through another transport.
func ReachSNS(e *Email, transport http.RoundTripper) { e.ses.Client.Transport = transport }

// SignedHeaders are covered by DKIM.
var SignedHeaders = signedHeaders

// Keep is the transport that keeps mail in e's mailbox.
func Keep(e *Email) Transport { return keep{e.mailbox} }

// Unsubscribe does what the button behind an unsubscribe link does.
func Unsubscribe(ctx context.Context, e *Email, text string) error {
	t, err := e.tokens.read(ctx, unsubscribeToken, text)
	if err != nil {
		return err
	}
	return e.unsubscribe(ctx, t, ScopeList)
}
