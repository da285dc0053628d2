package email

import (
	"context"
	"time"

	"github.com/kitbackend/kit/internal/text"
)

// IngestMail applies the reports of a mail that was received at the return path, only to messages
// of the kit: the sender has to know the Message-ID, which only recipients know. It returns how
// many reports were applied, 0 for a mail that is not a report.
func (e *Email) IngestMail(ctx context.Context, mail []byte) (applied int, err error) {
	return e.ingest(ctx, "dsn", false, ParseReport(mail))
}

// Ingest applies reports of a provider which the caller has authenticated. A bounce or complaint
// suppresses its address even if the message is unknown; then the address is stored as a keyed hash,
// unless a message to it is kept. It returns how many were applied.
func (e *Email) Ingest(ctx context.Context, reports []Report) (applied int, err error) {
	return e.ingest(ctx, "provider", true, reports)
}

func (e *Email) ingest(ctx context.Context, source string, trusted bool, reports []Report) (applied int, err error) {
	if len(reports) == 0 {
		return 0, nil
	}
	err = e.host.DB.InTx(ctx, func(ctx context.Context) error {
		applied = 0
		for _, r := range reports {
			ok, err := e.apply(ctx, source, trusted, r)
			if err != nil {
				return err
			}
			if ok {
				applied++
			}
		}
		return nil
	})
	return applied, err
}

// reportedState is the state of a job after a report.
var reportedState = map[ReportKind]State{
	ReportDelivered: StateDelivered, ReportHardBounce: StateBounced, ReportSoftBounce: StateBounced, ReportComplaint: StateComplained,
}

// apply applies one report. It is idempotent.
func (e *Email) apply(ctx context.Context, source string, trusted bool, r Report) (bool, error) {
	r.MessageID, r.ProviderID = text.Storable(r.MessageID), text.Storable(r.ProviderID)
	job, found, err := e.store.reported(ctx, r.MessageID, r.ProviderID)
	if err != nil {
		return false, err
	}
	key, ok := e.concerned(job, found, trusted, r)
	if !ok {
		return false, nil
	}
	now := e.host.DB.Now(ctx)
	state, tells := reportedState[r.Kind]
	if !tells {
		return r.Kind == ReportDelayed, nil // the server continues to try
	}
	fresh := !found
	if found {
		if fresh, err = e.store.report(ctx, job.ID, state, now); err != nil {
			return false, err
		}
		if fresh {
			detail := text.Storable(r.Status + " " + r.Detail)
			if err := e.store.insertEvent(ctx, job.ID, Event{Type: string(state), Detail: clip(detail, maxReason)}, now); err != nil {
				return false, err
			}
		}
	}
	switch {
	case r.Kind == ReportHardBounce:
		err = e.suppressAfter(ctx, key, ReasonHardBounce, source, job, time.Time{})
	case r.Kind == ReportComplaint:
		err = e.suppressAfter(ctx, key, ReasonComplaint, source, job, time.Time{})
	case r.Kind == ReportSoftBounce && found && fresh:
		err = e.countSoftBounce(ctx, key, source, job, now)
	}
	return true, err
}

// concerned returns the address of a report. A report about a message of the kit concerns the
// recipient of that message, even if it names another address, to which the message was forwarded.
func (e *Email) concerned(job Job, found, trusted bool, r Report) (key string, ok bool) {
	if found {
		return job.addressKey, true
	}
	if !trusted {
		return "", false
	}
	a, err := parseAddress(r.Recipient)
	return e.keyOf(a), err == nil
}

// countSoftBounce suppresses an address temporarily if it has bounced often.
func (e *Email) countSoftBounce(ctx context.Context, key, source string, job Job, now time.Time) error {
	n, err := e.store.softBounces(ctx, key, now.Add(-e.cfg.SoftBounces.Window))
	if err != nil || n < e.cfg.SoftBounces.Limit {
		return err
	}
	return e.suppressAfter(ctx, key, ReasonSoftBounceLimit, source, job, now.Add(e.cfg.SoftBounces.TTL))
}
