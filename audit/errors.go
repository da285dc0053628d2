package audit

import (
	"errors"

	"github.com/kitbackend/kit/capability"
)

// ErrInvalidEvent is returned by [Audit.Record] for an event that violates the grammar or a bound:
// a bug of the program, so it has no refusal code.
var ErrInvalidEvent = errors.New("audit: invalid event")

// ErrNoKeys is returned when a checkpoint is to be signed without master keys.
var ErrNoKeys = errors.New("audit: checkpoints need master keys")

// ErrEventNotFound refuses to read an event that does not exist.
var ErrEventNotFound = capability.NewError(404, "audit/event_not_found", "There is no such event.")

func refusals() []*capability.Error { return []*capability.Error{ErrEventNotFound} }
