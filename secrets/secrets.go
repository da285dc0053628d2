// Package secrets stores the credentials of capabilities and of the application: named, versioned,
// encrypted, and rotated without downtime.
//
// A secret is declared with its blocks, in a [Secret]; the declaration returns a [Handle], whose
// [Handle.Get] is called each time a value is needed. A [Provider] stores the versions: the kit's
// database by default, the environment, or a Vault. A block is stored completely or not at all. A
// rotation is manual, with values that an operator enters, or automatic, by a [Rotator] in four
// steps that a durable job runs and resumes; each secret has at most one rotation at a time.
//
// A value leaves this package only by [Value.Reveal]: no route returns one, and no event, log line,
// error or printed struct contains one. A secret is written only by a rotation. Audit records the
// start and the end of every rotation, with who requested it. Reads in process are not recorded,
// because they are frequent and made by the program itself. No value is revealed over HTTP, so
// there is no event for that.
package secrets

import (
	"context"
	"embed"
	"slices"
	"strings"
	"sync"

	"github.com/kitbackend/kit/audit"
	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/jobs"
)

// Name is the capability's name.
const Name = "secrets"

//go:embed migrations/*.sql
var migrations embed.FS

// Peers are the capabilities that secrets uses.
type Peers struct {
	// Audit records every rotation; nil records nothing.
	Audit *audit.Audit
}

// Secrets stores and rotates secrets. It is safe for concurrent use.
type Secrets struct {
	host     capability.Host
	cfg      Config
	audit    *audit.Audit
	provider Provider
	store    store
	unopened sync.Map // names of secrets whose values the schedule has logged not to open

	mu      sync.RWMutex
	handles map[string]*Handle
	news    *listener
}

// New checks the configuration; it does no I/O.
func New(host capability.Host, cfg Config, peers Peers) (*Secrets, error) {
	faults := capability.Faults{Capability: Name}
	cfg = cfg.withDefaults(host, &faults)
	cfg.validate(host, &faults)
	if err := faults.Err(); err != nil {
		return nil, err
	}
	s := &Secrets{
		host: host, cfg: cfg, audit: peers.Audit, provider: cfg.Provider,
		store: store{host.DB}, handles: make(map[string]*Handle),
	}
	s.news = &listener{bus: host.PubSub, tell: s.hint}
	for _, secret := range cfg.Secrets {
		_, err := s.Declare(secret)
		faults.Join(err)
	}
	return s, faults.Err()
}

// Capability describes secrets to the kit.
func (s *Secrets) Capability() capability.Capability {
	return capability.Capability{
		Name:       Name,
		Version:    "1.0.0",
		Database:   s.host.DB,
		Prefix:     s.cfg.BasePath,
		Routes:     s.routes(),
		Config:     s.cfg.keys(),
		Health:     []capability.HealthKey{{Key: "openRotations", Read: s.health}},
		Migrations: migrations,
		Jobs:       s.jobs(),
		Refusals:   refusals(),
		Rewrap:     s.Rewrap,
		NoUserData: "credentials of the service and the history of their rotations, which names no user",
		Close:      func(context.Context) error { s.news.close(); return nil },
	}
}

func (s *Secrets) jobs() []jobs.Binding {
	return []jobs.Binding{
		{Name: rotateBinding, Run: s.runRotation, MaxAttempts: rotateAttempts},
		{Name: "SECRETS_SCHEDULE", Schedule: "*/10 * * * *", Run: func(ctx context.Context, _ jobs.Job) error { return s.schedule(ctx) }},
		{Name: "SECRETS_SWEEP", Schedule: "37 4 * * *", Run: s.runSweep},
	}
}

// health returns the number of open rotations.
func (s *Secrets) health(ctx context.Context) (any, error) { return s.store.countOpen(ctx) }

// Declare declares a secret, before the kit serves. Its error is a [capability.Fault]: an invalid
// declaration, or a name that is already declared.
func (s *Secrets) Declare(secret Secret) (*Handle, error) {
	if err := secret.validate(); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.handles[secret.Name] != nil {
		return nil, &capability.Fault{Capability: Name, Key: "secret " + secret.Name, Reason: "is declared twice", Fix: "give each secret a name of its own"}
	}
	h := &Handle{secrets: s, secret: secret}
	s.handles[secret.Name] = h
	return h, nil
}

// Handle returns the handle of a declared secret. It refuses with secrets/not_found.
func (s *Secrets) Handle(name string) (*Handle, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if h := s.handles[name]; h != nil {
		return h, nil
	}
	return nil, ErrNotFound
}

// declared returns the secrets by name.
func (s *Secrets) declared() []Secret {
	s.mu.RLock()
	defer s.mu.RUnlock()
	list := make([]Secret, 0, len(s.handles))
	for _, h := range s.handles {
		list = append(list, h.secret)
	}
	slices.SortFunc(list, func(a, b Secret) int { return strings.Compare(a.Name, b.Name) })
	return list
}

// Rewrap wraps the keys of stored versions with the first master key, so that older master keys can
// be removed, and returns how many versions it changed. With another provider than the database it
// does nothing.
func (s *Secrets) Rewrap(ctx context.Context) (changed int, err error) {
	kept, ok := s.provider.(*SQL)
	if !ok {
		return 0, nil
	}
	if changed, err = kept.Rewrap(ctx); err != nil {
		return changed, err
	}
	return changed, s.audit.Record(ctx, audit.Event{Action: "secrets/rewrapped", Detail: map[string]int{"versions": changed}})
}
