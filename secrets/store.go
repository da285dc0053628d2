package secrets

import (
	"context"
	"time"

	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/internal/optional"
)

type store struct{ db *database.DB }

const rotationColumns = `SELECT id, name, started_by, step, status, code, from_version, to_version,
	started_at, stepped_at, finished_at FROM secrets_rotation `

func scanRotation(row database.Scanner) (r Rotation, err error) {
	var startedAt, steppedAt, finishedAt int64
	err = row.Scan(&r.ID, &r.Name, &r.StartedBy, &r.step, &r.Status, &r.Code, &r.FromVersion, &r.ToVersion,
		&startedAt, &steppedAt, &finishedAt)
	r.StartedAt, r.steppedAt = capability.Millis(startedAt), time.UnixMilli(steppedAt)
	r.FinishedAt = optional.Time(finishedAt)
	return r, err
}

// open inserts a rotation unless the secret has an open one.
func (s store) open(ctx context.Context, r Rotation) (opened bool, err error) {
	n, err := s.db.Exec(ctx, `INSERT INTO secrets_rotation (id, name, started_by, step, status, code, from_version, to_version,
			started_at, stepped_at, finished_at)
		VALUES ($1, $2, $3, $4, 'started', '', $5, 0, $6, $6, 0)
		ON CONFLICT (name) WHERE status = 'started' DO NOTHING`,
		r.ID, r.Name, r.StartedBy, r.step, r.FromVersion, r.StartedAt.UnixMilli())
	return n == 1, err
}

func (s store) rotation(ctx context.Context, id string) (Rotation, bool, error) {
	return database.Get(ctx, s.db, scanRotation, rotationColumns+`WHERE id = $1`, id)
}

// advance moves an open rotation from its step to the next; toVersion is the version it has made
// current, 0 before.
func (s store) advance(ctx context.Context, r Rotation, next string, toVersion int64, now time.Time) error {
	_, err := s.db.Exec(ctx, `UPDATE secrets_rotation SET step = $3, to_version = $4, stepped_at = $5
		WHERE id = $1 AND step = $2 AND status = 'started'`, r.ID, r.step, next, toVersion, now.UnixMilli())
	return err
}

// end closes an open rotation.
func (s store) end(ctx context.Context, id string, status Status, code string, toVersion int64, now time.Time) (ended bool, err error) {
	n, err := s.db.Exec(ctx, `UPDATE secrets_rotation SET status = $2, code = $3, to_version = $4, finished_at = $5
		WHERE id = $1 AND status = 'started'`, id, string(status), code, toVersion, now.UnixMilli())
	return n == 1, err
}

// openRotations returns the open rotations: at most one for each secret.
func (s store) openRotations(ctx context.Context) ([]Rotation, error) {
	return database.All(ctx, s.db, scanRotation, rotationColumns+`WHERE status = 'started' ORDER BY id`)
}

func (s store) countOpen(ctx context.Context) (n int64, err error) {
	err = s.db.QueryRow(ctx, `SELECT count(*) FROM secrets_rotation WHERE status = 'started'`).Scan(&n)
	return n, err
}

// rotations lists the rotations of a secret, newest first.
func (s store) rotations(ctx context.Context, name, before string, limit int) ([]Rotation, error) {
	if before == "" {
		return database.All(ctx, s.db, scanRotation, rotationColumns+`WHERE name = $1 ORDER BY id DESC LIMIT $2`, name, limit)
	}
	return database.All(ctx, s.db, scanRotation, rotationColumns+`WHERE name = $1 AND id < $2 ORDER BY id DESC LIMIT $3`, name, before, limit)
}

// endedSince returns the rotations that ended after an instant, newest first.
func (s store) endedSince(ctx context.Context, since time.Time, limit int) ([]Rotation, error) {
	return database.All(ctx, s.db, scanRotation, rotationColumns+`WHERE finished_at > $1 AND finished_at > 0
		ORDER BY finished_at DESC LIMIT $2`, since.UnixMilli(), limit)
}

// sweepRotations deletes up to limit rotations that ended before an instant, except for the newest
// of each secret.
func (s store) sweepRotations(ctx context.Context, before time.Time, limit int) (deleted int64, err error) {
	return s.db.Exec(ctx, `DELETE FROM secrets_rotation WHERE id IN (
		SELECT r.id FROM secrets_rotation r WHERE r.finished_at > 0 AND r.finished_at < $1
			AND EXISTS (SELECT 1 FROM secrets_rotation n WHERE n.name = r.name AND n.id > r.id)
		ORDER BY r.finished_at LIMIT $2)`, before.UnixMilli(), limit)
}
