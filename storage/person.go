package storage

import (
	"context"

	"github.com/kitbackend/kit/capability"
)

// eraseAtOnce bounds the objects that one transaction of an erasure removes.
const eraseAtOnce = 200

// exported is the form of an object in a user's export.
type exported struct {
	Object
	Namespace string  `json:"namespace,omitempty"`
	Shares    []Share `json:"shares"`
}

// export emits a user's usage and every object with its shares, including objects of other
// capabilities.
func (s *Storage) export(ctx context.Context, person capability.Person, emit capability.Emit) error {
	u, err := s.store.usage(ctx, person.ID)
	if err != nil {
		return err
	}
	if u != (Usage{}) {
		if err := emit("usage", u); err != nil {
			return err
		}
	}
	for after := ""; ; {
		objects, err := s.store.readOwnedBy(ctx, person.ID, after, eraseAtOnce)
		if err != nil || len(objects) == 0 {
			return err
		}
		for _, o := range objects {
			after = o.ID
			if o.State == stateAborted {
				continue
			}
			shares, err := s.store.shares(ctx, o.ID, s.host.Now().UnixMilli())
			if err != nil {
				return err
			}
			if err := emit("object", exported{o, o.Namespace, shares}); err != nil {
				return err
			}
		}
	}
}

// erase removes every object of a user, in all namespaces, and its bytes.
func (s *Storage) erase(ctx context.Context, person capability.Person) (erasure capability.Erasure, err error) {
	if person.ID == "" { // the owner of the application's own objects
		return erasure, nil
	}
	for n := 1; n > 0; {
		err := s.db.InTx(ctx, func(ctx context.Context) error {
			if err := s.store.lockUsage(ctx, person.ID); err != nil {
				return err
			}
			objects, err := s.store.ownedBy(ctx, person.ID, "", eraseAtOnce)
			if err != nil {
				return err
			}
			for _, o := range objects {
				if err := s.eraseOne(ctx, o); err != nil {
					return err
				}
			}
			n = len(objects)
			return s.store.removeUsage(ctx, person.ID)
		})
		if err != nil {
			return erasure, err
		}
		erasure.Removed += int64(n)
	}
	return erasure, nil
}

func (s *Storage) eraseOne(ctx context.Context, o Object) error {
	if o.State == StateReady {
		return s.drop(ctx, o)
	}
	if err := s.store.remove(ctx, o.ID); err != nil || o.State == stateAborted {
		return err
	}
	return s.release(ctx, o)
}
