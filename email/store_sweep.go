package email

import (
	"context"
	"time"
)

// sweepMessages only reads the oldest rows: IDs sort by time.
func (s store) sweepMessages(ctx context.Context, before time.Time, limit int) (int64, error) {
	return s.db.Exec(ctx, `DELETE FROM email_message WHERE job_id IN (
		SELECT job_id FROM (SELECT job_id, created_at FROM email_message ORDER BY job_id LIMIT $2) AS oldest WHERE created_at < $1)`,
		before.UnixMilli(), limit)
}

// sweepKeys removes old idempotency keys, so that they can be used again.
func (s store) sweepKeys(ctx context.Context, before time.Time, limit int) (int64, error) {
	return s.db.Exec(ctx, `UPDATE email_job SET idempotency_key = '' WHERE id IN (
		SELECT id FROM email_job WHERE idempotency_key <> '' AND created_at < $1 LIMIT $2)`, before.UnixMilli(), limit)
}

func (s store) sweepJobs(ctx context.Context, before time.Time, limit int) (n int64, err error) {
	err = s.db.InTx(ctx, func(ctx context.Context) error {
		const old = ` IN (SELECT id FROM (SELECT id, created_at FROM email_job ORDER BY id LIMIT $2) AS oldest WHERE created_at < $1)`
		for _, table := range belongings {
			if _, err := s.db.Exec(ctx, `DELETE FROM `+table+` WHERE job_id`+old, before.UnixMilli(), limit); err != nil {
				return err
			}
		}
		n, err = s.db.Exec(ctx, `DELETE FROM email_job WHERE id`+old, before.UnixMilli(), limit)
		return err
	})
	return n, err
}

func (s store) sweepSuppressions(ctx context.Context, before time.Time, limit int) (int64, error) {
	return s.db.Exec(ctx, `DELETE FROM email_suppression WHERE (address_key, scope, reason) IN (
		SELECT address_key, scope, reason FROM email_suppression WHERE expires_at > 0 AND expires_at <= $1 LIMIT $2)`, before.UnixMilli(), limit)
}
