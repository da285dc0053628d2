package testers

import (
	"context"

	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/email"
)

const personChunk = 50

func keysOf(person capability.Person) (keys []string) {
	for _, address := range person.Emails {
		if key, err := email.Canonical(address); err == nil {
			keys = append(keys, key)
		}
	}
	return keys
}

// Export emits a person's memberships, their events, and the support threads that the person wrote
// to.
func (t *Testers) Export(ctx context.Context, person capability.Person, emit capability.Emit) error {
	after := ""
	for {
		members, err := t.store.membersOfPerson(ctx, person.ID, keysOf(person), after, personChunk)
		if err != nil || len(members) == 0 {
			return err
		}
		if members, err = t.described(ctx, members); err != nil {
			return err
		}
		for _, m := range members {
			if err := emit("tester", m); err != nil {
				return err
			}
			if err := t.exportEvents(ctx, m.ID, emit); err != nil {
				return err
			}
			if err := t.exportFeedback(ctx, m.ID, emit); err != nil {
				return err
			}
			after = m.ID
		}
	}
}

func (t *Testers) exportEvents(ctx context.Context, memberID string, emit capability.Emit) error {
	after := ""
	for {
		events, err := t.store.eventsOf(ctx, memberID, after, personChunk)
		if err != nil || len(events) == 0 {
			return err
		}
		for _, e := range events {
			if err := emit("tester_event", e); err != nil {
				return err
			}
			after = e.ID
		}
	}
}

func (t *Testers) exportFeedback(ctx context.Context, memberID string, emit capability.Emit) error {
	below := ""
	for {
		threads, err := t.store.feedbackOf(ctx, memberID, below, personChunk)
		if err != nil || len(threads) == 0 {
			return err
		}
		for _, f := range threads {
			if err := emit("tester_feedback", f); err != nil {
				return err
			}
			below = f.ThreadID
		}
	}
}

// Erase removes a person's memberships, their events and the mails to them, also queued mails. A
// withdrawal is kept as a keyed hash of the address.
func (t *Testers) Erase(ctx context.Context, person capability.Person) (erasure capability.Erasure, err error) {
	withdrawn := false
	for {
		members, err := t.store.membersOfPerson(ctx, person.ID, keysOf(person), "", personChunk)
		if err != nil {
			return erasure, err
		}
		if len(members) == 0 {
			break
		}
		for _, m := range members {
			withdrawn = withdrawn || m.State == StateWithdrawn
			n, err := t.eraseMember(ctx, person.ID, m)
			if erasure.Removed += n; err != nil {
				return erasure, err
			}
		}
	}
	if withdrawn {
		erasure.Kept = append(erasure.Kept, capability.Kept{What: "that the address withdrew, as a keyed hash", Why: "so that it is never mailed again"})
	}
	return erasure, nil
}

// eraseMember removes a member and the mails to the member, also those from before the user was
// linked. The lock of the row excludes further mails.
func (t *Testers) eraseMember(ctx context.Context, userID string, m Member) (n int64, err error) {
	err = t.db.InTx(ctx, func(ctx context.Context) error {
		if _, _, err := t.store.lockMember(ctx, m.ID); err != nil {
			return err
		}
		mails, err := t.peers.Email.Forget(ctx, userID, m.Email, Name)
		if err != nil {
			return err
		}
		rows, err := t.store.deleteMember(ctx, m.ID)
		n = mails + rows
		return err
	})
	return n, err
}
