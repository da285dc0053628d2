package payments

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"time"

	"github.com/kitbackend/kit/audit"
	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/internal/id"
	"github.com/kitbackend/kit/internal/optional"
	"github.com/kitbackend/kit/jobs"
)

// ReconcileBinding is the job that reconciles, nightly and when dispatched.
const ReconcileBinding = "PAYMENTS_RECONCILE"

// ReconcileRequest narrows a run; nil and the zero value do not.
type ReconcileRequest struct {
	// Rail is the only rail to reconcile.
	Rail RailID `json:"rail,omitempty"`
}

// RunStatus is the status of a reconcile run.
type RunStatus string

// The statuses of a run. A partial one is incomplete, because a rail failed or its time was over;
// the next run continues there.
const (
	RunRunning   RunStatus = "running"
	RunSucceeded RunStatus = "succeeded"
	RunPartial   RunStatus = "partial"
	RunFailed    RunStatus = "failed"
)

// Run is one reconcile run.
type Run struct {
	ID string `json:"id"`
	// Trigger is "schedule", "dispatch" or "application".
	Trigger    string           `json:"trigger"`
	Status     RunStatus        `json:"status"`
	StartedAt  capability.Time  `json:"startedAt"`
	FinishedAt *capability.Time `json:"finishedAt"`
	Checked    int64            `json:"checked"`
	Changed    int64            `json:"changed"`
	Failed     int64            `json:"failed"`
	Rails      []RailRun        `json:"rails"`
}

// RailRun is the result of a run at one rail.
type RailRun struct {
	Rail    RailID `json:"rail"`
	Checked int64  `json:"checked"`
	Changed int64  `json:"changed"`
	Failed  int64  `json:"failed"`
	// Recovered counts webhooks that were missed.
	Recovered int64 `json:"recovered"`
	// Code is the code of the error that ended the rail's part early.
	Code string `json:"code,omitempty"`
	// More says that the run's time was over before its work.
	More bool `json:"more,omitempty"`
}

type runRow struct {
	id, startedBy                      string
	startedAt, heartbeatAt, finishedAt Instant
	status                             RunStatus
	checked, changed, failed           int64
	rails                              string
}

func (r runRow) wire() Run {
	run := Run{ID: r.id, Trigger: r.startedBy, Status: r.status, StartedAt: capability.Millis(int64(r.startedAt)), FinishedAt: optional.Time(r.finishedAt),
		Checked: r.checked, Changed: r.changed, Failed: r.failed, Rails: []RailRun{}}
	_ = json.Unmarshal([]byte(r.rails), &run.Rails) // written by reconcile
	return run
}

// Bounds of a run.
const (
	batchSize = 200
	// runStale is the time after its last heartbeat at which a run counts as dead. One whose last
	// heartbeat is as far ahead was written before the clock was set back.
	runStale = 15 * time.Minute
	// recheck is how long a fetched purchase is not fetched again.
	recheck = 20 * time.Hour
	// maxFailures in a row end a rail's part of a run.
	maxFailures = 3
	// maxRows and maxPages bound a rail's part of a run; the next one goes on.
	maxRows  = 200_000
	maxPages = 2_000
	// firstHistory is how far back the first run reads.
	firstHistory = 72 * time.Hour
	// historyOverlap is read again, since rails list late.
	historyOverlap = time.Hour
	maxAttempts    = 50
)

// ErrRunning reports that a run is under way, here or on another node.
var ErrRunning = errors.New("payments: a reconcile run goes on already")

// runReconcile runs the job. It does nothing while another run is under way.
func (p *Payments) runReconcile(ctx context.Context, job jobs.Job) error {
	var q *ReconcileRequest
	if len(job.Payload) > 0 {
		if err := json.Unmarshal(job.Payload, &q); err != nil {
			return jobs.Permanent(err)
		}
	}
	trigger := "schedule"
	if q == nil {
		q = &ReconcileRequest{}
	} else {
		trigger = "dispatch"
	}
	_, err := p.reconcile(ctx, trigger, *q, 8*time.Minute)
	if errors.Is(err, ErrRunning) {
		return nil
	}
	return err
}

// Reconcile processes everything that may have changed without a webhook, in bounded batches:
// failed deliveries, purchases that changed by time, owed refunds, acknowledgments, the histories
// of the rails, and purchases that were not fetched for a day. If a rail fails it continues with
// the others. It returns [ErrRunning] while another run is under way.
//
// What of a history cannot be written for thirty days, as for a hook that fails, is not read again.
// A purchase that was written as over by a clock that was ahead stays so until its rail reports it
// again or a user restores it; its facts are as they were, and [Payments.Repair] projects them.
func (p *Payments) Reconcile(ctx context.Context, q ReconcileRequest) (Run, error) {
	return p.reconcile(ctx, "application", q, time.Hour)
}

