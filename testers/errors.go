package testers

import (
	"time"

	"github.com/kitbackend/kit/capability"
)

// The refusals of testers. Bad fields are kit/invalid_request, a bad address is
// email/invalid_address.
var (
	// ErrNotConfigured is met where a mail would lead nowhere: the cohort has no
	// address in the store.
	ErrNotConfigured  = capability.NewError(503, "testers/not_configured", "The cohort has no address in the store.")
	ErrCohortNotFound = capability.NewError(404, "testers/cohort_not_found", "There is no such cohort.")
	ErrMemberNotFound = capability.NewError(404, "testers/member_not_found", "There is no such tester in the cohort.")
	ErrCohortClosed   = capability.NewError(409, "testers/cohort_closed", "The cohort is closed.")
	ErrAlreadyThere   = capability.NewError(409, "testers/already_on_roster", "The address is on the roster already.")
	ErrWithdrawn      = capability.NewError(409, "testers/withdrawn", "This person opted out and is not mailed again.")
	ErrRosterFull     = capability.NewError(409, "testers/roster_full", "The roster is full.")
	// ErrInvalidToken is shown as a page.
	ErrInvalidToken = capability.NewError(404, "testers/invalid_token", "The link is not valid, or not any more.")
	// ErrNudgeCooldown carries a [Cooldown] in its details.
	ErrNudgeCooldown = capability.NewError(429, "testers/nudge_cooldown", "This tester was reminded a short while ago.")
	// ErrCopyNotAllowed carries a [CopyFault] in its details.
	ErrCopyNotAllowed = capability.NewError(422, "testers/copy_not_allowed", "This text may not be sent to testers.")
)

func refusals() []*capability.Error {
	return []*capability.Error{
		ErrNotConfigured, ErrCohortNotFound, ErrMemberNotFound, ErrCohortClosed, ErrAlreadyThere, ErrWithdrawn,
		ErrRosterFull, ErrInvalidToken, ErrNudgeCooldown, ErrCopyNotAllowed,
	}
}

// Cooldown is in the details of [ErrNudgeCooldown].
type Cooldown struct {
	NextAllowedAt capability.Time `json:"nextAllowedAt"`
	// RetryAfter is in seconds.
	RetryAfter int64 `json:"retryAfter"`
}

// Wait is how long from now the next reminder is allowed.
func (c Cooldown) Wait() time.Duration { return time.Duration(c.RetryAfter) * time.Second }

// CopyFault is in the details of [ErrCopyNotAllowed]: the rule, the field that
// breaks it ("subject" or "body"), and the words that do.
type CopyFault struct {
	Rule  string `json:"rule"`
	Field string `json:"field"`
	Match string `json:"match"`
}
