package email

import (
	"bytes"
	"context"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/kitbackend/kit/audit"
	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/internal/id"
	"github.com/kitbackend/kit/jobs"
)

// Send queues a message and returns its job; it joins the transaction of ctx. A message to a
// suppressed address is recorded but not sent, without an error: a caller that requests a mail must
// not learn of the suppression from the response. Refuses with email/invalid_address,
// invalid_header, template_not_found, template_failed, message_too_large, rate_limited,
// idempotency_conflict and kit/invalid_request.
func (e *Email) Send(ctx context.Context, m Message) (jobID string, err error) {
	or(&m.Category, CategoryTransactional)
	now := e.host.DB.Now(ctx)
	if err := m.check(now); err != nil {
		return "", err
	}
	to, err := parseAddress(m.To)
	if err != nil {
		return "", err
	}
	hash, err := e.requestHash(m)
	if err != nil {
		return "", err
	}
	key, err := e.subject(ctx, e.keyOf(to))
	if err != nil {
		return "", err
	}
	row := newJob{
		id: id.New(now), category: m.Category, addressKey: key.address, address: to.spec, template: m.Template,
		idempotencyKey: m.IdempotencyKey, requestHash: hash, userID: m.UserID, quota: m.Quota,
		maxAttempts: e.cfg.Retry.MaxAttempts, now: now, due: now,
	}
	if m.SendAt.After(now) {
		row.due = m.SendAt
	}
	message, err := e.compose(ctx, m, to, key.address, row.id, now)
	if err != nil {
		return "", err
	}
	row.subject, row.messageID = message.subject, message.messageID
	sealed := e.sealer.Seal(messageContext(row.id), message.bytes)
	err = e.host.DB.InTx(ctx, func(ctx context.Context) error {
		jobID, err = e.accept(ctx, row, key, sealed)
		return err
	})
	return jobID, err
}

// accept adds the rows of a message, unless its idempotency key is taken.
func (e *Email) accept(ctx context.Context, row newJob, key subject, sealed []byte) (string, error) {
	if row.idempotencyKey != "" {
		first, hash, found, err := e.store.jobOfKey(ctx, row.idempotencyKey)
		if err != nil {
			return "", err
		}
		if found {
			return first, sameRequest(hash, row.requestHash)
		}
	}
	if err := e.limit(ctx, row); err != nil {
		return "", err
	}
	held, err := e.holds(ctx, key, row.category)
	if err != nil {
		return "", err
	}
	row.state = StateQueued
	if held {
		row.state = StateSuppressed
	}
	added, err := e.store.insertJob(ctx, row)
	if err != nil {
		return "", err
	}
	if !added { // another node has just used the key
		first, hash, _, err := e.store.jobOfKey(ctx, row.idempotencyKey)
		if err != nil {
			return "", err
		}
		return first, sameRequest(hash, row.requestHash)
	}
	if row.state == StateSuppressed {
		return row.id, nil
	}
	if err := e.store.insertMessage(ctx, row.id, sealed, row.now); err != nil {
		return "", err
	}
	_, err = e.host.Jobs.Enqueue(ctx, sendBinding, row.id, jobs.At(row.due))
	return row.id, err
}

// limit refuses a message above the limit of its address, counted over all nodes.
func (e *Email) limit(ctx context.Context, row newJob) error {
	limit := e.cfg.PerRecipientPerHour
	if limit < 0 {
		return nil
	}
	if err := e.store.lockAddress(ctx, row.addressKey); err != nil {
		return err
	}
	recent, err := e.store.recent(ctx, row.addressKey, row.quota, row.now.Add(-time.Hour))
	if err == nil && recent >= limit {
		err = ErrRateLimited
	}
	return err
}

// holds reports whether a suppression applies to messages of a category.
func (e *Email) holds(ctx context.Context, key subject, category Category) (bool, error) {
	scopes, err := e.store.scopesOf(ctx, key, e.host.DB.Now(ctx))
	return slices.ContainsFunc(scopes, func(s Scope) bool { return s.holdsBack(category) }), err
}

func sameRequest(first, second []byte) error {
	if !bytes.Equal(first, second) {
		return ErrIdempotency
	}
	return nil
}

func (e *Email) requestHash(m Message) ([]byte, error) {
	if m.IdempotencyKey == "" {
		return []byte{}, nil
	}
	return m.hash()
}

// keyOf returns the key of an address in suppressions and limits.
func (e *Email) keyOf(a address) string {
	if !e.cfg.FoldPlusTags {
		return a.key
	}
	local, domain, _ := strings.Cut(a.key, "@")
	if tag := strings.IndexByte(local, '+'); tag > 0 {
		local = local[:tag]
	}
	return local + "@" + domain
}