func (p *Payments) reconcile(ctx context.Context, trigger string, q ReconcileRequest, budget time.Duration) (Run, error) {
	if q.Rail != "" {
		if _, err := p.on(q.Rail); err != nil {
			return Run{}, err
		}
	}
	run := runRow{startedBy: trigger, status: RunSucceeded}
	err := p.host.DB.InTx(ctx, func(ctx context.Context) error {
		now := p.host.DB.Now(ctx)
		run.id, run.startedAt = id.New(now), At(now)
		ok, err := p.store.beginRun(ctx, run, At(now.Add(-runStale)), At(now.Add(runStale)))
		if err == nil && !ok {
			err = ErrRunning
		}
		return err
	})
	if err != nil {
		return Run{}, err
	}
	w := &walk{p: p, run: &run, end: time.Now().Add(budget)}
	rails := []RailRun{}
	for _, railID := range sorted(p.rails) {
		if q.Rail != "" && q.Rail != railID {
			continue
		}
		part := w.rail(ctx, p.rails[railID])
		if part.Code != "" || part.More || part.Failed > 0 {
			run.status = RunPartial
		}
		rails = append(rails, part)
	}
	if ctx.Err() != nil {
		run.status = RunFailed
	}
	return p.finishRun(context.WithoutCancel(ctx), run, rails)
}

func (p *Payments) finishRun(ctx context.Context, run runRow, rails []RailRun) (Run, error) {
	run.rails = string(content(rails))
	err := p.host.DB.InTx(ctx, func(ctx context.Context) error {
		run.finishedAt = At(p.host.DB.Now(ctx))
		if err := p.store.finishRun(ctx, run); err != nil {
			return err
		}
		return p.audit.Record(ctx, audit.Event{Action: "payments/reconcile_completed", Actor: audit.Actor{Kind: audit.ActorJob, ID: ReconcileBinding},
			Subject: audit.Target{Type: "reconcile_run", ID: run.id}, Detail: map[string]any{"status": run.status, "checked": run.checked, "changed": run.changed, "failed": run.failed}})
	})
	return run.wire(), err
}

// walk is the state of one run.
type walk struct {
	p   *Payments
	run *runRow
	// end bounds real time, whatever the clock of the host says.
	end time.Time
}

// rail runs a rail's part of a run.
func (w *walk) rail(ctx context.Context, rail *rail) (part RailRun) {
	part.Rail = rail.ID
	err := w.recall(ctx, rail, &part)
	if err == nil {
		err = w.overdue(ctx, rail, &part)
	}
	if err != nil {
		w.stop(ctx, &part, err)
	}
	if part.More || ctx.Err() != nil {
		return part
	}
	if _, err := w.p.access(ctx, rail); err != nil {
		w.stop(ctx, &part, err)
		return part
	}
	for _, step := range []func(context.Context, *railWalk) error{w.failedDeliveries, w.acknowledgements, w.history, w.unchecked} {
		r := &railWalk{rail: rail, part: &part}
		if err := step(ctx, r); err != nil {
			w.stop(ctx, &part, err)
		}
		if part.More || ctx.Err() != nil {
			break
		}
	}
	return part
}

// railWalk is one step at one rail; failures count those in a row.
type railWalk struct {
	rail     *rail
	part     *RailRun
	failures int
}

// failed counts a failure and returns it once there were too many in a row.
func (r *railWalk) failed(err error) error {
	r.part.Failed++
	if r.failures++; r.failures >= maxFailures {
		return err
	}
	return nil
}

// stop records why a rail's part ended early.
func (w *walk) stop(ctx context.Context, part *RailRun, err error) {
	part.Code = ErrRailUnavailable.Code
	var refusal *capability.Error
	if errors.As(err, &refusal) {
		part.Code = refusal.Code
	}
	if !errors.Is(err, ErrRailNotConfigured) {
		w.p.host.Log.WarnContext(ctx, "payments: reconcile left a rail", slog.String("rail", string(part.Rail)), slog.Any("error", err))
	}
}

// over reports whether the run's time is over.
func (w *walk) over() bool { return time.Now().After(w.end) }

