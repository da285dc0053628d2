package email

import "github.com/kitbackend/kit/capability"

// The refusals of email. A message without content, with a key or ID over its bound, or with a time
// out of range is kit/invalid_request.
var (
	// ErrNotConfigured is returned when the kit is composed: production has no provider or sender.
	ErrNotConfigured    = capability.NewError(503, "email/not_configured", "Mail cannot be sent: there is no provider or no sender.")
	ErrJobNotFound      = capability.NewError(404, "email/job_not_found", "There is no such email job.")
	ErrJobNotRetryable  = capability.NewError(409, "email/job_not_retryable", "Only a failed or bounced job whose message is still kept can be retried.")
	ErrSuppressed       = capability.NewError(409, "email/suppressed", "The address is suppressed. Remove the suppression first.")
	ErrInvalidAddress   = capability.NewError(400, "email/invalid_address", "This is not an address mail can be sent to.")
	ErrInvalidHeader    = capability.NewError(400, "email/invalid_header", "A header has a name that is not allowed or a value with control characters.")
	ErrNotSuppressed    = capability.NewError(404, "email/suppression_not_found", "This address is not suppressed.")
	ErrProtected        = capability.NewError(409, "email/suppression_protected", "The recipient complained or unsubscribed. Say force to remove the suppression all the same.")
	ErrIdempotency      = capability.NewError(409, "email/idempotency_conflict", "This idempotency key was used for another message.")
	ErrTemplateNotFound = capability.NewError(404, "email/template_not_found", "There is no such template.")
	ErrTemplateFailed   = capability.NewError(422, "email/template_failed", "The template does not run on this data.")
	ErrMessageTooLarge  = capability.NewError(413, "email/message_too_large", "The message is over the size limit.")
	// ErrRateLimited is returned in process: too many mails to one address in an hour.
	ErrRateLimited = capability.NewError(429, "email/rate_limited", "Too many mails to this address. Wait and try again.")
	// ErrInvalidToken is rendered as a page on the callback routes.
	ErrInvalidToken   = capability.NewError(404, "email/invalid_token", "This link is not one of ours, or it was changed.")
	ErrInvalidWebhook = capability.NewError(401, "email/webhook_invalid", "The provider's proof does not verify.")
)

func refusals() []*capability.Error {
	return []*capability.Error{
		ErrNotConfigured, ErrJobNotFound, ErrJobNotRetryable, ErrSuppressed, ErrInvalidAddress, ErrInvalidHeader,
		ErrNotSuppressed, ErrProtected, ErrIdempotency, ErrTemplateNotFound, ErrTemplateFailed, ErrMessageTooLarge,
		ErrRateLimited, ErrInvalidToken, ErrInvalidWebhook,
	}
}
