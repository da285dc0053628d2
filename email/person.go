package email

import (
	"context"
	"slices"

	"github.com/kitbackend/kit/capability"
)

// eraseChunk bounds the jobs that one transaction of an erasure removes.
const eraseChunk = 200

// personRecord is a job in an export, with its headers and events. Contents are omitted: they
// contain links that act for the person.
type personRecord struct {
	JobDetail
	Quota string `json:"quota,omitempty"`
}

// export emits the jobs that have the user's ID or that, without one, went to one of the addresses,
// and the suppressions of the addresses.
func (e *Email) export(ctx context.Context, person capability.Person, emit capability.Emit) error {
	keys := e.keysOf(person)
	for after := ""; ; {
		jobs, err := e.store.jobsOf(ctx, person.ID, keys, after, eraseChunk)
		if err != nil {
			return err
		}
		for _, jobID := range jobs {
			detail, err := e.Job(ctx, jobID)
			if ErrJobNotFound.Is(capability.AsError(err)) {
				continue // removed by retention in the meantime
			}
			if err != nil {
				return err
			}
			if err := emit("email_job", personRecord{JobDetail: detail}); err != nil {
				return err
			}
			after = jobID
		}
		if len(jobs) < eraseChunk {
			break
		}
	}
	for _, address := range keys {
		key, err := e.subject(ctx, address)
		if err != nil {
			return err
		}
		held, err := e.store.suppressionsOf(ctx, key, e.host.DB.Now(ctx))
		if err != nil {
			return err
		}
		for _, s := range held {
			s.Address = address
			if err := emit("email_suppression", s); err != nil {
				return err
			}
		}
	}
	return nil
}

// erase removes the jobs and stored mail of a person and replaces the addresses in suppressions by
// keyed hashes, so that these still apply. Queued mail to the person is not sent.
func (e *Email) erase(ctx context.Context, person capability.Person) (erased capability.Erasure, err error) {
	keys := e.keysOf(person)
	written, err := e.store.addressesOf(ctx, person.ID)
	if err != nil {
		return erased, err
	}
	erased.Removed, err = e.removeAll(ctx, slices.Concat(keys, written), func(ctx context.Context) ([]string, error) {
		return e.store.jobsOf(ctx, person.ID, keys, "", eraseChunk)
	})
	if err != nil {
		return erased, err
	}
	erased.Kept = []capability.Kept{{
		What: "suppressions, under a keyed hash of the address",
		Why:  "mail that was refused or cannot be delivered must not be sent again",
	}}
	return erased, nil
}

// Forget removes the messages of a quota to an address that have the given user ID or none,
// including queued ones, and replaces the address in suppressions by keyed hashes, so that these
// still apply: a capability that sent mail to an address before it knew the user calls Forget when
// it erases that user. It refuses with email/invalid_address.
func (e *Email) Forget(ctx context.Context, userID, text, quota string) (removed int64, err error) {
	a, err := parseAddress(text)
	if err != nil {
		return 0, err
	}
	key := e.keyOf(a)
	return e.removeAll(ctx, []string{key}, func(ctx context.Context) ([]string, error) {
		return e.store.jobsTo(ctx, userID, key, quota, eraseChunk)
	})
}

// removeAll removes jobs until next returns less than a chunk of them, and replaces addresses in
// suppressions by keyed hashes: before, because a killed run does not find the addresses again, and
// after, for reports about the jobs in the meantime.
func (e *Email) removeAll(ctx context.Context, addressKeys []string, next func(context.Context) ([]string, error)) (removed int64, err error) {
	if removed, err = e.hashSuppressions(ctx, addressKeys); err != nil {
		return removed, err
	}
	for {
		jobs, err := next(ctx)
		if err != nil {
			return removed, err
		}
		n, err := e.store.removeJobs(ctx, jobs)
		if removed += n; err != nil {
			return removed, err
		}
		if len(jobs) < eraseChunk {
			break
		}
	}
	n, err := e.hashSuppressions(ctx, addressKeys)
	return removed + n, err
}

func (e *Email) hashSuppressions(ctx context.Context, addressKeys []string) (hashed int64, err error) {
	for _, addressKey := range addressKeys {
		key, err := e.subject(ctx, addressKey)
		if err != nil {
			return hashed, err
		}
		n, err := e.store.forgetAddress(ctx, key)
		if hashed += n; err != nil {
			return hashed, err
		}
	}
	return hashed, nil
}

// keysOf returns the keys of the person's addresses.
func (e *Email) keysOf(person capability.Person) (keys []string) {
	for _, text := range person.Emails {
		a, err := parseAddress(text)
		if err != nil {
			continue // nothing was ever sent there
		}
		keys = append(keys, e.keyOf(a))
	}
	return keys
}
