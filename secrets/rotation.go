package secrets

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/kitbackend/kit/audit"
	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/internal/id"
	"github.com/kitbackend/kit/internal/seal"
	"github.com/kitbackend/kit/jobs"
)

const (
	rotateBinding  = "SECRETS_ROTATE"
	rotateAttempts = 10
	// settleFor is how long the previous version may still be in use on some node after the next
	// one is current.
	settleFor = 2 * CacheFor
	// takeOver is the delay after which a job continues a manual rotation whose request did not
	// finish it.
	takeOver = time.Minute
	// retryFailed is the delay after which a failed scheduled rotation is retried.
	retryFailed = time.Hour
)

// bySchedule is who started a scheduled rotation. Only a requested one replaces values that do not
// open: a schedule cannot know whether the master key is lost or just not configured.
const bySchedule = "schedule"

// The steps of a rotation, in order. A manual rotation has only create and promote.
const (
	stepCreate  = "create"
	stepSet     = "set"
	stepTest    = "test"
	stepPromote = "promote"
	stepFinish  = "finish"
)

// Rotate starts a rotation. For a manual rotation, change contains the new blocks: given blocks are
// replaced, nil blocks removed, all others kept; the rotation has usually succeeded when Rotate
// returns, otherwise a job continues it. For an automatic rotation, change is empty and a job runs
// it. It refuses with secrets/not_found, incomplete_block, invalid_value, read_only,
// rotation_in_progress, version_conflict and kit/invalid_request; then nothing was written. A node
// that rotates when it starts can take rotation_in_progress and version_conflict for the rotation of
// another node, and read the value of that. Stored values that do not open with the master keys
// are replaced by a change that gives or removes every block, or by the Rotator, which then gets no
// current blocks; incomplete_block refuses any other change.
func (s *Secrets) Rotate(ctx context.Context, name string, change Blocks) (Rotation, error) {
	h, err := s.Handle(name)
	if err != nil {
		return Rotation{}, err
	}
	by := "application"
	if capability.RequestInfoOf(ctx) != nil {
		by = "operator"
	}
	if h.secret.Rotator != nil {
		if len(change) > 0 {
			return Rotation{}, capability.ErrInvalidRequest.Saying("The secret %s makes its values itself: give no blocks.", name)
		}
		return s.start(ctx, h.secret, by)
	}
	if len(change) == 0 {
		return Rotation{}, capability.ErrInvalidRequest.Saying("Give the new blocks of the secret %s.", name)
	}
	return s.rotateManually(ctx, h.secret, by, change)
}

// start opens an automatic rotation.
func (s *Secrets) start(ctx context.Context, secret Secret, by string) (Rotation, error) {
	if s.provider.ReadOnly() {
		return Rotation{}, ErrReadOnly
	}
	current, err := s.provider.Read(ctx, secret.Name, 0)
	if errors.Is(err, seal.ErrNotOpened) && by != bySchedule {
		s.host.Log.WarnContext(ctx, "secrets: the stored values do not open: the rotator makes all blocks anew",
			slog.String("secret", secret.Name), slog.Int64("version", current.Version), slog.Any("error", err))
		err = nil
	}
	if err != nil {
		return Rotation{}, unavailable(err)
	}
	return s.open(ctx, secret, by, current.Version, nil, 0)
}

