// Package controlplane authenticates the customer who operates a service: the customer holds
// private keys and signs one short-lived credential for each call; the service stores public keys
// only and admits verified credentials to the management routes of every capability.
//
// An environment has one connection. The first is created by the operator of the process, with
// [ControlPlane.Connect] or KIT_CONTROL_PLANE_CONNECTION, never over HTTP. Later keys are
// registered over HTTP: each new key is registered in a request signed by the key it replaces, and
// each superseded key is expired by its successor.
//
// # Guarantees
//
//   - No part of a credential is trusted before its signature verifies.
//   - Every failed step of verification returns the one code controlplane/invalid_credential; the
//     reason is only logged.
//   - A token id is spent once, among all nodes and across restarts. It is spent as the last step,
//     so that an invalid token cannot spend it.
//   - If the database fails, credentials are refused.
//   - At every time the connection has a working key.
//
// Package client signs credentials and calls a service.
package controlplane

import (
	"context"
	"embed"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kitbackend/kit/audit"
	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/internal/rate"
	"github.com/kitbackend/kit/internal/strictjson"
)

// Name is the capability's name.
const Name = "control-plane"

//go:embed migrations/*.sql
var migrations embed.FS

// Peers are the dependencies of the control plane.
type Peers struct {
	// Audit records changes of keys and refused credentials of known keys; it may be nil.
	Audit *audit.Audit
	// Composed is required to serve: it returns all composed capabilities, in order, after
	// assembly. The manifest lists them.
	Composed func() []capability.Capability
	// Version is the deployed version of the service.
	Version string
}

// ControlPlane verifies credentials and manages the register of keys. It is safe for concurrent
// use.
type ControlPlane struct {
	host      capability.Host
	cfg       Config
	peers     Peers
	store     store
	register  *register
	replay    replaySet
	bootstrap *Connection
	// compared is true once bootstrap has been compared with the connection that there is.
	compared atomic.Bool
	// audience is the address of the control plane; bodyBound are the routes whose credential must
	// include a hash of the body.
	audience  string
	bodyBound func() map[string]bool
	allowed   map[string]bool
	refused   *rate.Limiter
}

// refusedLimit limits the audit events caused by refused credentials of one key.
var refusedLimit = rate.Limit{Events: 60, Per: time.Minute}

// New checks the configuration; it does no I/O.
func New(host capability.Host, cfg Config, peers Peers) (*ControlPlane, error) {
	cfg = cfg.withDefaults()
	faults := capability.Faults{Capability: Name}
	cfg.validate(&faults)
	cp := &ControlPlane{
		host: host, cfg: cfg, peers: peers, store: store{host.DB},
		replay:   newReplaySet(cfg, host.DB, host.Now),
		audience: host.BaseURL.String() + cfg.BasePath,
		allowed:  make(map[string]bool),
		refused:  rate.New(refusedLimit, host.Now),
	}
	cp.bootstrap = cp.parseBootstrap(&faults)
	for _, origin := range cfg.AllowedOrigins {
		cp.allowed[origin] = true
	}
	cp.bodyBound = sync.OnceValue(cp.findBodyBound)
	cp.register = &register{read: cp.read, now: host.Now, bus: host.PubSub}
	if err := faults.Err(); err != nil {
		return nil, err
	}
	return cp, nil
}

func (cp *ControlPlane) parseBootstrap(faults *capability.Faults) *Connection {
	if cp.cfg.Bootstrap == "" {
		return nil
	}
	var c Connection
	err := strictjson.Decode([]byte(cp.cfg.Bootstrap), &c)
	if err == nil {
		c, err = cp.complete(c)
	}
	if err != nil {
		faults.Add("bootstrap", nil, "is no connection: "+err.Error(), "set KIT_CONTROL_PLANE_CONNECTION to what `kit keygen` prints")
		return nil
	}
	return &c
}

// Machines is the guard of every control-plane route.
func (cp *ControlPlane) Machines() capability.Machines {
	return capability.Machines{Verify: cp.verify, AllowOrigin: cp.allowOrigin, MaxAge: cp.cfg.maxAge()}
}

