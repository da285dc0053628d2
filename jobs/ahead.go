package jobs

import (
	"context"
	"slices"
	"time"
)

const (
	// maxAhead is how many jobs a node holds at most whose runs have not begun. A payload may have 256 KiB.
	maxAhead = 128
	// aheadTime is how long the workers of a binding may take for the jobs claimed ahead, as
	// estimated from past runs.
	aheadTime = 25 * time.Millisecond
	// aheadWait is how long a job claimed ahead waits for a worker before it is given back.
	aheadWait = 100 * time.Millisecond
	// aheadSlow is the run time assumed of a binding once jobs were given back.
	aheadSlow = time.Minute
)

// ahead is jobs that were claimed before a worker was free for them, so that short jobs do not each cost a share of a
// small claim. Their number depends on how long runs of the binding took.
type ahead struct {
	jobs []claimedAhead // in the order of their claims
	took map[string]time.Duration
}

type claimedAhead struct {
	*run
	since time.Time
}

// room returns how many more jobs of a binding may be claimed ahead, 0 while more than half of them wait: claims are to
// be large. Jobs with a single attempt never are, as a node that dies spends that of each job it has claimed.
func (a *ahead) room(b Binding, workers, free int) int {
	took, known := a.took[b.Name]
	if !known || b.MaxAttempts == 1 {
		return 0
	}
	most := maxAhead
	if took > 0 {
		most = int(min(maxAhead, time.Duration(workers)*aheadTime/took))
	}
	if free == 0 && len(a.jobs) > most/2 {
		return 0
	}
	return max(most-len(a.jobs), 0)
}

func (a *ahead) add(runs []*run) {
	for _, r := range runs {
		a.jobs = append(a.jobs, claimedAhead{r, time.Now()})
	}
}

// take removes the first job whose binding has a worker, nil when there is none.
func (a *ahead) take(free func(binding string) bool) *run {
	i := slices.IndexFunc(a.jobs, func(j claimedAhead) bool { return free(j.Binding) })
	if i < 0 {
		return nil
	}
	r := a.jobs[i].run
	a.jobs = slices.Delete(a.jobs, i, i+1)
	return r
}

// drop removes the jobs that have waited at least that long. Their bindings count as slow until
// runs are quick again.
func (a *ahead) drop(waited time.Duration) (dropped []*run) {
	a.jobs = slices.DeleteFunc(a.jobs, func(j claimedAhead) bool {
		if time.Since(j.since) < waited {
			return false
		}
		a.learn(j.Binding, aheadSlow)
		dropped = append(dropped, j.run)
		return true
	})
	return dropped
}

// learn updates the estimate with the duration of a run: at once by a slow run, gradually by quick
// ones.
func (a *ahead) learn(binding string, took time.Duration) {
	before := a.took[binding]
	a.took[binding] = max(took, before-before/8)
}

// giveBack makes claimed jobs whose runs have not begun available again. What fails waits for its lease to expire.
func (q *Queue) giveBack(ctx context.Context, runs []*run) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), statementTimeout)
	defer cancel()
	outcomes := make([]*outcome, len(runs))
	for i, r := range runs {
		outcomes[i] = q.outcomeOf(r, q.judge(r, ErrLeaseLost, 0, true))
	}
	settled, err := q.settleAll(ctx, outcomes)
	for _, o := range outcomes {
		if err == nil && !settled[o.id] && o.keyed { // somebody held its row
			_, err = q.settleOne(ctx, o)
		}
	}
	if err != nil {
		q.log.ErrorContext(ctx, "jobs: claimed jobs not given back", "jobs", len(runs), "error", err)
	}
}