func (s *Secrets) rotateManually(ctx context.Context, secret Secret, by string, change Blocks) (Rotation, error) {
	if s.provider.ReadOnly() {
		return Rotation{}, ErrReadOnly
	}
	change = change.tidy()
	if err := secret.checkChange(change); err != nil {
		return Rotation{}, err
	}
	current, blocks, err := s.current(ctx, secret.Name)
	if errors.Is(err, seal.ErrNotOpened) {
		s.host.Log.WarnContext(ctx, "secrets: the stored values do not open: only all blocks anew replace them",
			slog.String("secret", secret.Name), slog.Int64("version", current.Version), slog.Any("error", err))
		err = secret.checkEvery(change)
	}
	if err != nil {
		return Rotation{}, unavailable(err)
	}
	next := blocks.merge(change)
	whole, _ := secret.complete(next)
	if err := secret.permit(whole); err != nil {
		return Rotation{}, err
	}
	if len(next.encode(strings.Repeat("0", id.Len)).Reveal()) > MaxPayload {
		return Rotation{}, capability.ErrInvalidRequest.Saying("A secret has at most %d bytes.", MaxPayload)
	}
	r, err := s.open(ctx, secret, by, current.Version, change, takeOver)
	if err != nil {
		return Rotation{}, err
	}
	if err := s.writePending(ctx, r, next); err != nil {
		return Rotation{}, errors.Join(unavailable(err), s.fail(ctx, r, unavailable(err)))
	}
	if err := s.advance(ctx, r, stepPromote, 0); err == nil {
		err = s.proceed(ctx, r.ID)
		if failure := new(failure); errors.As(err, &failure) {
			return Rotation{}, errors.Join(failure.refusal, s.fail(ctx, r, failure.refusal))
		}
		if err != nil {
			s.host.Log.WarnContext(ctx, "secrets: a job goes on with the rotation",
				slog.String("secret", secret.Name), slog.String("rotation", r.ID), slog.Any("error", err))
		}
	}
	r, _, err = s.store.rotation(ctx, r.ID)
	return r, err
}

// open inserts the row that excludes other rotations of the secret, the audit event, and the job.
func (s *Secrets) open(ctx context.Context, secret Secret, by string, from int64, change Blocks, wait time.Duration) (r Rotation, err error) {
	err = s.host.DB.InTx(ctx, func(ctx context.Context) error {
		now := s.host.DB.Now(ctx)
		r = Rotation{ID: id.New(now), Name: secret.Name, StartedBy: by, Status: StatusStarted,
			FromVersion: from, StartedAt: capability.Millis(now.UnixMilli()), step: stepCreate, steppedAt: now}
		opened, err := s.store.open(ctx, r)
		if err != nil {
			return err
		}
		if !opened {
			return ErrRotationInProgress
		}
		if _, err := s.host.Jobs.Enqueue(ctx, rotateBinding, r.ID, jobs.Key(r.ID), jobs.At(now.Add(wait))); err != nil {
			return err
		}
		return s.record(ctx, "secrets/rotation_started", r, "", change)
	})
	return r, err
}

// record records an event of a rotation in audit: names and numbers only.
func (s *Secrets) record(ctx context.Context, action string, r Rotation, code string, change Blocks) error {
	detail := map[string]any{"startedBy": r.StartedBy, "fromVersion": r.FromVersion}
	if r.ToVersion != 0 {
		detail["toVersion"] = r.ToVersion
	}
	if len(change) > 0 {
		given, removed := change.split()
		detail["given"], detail["removed"] = slices.Sorted(maps.Keys(given)), removed
	}
	e := audit.Event{Action: action, Subject: audit.Target{Type: "secret", ID: r.Name},
		Targets: []audit.Target{{Type: "rotation", ID: r.ID}}, Code: code, Detail: detail}
	if code != "" {
		e.Outcome = audit.OutcomeFailed
	}
	if capability.RequestInfoOf(ctx) == nil && r.StartedBy != "application" {
		e.Actor = audit.Actor{Kind: audit.ActorJob, ID: rotateBinding}
	}
	return s.audit.Record(ctx, e)
}

// failure ends a rotation, because a retry cannot succeed.
type failure struct{ refusal *capability.Error }

func (f *failure) Error() string { return f.refusal.Error() }

// runRotation is the job of one rotation.
func (s *Secrets) runRotation(ctx context.Context, job jobs.Job) error {
	rotation := job.Key
	err := s.proceed(ctx, rotation)
	ended := new(failure)
	switch {
	case err == nil:
		return nil
	case errors.As(err, &ended):
	case job.Attempt >= rotateAttempts && !isWait(err):
		ended = &failure{capability.AsError(unavailable(err))}
	default:
		return err
	}
	r, found, lookup := s.store.rotation(ctx, rotation)
	if lookup != nil || !found {
		return lookup
	}
	return s.fail(ctx, r, ended.refusal)
}

