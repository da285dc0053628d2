// Package controlplane is the seam between a service and the customer who
// runs it: the customer holds private keys and signs one short-lived
// credential a call, the service holds public keys only and lets verified
// credentials reach the management routes of every capability.
//
// An environment has one connection. The first is made by the one who runs the
// process, with [ControlPlane.Connect] or KIT_CONTROL_PLANE_CONNECTION, never
// over HTTP; from then on its keys are replaced over HTTP, each new key signed
// in by the one it replaces and each superseded key expired by its successor.
//
// The promises of the package: nothing is believed before its signature
// verifies; every failing step of verification returns the one code
// controlplane/invalid_credential and says why in the log only; a token id is
// spent once, among all nodes and across restarts, and last of all steps, so
// that a bad token cannot burn it; when the database cannot say, the response is
// no; there is no moment without a working key.
//
// Package client mints credentials and calls a service.
package controlplane

import (
	"context"
	"embed"
	"sync"
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

// Peers are what the control plane uses.
type Peers struct {
	// Audit records ceremonies and refused credentials of known keys; may be nil.
	Audit *audit.Audit
	// Composed is required to serve: it returns all composed capabilities, in
	// order, once assembly has ended. The manifest lists them.
	Composed func() []capability.Capability
	// Version is the deployed version of the service.
	Version string
}

// ControlPlane verifies credentials and keeps the register of keys. It is safe
// for concurrent use.
type ControlPlane struct {
	host      capability.Host
	cfg       Config
	peers     Peers
	store     store
	register  *register
	replay    replaySet
	bootstrap *Connection
	// audience is the control plane's own address; bodyBound are the rows whose
	// credential must name the body.
	audience  string
	bodyBound func() map[string]bool
	allowed   map[string]bool
	refused   *rate.Limiter
}

// refusedLimit bounds the audit rows that one key's bad credentials can cause.
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

// findBodyBound lists the rows that rotate a key or a secret: their credential
// names the body, so that it cannot be carried over to another.
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

// allowOrigin reports whether a page of this origin may call: the issuer's, or
// a configured one. Before there is a connection the issuer is the default one.
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

// read reads the register, after the first connection was made from the
// environment variable where there is none.
func (cp *ControlPlane) read(ctx context.Context) (*snapshot, error) {
	s, err := cp.readRows(ctx)
	if err != nil || s.connection != nil || cp.bootstrap == nil {
		return s, err
	}
	if err := cp.connect(ctx, *cp.bootstrap, viaEnvironment); err != nil {
		return nil, err
	}
	return cp.readRows(ctx)
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
