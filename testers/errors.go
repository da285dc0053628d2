package testers

import (
	"time"

	"github.com/kitbackend/kit/capability"
)

// The refusals of testers. Invalid fields are refused with kit/invalid_request, an invalid address
// with email/invalid_address.
var (
	// ErrNotConfigured is returned if a mail would have no link to the store: the cohort has no
	// store address.
	ErrNotConfigured  = capability.NewError(503, "testers/not_configured", "The cohort has no address in the store.")
	ErrCohortNotFound = capability.NewError(404, "testers/cohort_not_found", "There is no such cohort.")
	ErrMemberNotFound = capability.NewError(404, "testers/member_not_found", "There is no such tester in the cohort.")
	ErrCohortClosed   = capability.NewError(409, "testers/cohort_closed", "The cohort is closed.")
	ErrAlreadyThere   = capability.NewError(409, "testers/already_on_roster", "The address is on the roster already.")
	ErrWithdrawn      = capability.NewError(409, "testers/withdrawn", "This person opted out and is not mailed again.")
	ErrRosterFull     = capability.NewError(409, "testers/roster_full", "The roster is full.")
	// ErrInvalidToken is returned to browsers as a page.
	ErrInvalidToken = capability.NewError(404, "testers/invalid_token", "The link is not valid, or not any more.")
	// ErrNudgeCooldown has a [Cooldown] in its details.
	ErrNudgeCooldown = capability.NewError(429, "testers/nudge_cooldown", "This tester was reminded a short while ago.")
	// ErrCopyNotAllowed has a [CopyFault] in its details.
	ErrCopyNotAllowed = capability.NewError(422, "testers/copy_not_allowed", "This text may not be sent to testers.")
)

func refusals() []*capability.Error {
	return []*capability.Error{
		ErrNotConfigured, ErrCohortNotFound, ErrMemberNotFound, ErrCohortClosed, ErrAlreadyThere, ErrWithdrawn,
		ErrRosterFull, ErrInvalidToken, ErrNudgeCooldown, ErrCopyNotAllowed,
	}
}

// Cooldown is the details of [ErrNudgeCooldown].
type Cooldown struct {
	NextAllowedAt capability.Time `json:"nextAllowedAt"`
	// RetryAfter is in seconds.
	RetryAfter int64 `json:"retryAfter"`
}

// Wait returns the time until the next reminder is allowed.
func (c Cooldown) Wait() time.Duration { return time.Duration(c.RetryAfter) * time.Second }

// CopyFault is the details of [ErrCopyNotAllowed]: the rule, the field that violates it ("subject"
// or "body"), and the matching words.
type CopyFault struct {
	Rule  string `json:"rule"`
	Field string `json:"field"`
	Match string `json:"match"`
}