// waiting is the error of a step that is not due yet.
type waiting struct{ error }

func isWait(err error) bool { return errors.As(err, new(waiting)) }

// Unwrap makes the snooze visible to jobs.
func (w waiting) Unwrap() error { return w.error }

// proceed runs the remaining steps of a rotation.
func (s *Secrets) proceed(ctx context.Context, rotation string) error {
	for {
		r, found, err := s.store.rotation(ctx, rotation)
		if err != nil || !found || r.Status != StatusStarted {
			return err
		}
		h, err := s.Handle(r.Name)
		if err != nil {
			return &failure{ErrNotFound} // no longer declared
		}
		if err := s.step(ctx, h.secret, r); err != nil {
			return err
		}
	}
}

func (s *Secrets) step(ctx context.Context, secret Secret, r Rotation) error {
	switch r.step {
	case stepCreate:
		return s.create(ctx, secret, r)
	case stepSet:
		return s.set(ctx, secret, r)
	case stepTest:
		return s.test(ctx, secret, r)
	case stepPromote:
		return s.promote(ctx, secret, r)
	default:
		return s.finish(ctx, secret, r)
	}
}

// create stores the next version as pending.
func (s *Secrets) create(ctx context.Context, secret Secret, r Rotation) error {
	_, found, err := s.pending(ctx, r)
	if err != nil {
		return err
	}
	if secret.Rotator == nil {
		if !found {
			return &failure{capability.ErrUnavailable.Because(errInterrupted)}
		}
		return s.advance(ctx, r, stepPromote, 0)
	}
	if !found {
		current, err := s.before(ctx, r)
		if err != nil {
			return err
		}
		var next Blocks
		if err := guarded(stepCreate, func() (err error) { next, err = secret.Rotator.Create(ctx, current); return err }); err != nil {
			return err
		}
		next = next.tidy()
		if err := secret.check(next); err != nil {
			return &failure{capability.AsError(err)}
		}
		if err := secret.permit(next); err != nil {
			return &failure{capability.AsError(err)}
		}
		if err := s.writePending(ctx, r, next); err != nil {
			return err
		}
	}
	return s.advance(ctx, r, stepSet, 0)
}

func (s *Secrets) set(ctx context.Context, secret Secret, r Rotation) error {
	current, err := s.before(ctx, r)
	if err != nil {
		return err
	}
	next, err := s.mustPending(ctx, r)
	if err != nil {
		return err
	}
	if err := guarded(stepSet, func() error { return secret.Rotator.Set(ctx, current, next) }); err != nil {
		return err
	}
	return s.advance(ctx, r, stepTest, 0)
}

func (s *Secrets) test(ctx context.Context, secret Secret, r Rotation) error {
	next, err := s.mustPending(ctx, r)
	if err != nil {
		return err
	}
	if err := guarded(stepTest, func() error { return secret.Rotator.Test(ctx, next) }); err != nil {
		return err
	}
	return s.advance(ctx, r, stepPromote, 0)
}

// promote makes the next version current. If it is repeated after a crash, or another run of the
// rotation was faster, it finds that the version is already current.
func (s *Secrets) promote(ctx context.Context, secret Secret, r Rotation) error {
	next, err := s.mustPending(ctx, r)
	if err != nil {
		return err
	}
	newest, current, err := s.replaced(ctx, secret.Name)
	if err != nil {
		return err
	}
	version, written := newest.Version, false
	if version == r.FromVersion {
		version, err = s.provider.Write(ctx, secret.Name, r.FromVersion, next.encode(""))
		if written = err == nil; errors.Is(err, ErrVersionConflict) { // another run of the rotation may have been faster
			newest, current, err = s.replaced(ctx, secret.Name)
			version = newest.Version
		}
		if err != nil {
			return err
		}
	}
	if !written && (version != r.FromVersion+1 || !current.equal(next)) {
		return &failure{ErrVersionConflict}
	}
	s.changed(ctx, secret.Name)
	if secret.Rotator == nil {
		return s.succeed(ctx, r, version)
	}
	return s.advance(ctx, r, stepFinish, version)
}

