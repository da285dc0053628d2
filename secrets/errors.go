package secrets

import (
	"errors"

	"github.com/kitbackend/kit/capability"
)

// The refusals of secrets.
var (
	ErrNotFound           = capability.NewError(404, "secrets/not_found", "There is no such secret.")
	ErrRotationInProgress = capability.NewError(409, "secrets/rotation_in_progress", "This secret is being rotated already.")
	ErrVersionConflict    = capability.NewError(409, "secrets/version_conflict", "Somebody else has written this secret. Look again and repeat.")
	ErrReadOnly           = capability.NewError(409, "secrets/read_only", "Where this secret is kept it can only be read.")
	ErrIncompleteBlock    = capability.NewError(422, "secrets/incomplete_block", "A block is given in full or not at all.")
	ErrInvalidValue       = capability.NewError(422, "secrets/invalid_value", "The values of this secret cannot be right.")
	ErrStepFailed         = capability.NewError(502, "secrets/step_failed", "The system this secret belongs to did not take part in the rotation.")
)

func refusals() []*capability.Error {
	return []*capability.Error{ErrNotFound, ErrRotationInProgress, ErrVersionConflict, ErrReadOnly, ErrIncompleteBlock, ErrInvalidValue, ErrStepFailed}
}

// errInterrupted ends a manual rotation whose new values were never stored: the operator has to
// enter them again.
var errInterrupted = errors.New("secrets: the rotation was interrupted before its values were stored")

// unavailable converts an error of a provider to [capability.ErrUnavailable]; refusals are returned
// unchanged. The errors of providers must not quote values; see package secretstest.
func unavailable(err error) error {
	var refusal *capability.Error
	if err == nil || errors.As(err, &refusal) {
		return err
	}
	return capability.ErrUnavailable.Because(err)
}
