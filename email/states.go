package email

import (
	"context"

	"github.com/kitbackend/kit/capability"
)

// MaxStates bounds the jobs of one call of [Email.States].
const MaxStates = 1000

// States returns the states of jobs by their IDs, by one query; it omits jobs that are no longer
// kept. More than [MaxStates] are refused with kit/invalid_request.
func (e *Email) States(ctx context.Context, ids []string) (map[string]State, error) {
	if len(ids) > MaxStates {
		return nil, capability.ErrInvalidRequest.Saying("At most %d jobs at once.", MaxStates)
	}
	return e.store.states(ctx, ids)
}