// finish calls the rotator's Finish, which may disable the previous version.
func (s *Secrets) finish(ctx context.Context, secret Secret, r Rotation) error {
	if wait := settleFor - s.host.DB.Now(ctx).Sub(r.steppedAt); wait > 0 && wait <= settleFor {
		return waiting{jobs.Snooze(wait)}
	}
	_, current, err := s.current(ctx, secret.Name)
	if err != nil {
		return err
	}
	previous := Blocks(nil)
	if r.FromVersion > 0 {
		stored, err := s.provider.Read(ctx, secret.Name, r.FromVersion)
		if err != nil && !errors.Is(err, seal.ErrNotOpened) {
			return err
		}
		if !stored.Payload.Empty() {
			if previous, _, err = decode(stored.Payload); err != nil {
				return err
			}
		}
	}
	if err := guarded(stepFinish, func() error { return secret.Rotator.Finish(ctx, previous, current) }); err != nil {
		return err
	}
	return s.succeed(ctx, r, r.ToVersion)
}

// guarded runs a step of a rotator and discards its error or panic, which may quote the secret.
func guarded(step string, run func() error) (err error) {
	defer func() {
		if recover() != nil {
			err = ErrStepFailed.Because(errors.New("secrets: the rotator's " + step + " panicked"))
		}
	}()
	if run() != nil {
		return ErrStepFailed.Because(errors.New("secrets: the rotator's " + step + " failed"))
	}
	return nil
}

func (s *Secrets) advance(ctx context.Context, r Rotation, next string, toVersion int64) error {
	return s.store.advance(ctx, r, next, toVersion, s.host.DB.Now(ctx))
}

func (s *Secrets) succeed(ctx context.Context, r Rotation, version int64) error {
	r.ToVersion = version
	return s.end(ctx, r, StatusSucceeded, "")
}

func (s *Secrets) fail(ctx context.Context, r Rotation, refusal error) error {
	return s.end(ctx, r, StatusFailed, cmp.Or(capability.AsError(refusal).Code, "kit/internal"))
}

// end ends a rotation, records it in audit, and deletes its pending version.
func (s *Secrets) end(ctx context.Context, r Rotation, status Status, code string) error {
	ctx = context.WithoutCancel(ctx)
	err := s.host.DB.InTx(ctx, func(ctx context.Context) error {
		ended, err := s.store.end(ctx, r.ID, status, code, r.ToVersion, s.host.DB.Now(ctx))
		if err != nil || !ended {
			return err
		}
		return s.record(ctx, "secrets/rotation_"+string(status), r, code, nil)
	})
	if err != nil {
		return err
	}
	if err := s.provider.Delete(ctx, pendingName(r)); err != nil {
		s.host.Log.WarnContext(ctx, "secrets: the pending version of a rotation is left behind",
			slog.String("secret", r.Name), slog.Any("error", err))
	}
	return nil
}

// current returns the newest version with its blocks as stored.
func (s *Secrets) current(ctx context.Context, name string) (Stored, Blocks, error) {
	stored, err := s.provider.Read(ctx, name, 0)
	if err != nil || stored.Payload.Empty() {
		return stored, nil, err
	}
	blocks, _, err := decode(stored.Payload)
	return stored, blocks, err
}

// replaced is current for a version whose blocks are not needed, because the next one is complete:
// without an error, and without blocks, for one that does not open with the master keys.
func (s *Secrets) replaced(ctx context.Context, name string) (Stored, Blocks, error) {
	stored, blocks, err := s.current(ctx, name)
	if errors.Is(err, seal.ErrNotOpened) {
		err = nil
	}
	return stored, blocks, err
}

// before returns the blocks that an automatic rotation replaces: none if they do not open with the
// master keys and the rotation was requested.
func (s *Secrets) before(ctx context.Context, r Rotation) (Blocks, error) {
	read := s.replaced
	if r.StartedBy == bySchedule {
		read = s.current
	}
	_, blocks, err := read(ctx, r.Name)
	return blocks, err
}