// messageContext binds a sealed message to its job.
func messageContext(jobID string) string { return "email/message/" + jobID }

// Cancel cancels a queued message; it joins the transaction of ctx. Refuses with
// email/job_not_found and, if it is no longer queued, email/job_not_retryable: the transaction
// remains usable after that.
func (e *Email) Cancel(ctx context.Context, jobID string) error {
	moved, err := e.store.moveJob(ctx, jobID, StateCancelled, StateQueued)
	if err != nil || moved {
		return err
	}
	if _, err := e.find(ctx, jobID); err != nil {
		return err
	}
	return ErrJobNotRetryable.Saying("Only a queued job can be cancelled.")
}

// Retry queues a failed or bounced message again: the same bytes with the same Message-ID, and a
// new count of attempts. Refuses with email/job_not_found, job_not_retryable and suppressed.
func (e *Email) Retry(ctx context.Context, jobID string) (job Job, err error) {
	err = e.host.DB.InTx(ctx, func(ctx context.Context) error {
		now := e.host.DB.Now(ctx)
		job, err = e.find(ctx, jobID)
		if err != nil {
			return err
		}
		if job.State != StateFailed && job.State != StateBounced {
			return ErrJobNotRetryable.Saying("The job is %s.", job.State)
		}
		key, err := e.subject(ctx, job.addressKey)
		if err != nil {
			return err
		}
		if held, err := e.holds(ctx, key, job.Category); err != nil {
			return err
		} else if held {
			return ErrSuppressed
		}
		requeued, err := e.store.requeue(ctx, jobID, job.State, now)
		if err != nil {
			return err
		}
		if !requeued {
			return ErrJobNotRetryable
		}
		if err := e.store.insertEvent(ctx, jobID, Event{Type: "retried"}, now); err != nil {
			return err
		}
		if _, err := e.host.Jobs.Enqueue(ctx, sendBinding, jobID); err != nil {
			return err
		}
		if err := e.peers.Audit.Record(ctx, audit.Event{
			Action: "email/job_retried", Subject: audit.Target{Type: "email_job", ID: jobID},
		}); err != nil {
			return err
		}
		job, err = e.find(ctx, jobID)
		return err
	})
	return job, err
}

func (e *Email) find(ctx context.Context, jobID string) (Job, error) {
	job, found, err := e.store.job(ctx, jobID)
	if err != nil {
		return Job{}, err
	}
	if !found {
		return Job{}, ErrJobNotFound
	}
	return job, nil
}

// ListJobs lists jobs, newest first. Refuses with email/invalid_address and, for a cursor of
// another list, kit/invalid_request.
func (e *Email) ListJobs(ctx context.Context, f JobFilter, page capability.Page) (capability.Items[Job], error) {
	page = page.Bounded()
	none := capability.Items[Job]{}
	if f.To != "" {
		to, err := parseAddress(f.To)
		if err != nil {
			return none, err
		}
		f.To = e.keyOf(to)
	}
	after := jobKey{created: math.MaxInt64}
	if _, err := page.After(&after.created, &after.id); err != nil {
		return none, err
	}
	rows, err := e.store.jobs(ctx, f, after, page.Limit+1)
	if err != nil {
		return none, err
	}
	return capability.Paged(page, rows, func(j Job) []any { return []any{j.CreatedAt.UnixMilli(), j.ID} }), nil
}

// Job returns a job with its headers and events, never with its content. Refuses with
// email/job_not_found.
func (e *Email) Job(ctx context.Context, jobID string) (detail JobDetail, err error) {
	err = e.host.DB.Read(ctx, func(ctx context.Context) error {
		detail = JobDetail{Headers: []Header{}}
		if detail.Job, err = e.find(ctx, jobID); err != nil {
			return err
		}
		sealed, found, err := e.store.message(ctx, jobID)
		if err != nil {
			return err
		}
		if found {
			if message, err := e.sealer.Open(messageContext(jobID), sealed); err == nil {
				detail.Headers = headersOf(message)
			}
		}
		detail.Events, err = e.store.events(ctx, jobID)
		return err
	})
	return detail, err
}

// Choices lists the values, for API documents.
func (State) Choices() []string {
	return []string{string(StateQueued), string(StateSending), string(StateSent), string(StateDelivered), string(StateBounced), string(StateComplained), string(StateSuppressed), string(StateFailed), string(StateCancelled)}
}
