package kit

import (
	"context"

	"github.com/kitbackend/kit/audit"
	"github.com/kitbackend/kit/jobs"
)

// RetryJob makes a job of any database due now, see [jobs.Queue.Retry], and records that in the
// audit trail; ok is false when there is none to retry.
func (k *Kit) RetryJob(ctx context.Context, id string) (ok bool, err error) {
	for _, b := range k.bindings {
		job, found, err := b.queue.Job(ctx, id)
		if err != nil {
			return false, err
		}
		if !found {
			continue
		}
		err = b.db.InTx(ctx, func(ctx context.Context) error {
			if ok, err = b.queue.Retry(ctx, id); err != nil || !ok {
				return err
			}
			return k.Audit().Record(ctx, audit.Event{Action: "kit/job_retried",
				Subject: audit.Target{Type: "job", ID: id}, Detail: map[string]string{"binding": job.Binding}})
		})
		return ok, err
	}
	return false, nil
}

// ListJobs lists the jobs of all databases, see [jobs.Queue.List]: by database,
// at most limit of each.
func (k *Kit) ListJobs(ctx context.Context, f jobs.Filter, limit int) ([]jobs.Status, error) {
	all := []jobs.Status{}
	for _, b := range k.bindings {
		list, err := b.queue.List(ctx, f, "", limit)
		if err != nil {
			return nil, err
		}
		all = append(all, list...)
	}
	return all, nil
}