// pending returns the pending version of a rotation.
func (s *Secrets) pending(ctx context.Context, r Rotation) (blocks Blocks, found bool, err error) {
	stored, err := s.provider.Read(ctx, pendingName(r), 0)
	if err != nil || stored.Payload.Empty() {
		return nil, false, err
	}
	blocks, rotation, err := decode(stored.Payload)
	return blocks, err == nil && rotation == r.ID, err
}

func (s *Secrets) mustPending(ctx context.Context, r Rotation) (Blocks, error) {
	blocks, found, err := s.pending(ctx, r)
	if err == nil && !found {
		err = &failure{ErrVersionConflict.Because(errors.New("secrets: the pending version is gone"))}
	}
	return blocks, err
}

// writePending stores the pending version of a rotation under a name of its own, so that no other
// rotation reads, replaces or deletes it.
func (s *Secrets) writePending(ctx context.Context, r Rotation, next Blocks) error {
	last, err := s.provider.Read(ctx, pendingName(r), 0)
	if err != nil {
		return err
	}
	_, err = s.provider.Write(ctx, pendingName(r), last.Version, next.encode(r.ID))
	return err
}

// schedule starts the automatic rotations that are due, and ensures that every open rotation has a
// job. It leaves a secret whose values do not open with the master keys as it is, and logs that once.
func (s *Secrets) schedule(ctx context.Context) error {
	open, err := s.store.openRotations(ctx)
	if err != nil {
		return err
	}
	for _, r := range open {
		if _, err := s.host.Jobs.Enqueue(ctx, rotateBinding, r.ID, jobs.Key(r.ID)); err != nil {
			return err
		}
	}
	var failures []error
	for _, secret := range s.declared() {
		if secret.Every == 0 || s.provider.ReadOnly() {
			continue
		}
		due, err := s.nextDue(ctx, secret)
		if err == nil && !due.After(s.host.DB.Now(ctx)) {
			_, err = s.start(ctx, secret, bySchedule)
		}
		switch {
		case errors.Is(err, seal.ErrNotOpened):
			if _, said := s.unopened.LoadOrStore(secret.Name, true); !said {
				s.host.Log.ErrorContext(ctx, "secrets: the stored values do not open, so the schedule does not rotate them: "+
					"put the key that they were sealed with into "+seal.Variable+", or request a rotation, which makes all blocks anew",
					slog.String("secret", secret.Name), slog.Any("error", err))
			}
		case err == nil, errors.Is(err, ErrRotationInProgress):
			s.unopened.Delete(secret.Name)
		default:
			failures = append(failures, err)
		}
	}
	return errors.Join(failures...)
}

// nextDue returns the time of the next scheduled rotation of a secret.
func (s *Secrets) nextDue(ctx context.Context, secret Secret) (time.Time, error) {
	stored, err := s.provider.Read(ctx, secret.Name, 0)
	if err != nil {
		return time.Time{}, err
	}
	last, err := s.store.rotations(ctx, secret.Name, "", 1)
	if err != nil {
		return time.Time{}, err
	}
	return secret.due(stored, last), nil
}

// due returns the time of the next rotation of a secret. If the provider does not know when the
// version was written, it is derived from the last rotation.
func (s Secret) due(stored Stored, last []Rotation) time.Time {
	var due time.Time
	switch {
	case stored.Payload.Empty():
	case !stored.CreatedAt.IsZero():
		due = stored.CreatedAt.Add(s.Every)
	case len(last) > 0 && last[0].Status == StatusSucceeded:
		due = last[0].FinishedAt.Add(s.Every)
	}
	if len(last) > 0 && last[0].Status == StatusFailed {
		if retry := last[0].FinishedAt.Add(min(retryFailed, s.Every)); retry.After(due) {
			due = retry
		}
	}
	return due
}

// Choices lists the values, for documents.
func (Status) Choices() []string {
	return []string{string(StatusStarted), string(StatusSucceeded), string(StatusFailed)}
}
