package audit

import (
	"context"

	"github.com/kitbackend/kit/capability"
)

// ofPerson returns the filters of the events that a user caused and of those about the user,
// whatever the type of the subject, because ids are unique.
func ofPerson(userID string) []Filter {
	return []Filter{{ActorID: userID}, {Subject: Target{ID: userID}}}
}

// exportPerson emits the events of a user, each once, first those the user caused and then the
// others, oldest first. The origin of another actor's request is left out; that of an anonymous
// caller is included, because a caller that failed to sign in may have been the user.
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
					continue // already emitted with those that the user caused
				}
				if i > 0 && e.Actor.Kind != ActorAnonymous {
					e.IP, e.UserAgent = "", ""
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

// erasePerson removes the addresses and user agents of the events of a user. The erasure is
// recorded as an event without the origin of its request, which may be the user's.
func (a *Audit) erasePerson(ctx context.Context, person capability.Person) (capability.Erasure, error) {
	erased := capability.Erasure{Kept: []capability.Kept{{
		What: "audit events under the user id, without address and user agent",
		Why:  "the trail is append-only; the id is a pseudonym that stands nowhere else",
	}}}
	if person.ID == "" {
		return erased, nil
	}
	for {
		n, err := a.erasePart(ctx, person.ID)
		if err != nil {
			return erased, err
		}
		if erased.Removed += n; n < eraseChunk {
			return erased, nil
		}
	}
}

// erasePart erases one chunk together with the event that records it, so that a killed process
// leaves no unrecorded erasure.
func (a *Audit) erasePart(ctx context.Context, userID string) (erased int64, err error) {
	err = a.host.DB.InTx(ctx, func(ctx context.Context) error {
		erased = 0
		for _, filter := range ofPerson(userID) {
			n, err := a.store.erase(ctx, filter, eraseChunk-int(erased))
			if erased += n; err != nil {
				return err
			}
		}
		if erased == 0 {
			return nil
		}
		_, err := a.record(ctx, Event{Action: "audit/personal_data_erased", Subject: Target{Type: "user", ID: userID},
			Detail: map[string]int64{"events": erased}}, false)
		return err
	})
	return erased, err
}
