package email

import (
	"context"

	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/database"
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

func (s store) states(ctx context.Context, ids []string) (map[string]State, error) {
	type pair struct {
		id    string
		state State
	}
	pairs, err := database.All(ctx, s.db, func(row database.Scanner) (p pair, err error) {
		return p, row.Scan(&p.id, &p.state)
	}, `SELECT id, state FROM email_job WHERE id `+database.InList(1), database.List(ids))
	states := make(map[string]State, len(pairs))
	for _, p := range pairs {
		states[p.id] = p.state
	}
	return states, err
}
