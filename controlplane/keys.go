package controlplane

import (
	"context"
	"crypto/ed25519"
	"time"

	"github.com/kitbackend/kit/audit"
	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/controlplane/internal/wire"
	"github.com/kitbackend/kit/internal/jose"
)

const (
	// maxLive is the maximum number of keys that verify at the same time.
	maxLive = 16
	// overdueAfter is how long a superseded key may exist before it is marked overdue.
	overdueAfter = 30 * 24 * time.Hour
)

// aged sets the fields that depend on the current time.
func (k Key) aged(now time.Time) Key {
	k.AgeSeconds = int64(max(now.Sub(k.CreatedAt.Time), 0) / time.Second)
	if k.Status == StatusSuperseded {
		window := max(now.Sub(k.SupersededAt.Time), 0)
		k.SupersededSeconds, k.Overdue = new(int64(window/time.Second)), window > overdueAfter
	}
	return k
}

// Keys returns the live keys of the connection, oldest first: at most 16, none before there is a
// connection.
func (cp *ControlPlane) Keys(ctx context.Context) ([]Key, error) {
	reg, err := cp.register.current(ctx)
	if err != nil {
		return nil, err
	}
	now, keys := cp.host.Now(), make([]Key, len(reg.live))
	for i, k := range reg.live {
		keys[i] = k.aged(now)
	}
	return keys, nil
}

// registerKey makes the new key the active one and supersedes the signer's. Of concurrent calls one
// succeeds. It refuses with controlplane/key_conflict if the signer is not the active key, the
// connection has or had the new key, or 16 keys are live; with kit/invalid_request for an invalid
// key or proof.
func (cp *ControlPlane) registerKey(ctx context.Context, caller capability.Caller, in Registration) (Key, error) {
	public, err := in.PublicKey.Public()
	if err != nil {
		return Key{}, capability.ErrInvalidRequest.Saying("publicKey: %v.", err)
	}
	reg, err := cp.connectionOf(ctx, caller)
	if err != nil {
		return Key{}, err
	}
	if err := cp.checkProof(reg, caller, public, in.Proof); err != nil {
		return Key{}, capability.ErrInvalidRequest.Saying("proof: it does not show that you hold the new key.").Because(err)
	}
	var k Key
	err = cp.host.DB.InTx(ctx, func(ctx context.Context) error {
		now := cp.host.DB.Now(ctx)
		k = Key{ID: wire.KeyID(public), Status: StatusActive, PublicKey: in.PublicKey, Replaces: &caller.KeyID, CreatedAt: capability.Millis(now.UnixMilli())}
		// The compare-and-set comes first, so that concurrent registrations wait for one another.
		if was, err := cp.store.supersede(ctx, reg.id, caller.KeyID, now); err != nil {
			return err
		} else if !was {
			return ErrKeyConflict.Saying("The key that signed this is not the active one.")
		}
		if live, err := cp.store.liveKeys(ctx, reg.id); err != nil {
			return err
		} else if len(live) >= maxLive {
			return ErrKeyConflict.Saying("There are %d live keys. Expire superseded ones first.", len(live))
		}
		if fresh, err := cp.store.insertKey(ctx, reg.id, k, caller.KeyID); err != nil {
			return err
		} else if !fresh {
			return ErrKeyConflict.Saying("The connection has or had this key.")
		}
		return cp.changed(ctx, ceremony("controlplane/key_registered", k.ID))
	})
	return k, err
}

// expireKey expires a superseded key immediately, on all nodes. The signer must be its successor
// or, if that is itself expired, the nearest live one after it. It refuses with
// controlplane/key_not_found if there is no such live key, and with controlplane/key_conflict for
// the active key and for other signers.
func (cp *ControlPlane) expireKey(ctx context.Context, caller capability.Caller, id string) (Key, error) {
	reg, err := cp.connectionOf(ctx, caller)
	if err != nil {
		return Key{}, err
	}
	var k Key
	err = cp.host.DB.InTx(ctx, func(ctx context.Context) error {
		if err := cp.mayExpire(ctx, reg, caller.KeyID, id); err != nil {
			return err
		}
		if was, err := cp.store.expire(ctx, reg.id, id, cp.host.DB.Now(ctx)); err != nil {
			return err
		} else if !was {
			return ErrKeyNotFound
		}
		if k, _, err = cp.store.key(ctx, reg.id, id); err != nil {
			return err
		}
		return cp.changed(ctx, ceremony("controlplane/key_expired", id))
	})
	return k.aged(cp.host.Now()), err
}

func (cp *ControlPlane) mayExpire(ctx context.Context, reg connection, signer, id string) error {
	k, ok, err := cp.store.key(ctx, reg.id, id)
	switch {
	case err != nil:
		return err
	case !ok || k.Status == StatusExpired:
		return ErrKeyNotFound
	case k.Status == StatusActive:
		return ErrKeyConflict.Saying("The active key cannot expire. Register its successor first.")
	}
	for next := id; ; {
		successor, ok, err := cp.store.successor(ctx, reg.id, next)
		switch {
		case err != nil:
			return err
		case ok && successor.Status == StatusExpired:
			next = successor.ID
		case !ok || successor.ID != signer:
			return ErrKeyConflict.Saying("A superseded key is expired by its successor.")
		default:
			return nil
		}
	}
}

// connectionOf returns the connection of a verified caller.
func (cp *ControlPlane) connectionOf(ctx context.Context, caller capability.Caller) (connection, error) {
	reg, err := cp.register.current(ctx)
	switch {
	case err != nil:
		return connection{}, err
	case reg.connection == nil || reg.key(caller.KeyID) == nil:
		return connection{}, ErrKeyConflict.Saying("The key that signed this is not live any more.")
	}
	return *reg.connection, nil
}

// checkProof verifies that the holder of the new key signed a proof for this request.
func (cp *ControlPlane) checkProof(reg connection, caller capability.Caller, key ed25519.PublicKey, proof string) error {
	t, err := jose.Parse(proof)
	if err != nil {
		return err
	}
	if err := t.Verify(key); err != nil {
		return err
	}
	switch {
	case t.Type != wire.ProofType, t.KeyID != wire.KeyID(key):
		return wrongType
	case t.Text("sub") != reg.id, t.Text("replaces") != caller.KeyID, t.Text("jti") != caller.TokenID:
		return wrongSubject
	}
	return checkTimes(t, cp.host.Now())
}

// ceremony returns the audit event of a change of keys by the caller of the request.
func ceremony(action, keyID string) audit.Event {
	return audit.Event{Action: action, Subject: audit.Target{Type: "key", ID: keyID}}
}

// Choices lists the values, for documents.
func (Status) Choices() []string {
	return []string{string(StatusActive), string(StatusSuperseded), string(StatusExpired)}
}
