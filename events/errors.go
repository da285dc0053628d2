package events

import "github.com/kitbackend/kit/capability"

// The refusals of the outbox. A reason that is too long is refused with kit/invalid_request.
var (
	ErrEndpointNotFound = capability.NewError(404, "events/endpoint_not_found", "There is no such endpoint.")
	ErrDisabled         = capability.NewError(409, "events/endpoint_disabled", "The endpoint is disabled. Enable it first.")
)

func refusals() []*capability.Error { return []*capability.Error{ErrEndpointNotFound, ErrDisabled} }
