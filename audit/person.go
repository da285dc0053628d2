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
// two groups. Where somebody else acted from is theirs; an anonymous caller that failed
// to sign in may have been the user.
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

// erasePart erases a chunk, with the event that tells of it: a process that is
// killed between the two would leave nothing to tell of.
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
