package email

import (
	"context"
	"slices"

	"github.com/kitbackend/kit/capability"
)

// eraseChunk bounds the jobs that one transaction of an erasure removes.
const eraseChunk = 200

// personRecord is a job in an export, with what is known of it. Contents are
// left out: they carry links that act for the person.
type personRecord struct {
	JobDetail
	Quota string `json:"quota,omitempty"`
}

// export emits the jobs that name the user or went to one of the addresses, and
// the suppressions of the addresses.
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
				continue // retention was faster
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

// erase removes the jobs and kept mail of a person and leaves the keyed hashes
// of the addresses in suppressions, so that these still hold. Mail that waits to
// go out to the person does not go out.
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

// Forget removes the messages of a quota to an address that name the user or
// nobody, those that wait too, and leaves keyed hashes of the address in
// suppressions, so that these still hold: a capability that mailed an address
// before it knew whose it is calls it when it erases that person. It refuses with
// email/invalid_address.
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

// removeAll removes jobs until next lists less than a chunk of them, and leaves the
// keyed hashes of addresses in suppressions: before, as a killed run does not find
// the addresses again, and after, for what was reported of the jobs meanwhile.
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

// keysOf returns what the person's addresses are known by.
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
