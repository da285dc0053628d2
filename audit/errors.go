package audit

import (
	"errors"

	"github.com/kitbackend/kit/capability"
)

// ErrInvalidEvent is what [Audit.Record] returns for an event that breaks the
// grammar or a bound: a mistake of the program, so it has no code of its own.
var ErrInvalidEvent = errors.New("audit: invalid event")

// ErrNoKeys is what signing a checkpoint returns without master keys.
var ErrNoKeys = errors.New("audit: checkpoints need master keys")

// ErrEventNotFound is the refusal of a read of one event.
var ErrEventNotFound = capability.NewError(404, "audit/event_not_found", "There is no such event.")

func refusals() []*capability.Error { return []*capability.Error{ErrEventNotFound} }
