package email

import (
	"context"

	"github.com/kitbackend/kit/capability"
)

// MaxStates is how many jobs one call of [Email.States] reads at most.
const MaxStates = 1000

// States returns the states of jobs by their ids, by one query; a job that is no
// longer kept is not among them. It takes at most [MaxStates], more are
// kit/invalid_request.
func (e *Email) States(ctx context.Context, ids []string) (map[string]State, error) {
	if len(ids) > MaxStates {
		return nil, capability.ErrInvalidRequest.Saying("At most %d jobs at once.", MaxStates)
	}
	return e.store.states(ctx, ids)
}
