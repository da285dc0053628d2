package jobs

import "context"

// The statements of [Queue.Lag], with its bindings and with the bounds of leases.
var (
	DueBindings = dueBindings
	LeasedJobs  = leasedJobs
)

// TakeAndGiveBack claims due jobs of a binding, calls between, and gives them back; it returns their ids.
func (q *Queue) TakeAndGiveBack(ctx context.Context, binding string, limit int, between func()) (ids []string, err error) {
	runs, err := q.take(ctx, binding, limit)
	for _, r := range runs {
		ids = append(ids, r.ID)
	}
	between()
	q.giveBack(ctx, runs)
	return ids, err
}