// Capability describes the control plane to the kit.
func (cp *ControlPlane) Capability() capability.Capability {
	return capability.Capability{
		Name:       Name,
		Version:    "1.0.0",
		Database:   cp.host.DB,
		Prefix:     cp.cfg.BasePath,
		Routes:     cp.routes(),
		Config:     cp.cfg.keys(),
		Health:     cp.healthKeys(),
		Migrations: migrations,
		Refusals:   refusals(),
		NoUserData: "public keys of the customer's machines and spent token ids, none of them a user's",
		Close:      func(context.Context) error { cp.register.close(); return nil },
	}
}

// findBodyBound returns the routes that rotate a key or a secret. Their credential includes a hash
// of the body, so that it cannot be used with another body.
func (cp *ControlPlane) findBodyBound() map[string]bool {
	rows := make(map[string]bool)
	for _, c := range cp.peers.Composed() {
		for _, r := range c.Routes {
			g := r.Guard
			if g.Strategy() == capability.StrategyControlPlane && r.Method == "POST" && (g.Scope() == scopeRotate || g.Scope() == scopeSecrets) {
				rows[r.Method+" "+r.Path] = true
			}
		}
	}
	return rows
}

// allowOrigin reports whether pages of an origin may call: the issuer's, or a configured one.
// Before there is a connection the default issuer is allowed.
func (cp *ControlPlane) allowOrigin(origin string) bool {
	if cp.allowed[origin] {
		return true
	}
	ctx, cancel := context.WithTimeout(context.Background(), originTimeout)
	defer cancel()
	reg, err := cp.register.current(ctx)
	switch {
	case err != nil:
		return false
	case reg.connection == nil:
		return origin == cp.defaultIssuer()
	default:
		return origin == reg.connection.issuer
	}
}

const originTimeout = 2 * time.Second

func (cp *ControlPlane) defaultIssuer() string { return originOf(cp.host.BaseURL) }

func (cp *ControlPlane) healthKeys() []capability.HealthKey {
	return []capability.HealthKey{
		{Key: "connected", Read: func(ctx context.Context) (any, error) {
			reg, err := cp.register.current(ctx)
			return err == nil && reg.connection != nil, err
		}},
		{Key: "liveKeys", Read: func(ctx context.Context) (any, error) {
			return cp.count(ctx, func(Key) bool { return true })
		}},
		{Key: "overdueKeys", Read: func(ctx context.Context) (any, error) {
			return cp.count(ctx, func(k Key) bool { return k.Overdue })
		}},
	}
}

func (cp *ControlPlane) count(ctx context.Context, counts func(Key) bool) (int, error) {
	keys, err := cp.Keys(ctx)
	n := 0
	for _, k := range keys {
		if counts(k) {
			n++
		}
	}
	return n, err
}

// read reads the register. If there is no connection, it first creates one from the environment
// variable, if set.
func (cp *ControlPlane) read(ctx context.Context) (*snapshot, error) {
	s, err := cp.readRows(ctx)
	if err != nil || cp.bootstrap == nil {
		return s, err
	}
	if s.connection != nil {
		return s, cp.reportIgnored(ctx)
	}
	if err := cp.connect(ctx, *cp.bootstrap, viaEnvironment); err != nil {
		return nil, err
	}
	return cp.readRows(ctx)
}

// reportIgnored warns once if the environment variable names another connection than there is, as
// after a lost or stolen key.
func (cp *ControlPlane) reportIgnored(ctx context.Context) error {
	if cp.compared.Load() {
		return nil
	}
	err := cp.connected(ctx, *cp.bootstrap)
	ignored := errors.Is(err, ErrConnected)
	if err != nil && !ignored {
		return err
	}
	if cp.compared.CompareAndSwap(false, true) && ignored {
		cp.host.Log.WarnContext(ctx, "control-plane: KIT_CONTROL_PLANE_CONNECTION is ignored: the environment has another connection, "+
			"whose keys are still valid; ControlPlane.Reset replaces it")
	}
	return nil
}

func (cp *ControlPlane) readRows(ctx context.Context) (*snapshot, error) {
	s := &snapshot{}
	err := cp.host.DB.Read(ctx, func(ctx context.Context) error {
		*s = snapshot{}
		c, ok, err := cp.store.connection(ctx, cp.host.Environment)
		if err != nil || !ok {
			return err
		}
		s.connection = &c
		s.live, err = cp.store.liveKeys(ctx, c.id)
		return err
	})
	return s, err
}
