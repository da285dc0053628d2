package support

import (
	"time"

	"github.com/kitbackend/kit/capability"
)

// The refusals of support. Text that exceeds its bounds is refused with kit/invalid_request.
var (
	ErrNotFound        = capability.NewError(404, "support/not_found", "There is no such thread.")
	ErrInvalidCategory = capability.NewError(422, "support/invalid_category", "There is no such category.")
	// ErrRejected has a [Rejection] in its details.
	ErrRejected = capability.NewError(429, "support/rejected", "Too many messages. Wait and try again.")
	// ErrUnparseable is returned for inbound mail only, not to the app.
	ErrUnparseable          = capability.NewError(422, "support/unparseable_message", "This is not a mail: it has no header that can be read.")
	ErrClassificationFailed = capability.NewError(502, "support/classification_failed", "The model did not return a classification that can be used.")
	ErrReplyFailed          = capability.NewError(409, "support/reply_failed", "The reply cannot be sent to this person.")
)

func refusals() []*capability.Error {
	return []*capability.Error{
		ErrNotFound, ErrInvalidCategory, ErrRejected, ErrUnparseable, ErrClassificationFailed, ErrReplyFailed,
	}
}

// RejectionReason is the limit that a message exceeded.
type RejectionReason string

// The reasons. A mail that is too large is refused with kit/body_too_large instead.
const (
	RejectionSender RejectionReason = "rate_sender"
	RejectionTotal  RejectionReason = "rate_total"
)

// Rejection is the details of [ErrRejected].
type Rejection struct {
	Reason RejectionReason `json:"reason"`
	// RetryAfter is in seconds.
	RetryAfter int64 `json:"retryAfter"`
}

// Wait returns the time until the next hour begins.
func (r Rejection) Wait() time.Duration { return time.Duration(r.RetryAfter) * time.Second }