// beat writes the heartbeat of the run after each batch, and reports whether the run may continue.
func (w *walk) beat(ctx context.Context, part *RailRun) (bool, error) {
	if w.over() || ctx.Err() != nil {
		part.More = true
		return false, ctx.Err()
	}
	ok, err := w.p.store.beatRun(ctx, *w.run, At(w.p.host.Now()))
	if err == nil && !ok {
		err = ErrRunning
	}
	return ok, err
}

// recall makes rows due whose time was written by a clock that was ahead: those put off for longer
// than clawbackRetry and a margin.
func (w *walk) recall(ctx context.Context, rail *rail, part *RailRun) error {
	for rows := 0; rows < maxRows; rows += batchSize {
		found, err := w.p.store.recall(ctx, rail.ID, At(w.p.host.Now().Add(clawbackRetry+runStale)), batchSize)
		if err != nil {
			return err
		}
		if ok, err := w.beat(ctx, part); err != nil || !ok || found < batchSize {
			return err
		}
	}
	return nil
}

// overdue writes changes by time alone, and retries owed clawbacks.
func (w *walk) overdue(ctx context.Context, rail *rail, part *RailRun) error {
	last := &row{}
	l := &lapsing{p: w.p, rail: rail, job: ReconcileBinding, over: w.over}
	for rows := 0; rows < maxRows; {
		due, err := w.p.store.due(ctx, rail.ID, At(w.p.host.Now()), last, batchSize)
		if err != nil {
			return err
		}
		for _, last = range due {
			c, err := l.write(ctx, last)
			w.written(ctx, part, last.transactionID, c, err)
		}
		rows += len(due)
		if ok, err := w.beat(ctx, part); err != nil || !ok {
			return err
		}
		if len(due) < batchSize {
			break
		}
	}
	return w.owed(ctx, rail, part)
}

// owed retries owed clawbacks. One that fails again gets a later time; a batch that could not be
// written at all is left to the next run.
func (w *walk) owed(ctx context.Context, rail *rail, part *RailRun) error {
	for rows := 0; rows < maxRows; {
		owed, err := w.p.store.owed(ctx, rail.ID, At(w.p.host.Now()), batchSize)
		if err != nil {
			return err
		}
		written := false
		for _, transactionID := range owed {
			c, err := w.p.projectAgain(ctx, rail, transactionID, ReconcileBinding)
			w.written(ctx, part, transactionID, c, err)
			written = written || err == nil
		}
		rows += len(owed)
		if ok, err := w.beat(ctx, part); err != nil || !ok || !written || len(owed) < batchSize {
			return err
		}
	}
	return nil
}

// written counts the result of a purchase. One that cannot be written does not stop the run; one
// that is left to the next pass, whose change is nil, does not count.
func (w *walk) written(ctx context.Context, part *RailRun, transactionID string, c *change, err error) {
	switch {
	case err != nil:
		w.unwritten(ctx, part, transactionID, err)
	case c != nil:
		w.count(part, c, transactionID)
	}
}

func (w *walk) count(part *RailRun, c *change, transactionID string) {
	part.Checked++
	w.run.checked++
	if r := c.rows[transactionID]; r != nil && c.before[transactionID].status != r.p.Status {
		part.Changed++
		w.run.changed++
	}
}

func (w *walk) failedDeliveries(ctx context.Context, r *railWalk) error {
	for rows := 0; rows < maxRows; {
		list, err := w.p.store.failedDeliveries(ctx, r.rail.ID, At(w.p.host.Now()), batchSize)
		if err != nil {
			return err
		}
		for _, d := range list {
			if d.attempts >= maxAttempts {
				if _, err := w.p.refuse(ctx, r.rail, d.Delivery, ErrRailUnavailable); err != nil {
					return err
				}
				continue
			}
			if _, err := w.p.deliver(ctx, r.rail, d.Delivery, callBudget); err != nil {
				if err := w.undelivered(ctx, r, d.Delivery, err); err != nil {
					return err
				}
				continue
			}
			r.failures = 0
			r.part.Recovered++
		}
		rows += len(list)
		if ok, err := w.beat(ctx, r.part); err != nil || !ok || len(list) < batchSize {
			return err
		}
	}
	return nil
}

func (w *walk) failed(r *railWalk, err error) error {
	w.run.failed++
	return r.failed(err)
}

// undelivered counts a failed delivery. If the rail did not cause the failure, as when a hook
// refuses, the delivery waits in the inbox and the run continues.
func (w *walk) undelivered(ctx context.Context, r *railWalk, d Delivery, err error) error {
	if errors.Is(err, ErrRailUnavailable) {
		return w.failed(r, err)
	}
	if _, kept, failed := w.p.store.outcomeOf(ctx, r.rail.ID, d.ID); failed != nil || !kept {
		return errors.Join(err, failed)
	}
	w.unwritten(ctx, r.part, d.ID, err)
	return nil
}

