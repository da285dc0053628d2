package audit

import (
	"context"

	"github.com/kitbackend/kit/capability"
)

// ofPerson are the events that a user caused and those about the user, whatever
// the type of the subject: ids are not used twice.
func ofPerson(userID string) []Filter {
	return []Filter{{ActorID: userID}, {Subject: Target{ID: userID}}}
}

// exportPerson emits the events of a user, each once, oldest first in each of the
// two groups.
func (a *Audit) exportPerson(ctx context.Context, person capability.Person, emit capability.Emit) error {
	if person.ID == "" {
		return nil
	}
	for i, filter := range ofPerson(person.ID) {
		for after := ""; ; {
			page, err := a.store.export(ctx, filter, after, exportPage)
			if err != nil {
				return err
			}
			for _, e := range page {
				after = e.ID
				if i > 0 && e.Actor.ID == person.ID {
					continue // emitted with those the user caused
				}
				if err := e.parseTargets(); err != nil {
					return err
				}
				if err := emit("audit_event", e.Entry); err != nil {
					return err
				}
			}
			if len(page) < exportPage {
				break
			}
		}
	}
	return nil
}

// erasePerson removes addresses and user agents of the events of a user. That it
// happened is an event, without the origin of the request that asked for it,
// which can be the user's.
func (a *Audit) erasePerson(ctx context.Context, person capability.Person) (capability.Erasure, error) {
	erased := capability.Erasure{Kept: []capability.Kept{{
		What: "audit events under the user id, without address and user agent",
		Why:  "the trail is append-only; the id is a pseudonym that stands nowhere else",
	}}}
	if person.ID == "" {
		return erased, nil
	}
	for _, filter := range ofPerson(person.ID) {
		n, err := a.eraseChunks(ctx, filter)
		if erased.Removed += n; err != nil {
			return erased, err
		}
	}
	if erased.Removed == 0 {
		return erased, nil // again, after a run that was killed: it is on the trail
	}
	return erased, a.recordFrom(ctx, Event{
		Action: "audit/personal_data_erased", Subject: Target{Type: "user", ID: person.ID},
		Detail: map[string]int64{"events": erased.Removed},
	}, false)
}
