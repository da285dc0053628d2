package controlplane

import (
	"context"
	"crypto/ed25519"
	"fmt"

	"github.com/kitbackend/kit/audit"
	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/controlplane/internal/wire"
	"github.com/kitbackend/kit/database"
)

// How a connection was created.
const (
	viaGo          = "go"
	viaEnvironment = "environment"
)

// Connect creates the first connection of the host's environment. If the environment has a
// connection with the same issuer and the key is one of its past or present keys, Connect changes
// nothing: an application may call it at every start, and an expired key stays expired. It refuses
// with [ErrConnected] and [ErrConnection].
func (cp *ControlPlane) Connect(ctx context.Context, c Connection) error {
	c, err := cp.complete(c)
	if err != nil {
		return err
	}
	if err := cp.connect(ctx, c, viaGo); err != nil {
		return err
	}
	return cp.connected(ctx, c)
}

// Reset replaces the connection, for a customer who has lost all keys: every key of the old
// connection expires, each with an audit event, and the new connection starts with its own key. It
// refuses with [ErrConnection], and with controlplane/key_conflict if there was already a
// connection with this first key.
func (cp *ControlPlane) Reset(ctx context.Context, c Connection) error {
	c, err := cp.complete(c)
	if err != nil {
		return err
	}
	return cp.host.DB.InTx(ctx, func(ctx context.Context) error {
		now := cp.host.DB.Now(ctx)
		before, existed, err := cp.store.connection(ctx, cp.host.Environment)
		if err != nil {
			return err
		}
		if existed {
			expired, err := cp.store.expireAll(ctx, before.id, now)
			if err != nil {
				return err
			}
			for _, keyID := range expired {
				if err := cp.peers.Audit.Record(ctx, ceremony("controlplane/key_expired", keyID)); err != nil {
					return err
				}
			}
			if err := cp.store.updateConnection(ctx, cp.record(ctx, c, viaGo)); err != nil {
				return err
			}
		} else if _, err := cp.store.insertConnection(ctx, cp.record(ctx, c, viaGo)); err != nil {
			return err
		}
		return cp.begin(ctx, c, "controlplane/connection_reset")
	})
}

// complete sets the default issuer and refuses an invalid connection.
func (cp *ControlPlane) complete(c Connection) (Connection, error) {
	if c.Issuer == "" {
		c.Issuer = cp.defaultIssuer()
	}
	if !canonical(c.Issuer) {
		return c, fmt.Errorf("%w: the issuer %.100q is not an origin like https://example.com", ErrConnection, c.Issuer)
	}
	if _, err := c.PublicKey.Public(); err != nil {
		return c, fmt.Errorf("%w: %w", ErrConnection, err)
	}
	return c, nil
}

// connect creates the connection unless there is one.
func (cp *ControlPlane) connect(ctx context.Context, c Connection, via string) error {
	return cp.host.DB.InTx(ctx, func(ctx context.Context) error {
		made, err := cp.store.insertConnection(ctx, cp.record(ctx, c, via))
		if err != nil || !made {
			return err
		}
		return cp.begin(ctx, c, "controlplane/connection_registered")
	})
}

func (cp *ControlPlane) record(ctx context.Context, c Connection, via string) connection {
	key, _ := c.PublicKey.Public() // complete has checked it
	return connection{
		environment: cp.host.Environment, id: wire.ConnectionID(cp.host.Environment, key),
		issuer: c.Issuer, via: via, createdAt: cp.host.DB.Now(ctx),
	}
}

// begin inserts the first key of a connection.
func (cp *ControlPlane) begin(ctx context.Context, c Connection, action string) error {
	key, _ := c.PublicKey.Public()
	id := wire.ConnectionID(cp.host.Environment, key)
	first := Key{ID: wire.KeyID(key), PublicKey: c.PublicKey, CreatedAt: capability.Millis(cp.host.DB.Now(ctx).UnixMilli())}
	if fresh, err := cp.store.insertKey(ctx, id, first, ""); err != nil {
		return err
	} else if !fresh {
		return ErrKeyConflict.Saying("This key began a connection of the environment before. Use a new one.")
	}
	return cp.changed(ctx, audit.Event{
		Action:  action,
		Subject: audit.Target{Type: "connection", ID: id},
		Targets: []audit.Target{{Type: "key", ID: first.ID}},
		Detail:  map[string]string{"issuer": c.Issuer},
	})
}

// connected checks that the existing connection was created with c, or has had its key.
func (cp *ControlPlane) connected(ctx context.Context, c Connection) error {
	is, ok, err := cp.store.connection(ctx, cp.host.Environment)
	if err != nil {
		return err
	}
	key, _ := c.PublicKey.Public()
	_, known, err := cp.store.key(ctx, is.id, wire.KeyID(key))
	if err == nil && (!ok || is.issuer != c.Issuer || !known) {
		err = ErrConnected
	}
	return err
}

// changed records a change of the register and notifies every node to read it again.
func (cp *ControlPlane) changed(ctx context.Context, e audit.Event) error {
	if err := cp.peers.Audit.Record(ctx, e); err != nil {
		return err
	}
	database.AfterCommit(ctx, cp.register.forget)
	if cp.host.PubSub != nil {
		_ = cp.host.PubSub.Publish(ctx, topic, nil) // optional: without it other nodes read within a second
	}
	return nil
}

// NewJWK returns the JWK of a public key.
func NewJWK(key ed25519.PublicKey) JWK { return wire.NewJWK(key) }