// unwritten counts a failure that the rail did not cause.
func (w *walk) unwritten(ctx context.Context, part *RailRun, id string, err error) {
	w.run.failed++
	part.Failed++
	w.p.unwritten(ctx, id, err)
}

// acknowledgements acknowledges purchases at the rail. It continues after a refused one, unless the
// rail refuses a whole batch.
func (w *walk) acknowledgements(ctx context.Context, r *railWalk) error {
	if r.rail.Acknowledge == nil {
		return nil
	}
	after := ""
	for {
		list, err := w.p.store.unacknowledged(ctx, r.rail.ID, after, batchSize)
		if err != nil {
			return err
		}
		var refused error
		taken := false
		for _, row := range list {
			after = row.id
			if row.subject == (Subject{}) {
				continue
			}
			switch err := w.p.acknowledge(ctx, r.rail, row); {
			case err == nil:
				r.failures, taken = 0, true
			case IsTransient(err):
				if err := w.failed(r, err); err != nil {
					return err
				}
			default:
				refused = err
				w.unwritten(ctx, r.part, row.id, err)
			}
		}
		if ok, err := w.beat(ctx, r.part); err != nil || !ok || len(list) < batchSize {
			return err
		}
		if refused != nil && !taken {
			return refused
		}
	}
}

// unchecked fetches the purchases that were not fetched for a day.
func (w *walk) unchecked(ctx context.Context, r *railWalk) error {
	if r.rail.Fetch == nil {
		return nil
	}
	since := w.run.startedAt - Instant(recheck.Milliseconds())
	for rows := 0; rows < maxRows; {
		list, err := w.p.store.unchecked(ctx, r.rail.ID, since, batchSize)
		if err != nil {
			return err
		}
		for _, row := range list {
			if err := w.fetch(ctx, r, row); err != nil {
				return err
			}
		}
		rows += len(list)
		if ok, err := w.beat(ctx, r.part); err != nil || !ok || len(list) < batchSize {
			return err
		}
	}
	r.part.More = true
	return nil
}

// fetch fetches one purchase. One that fails is fetched again in the next run.
func (w *walk) fetch(ctx context.Context, r *railWalk, row *row) error {
	observations, err := w.p.ask(ctx, r.rail, func(ctx context.Context, a Access) ([]Observation, error) { return r.rail.Fetch(ctx, a, row.ref()) })
	if err == nil {
		r.failures = 0
		return w.fetched(ctx, r, row, observations)
	}
	if err := w.p.store.setChecked(ctx, row.id, At(w.p.host.Now())); err != nil {
		return err
	}
	var refusal *capability.Error
	if errors.As(err, &refusal) && refusal.Status < 500 {
		r.part.Failed++
		w.run.failed++
		return nil
	}
	return w.failed(r, err)
}

// fetched writes the observations of one purchase, and that it was fetched.
func (w *walk) fetched(ctx context.Context, r *railWalk, row *row, observations []Observation) error {
	c := &change{rail: r.rail, checked: true, actor: audit.Actor{Kind: audit.ActorJob, ID: ReconcileBinding}}
	err := w.p.host.DB.InTx(ctx, func(ctx context.Context) error { return w.p.apply(ctx, c, observations) })
	if err == nil {
		w.p.afterApply(ctx, c)
		w.count(r.part, c, row.transactionID)
	} else {
		w.unwritten(ctx, r.part, row.transactionID, err)
	}
	if err != nil || c.rows[row.transactionID] == nil {
		return w.p.store.setChecked(ctx, row.id, At(w.p.host.Now()))
	}
	return nil
}

// ListRuns lists the reconcile runs of the last ninety days, newest first.
func (p *Payments) ListRuns(ctx context.Context, page capability.Page) (capability.Items[Run], error) {
	page = page.Bounded()
	var before string
	if _, err := page.After(&before); err != nil {
		return capability.Items[Run]{}, err
	}
	rows, err := p.store.runs(ctx, before, page.Limit+1)
	if err != nil {
		return capability.Items[Run]{}, err
	}
	list := make([]Run, len(rows))
	for i, r := range rows {
		list[i] = r.wire()
	}
	return capability.Paged(page, list, func(r Run) []any { return []any{r.ID} }), nil
}

// Choices lists the values, for documents.
func (RunStatus) Choices() []string {
	return []string{string(RunRunning), string(RunSucceeded), string(RunPartial), string(RunFailed)}
}
