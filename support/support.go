// Package support is an inbox: mails to the application's inbound addresses and feedback from the
// app become threads, which staff reads, answers, flags and archives, and which a model or rules
// classify.
//
// # Guarantees
//
//   - A mail is stored before it is acknowledged, and stored once however often it is delivered. A
//     durable job classifies it afterwards.
//   - A mail is added to a thread only by In-Reply-To or References, never by its subject, and only
//     if its sender is the person of the thread. Any other mail opens a new thread.
//   - A mail is linked to a user only if it is proved to be from its From domain, the address is
//     verified and the user is not disabled. The user sees the linked threads and those of the app,
//     but not the notes of staff and the classifier.
//   - Verdicts of a model come from closed lists and are checked against rules. A model sends
//     nothing, deletes nothing, and archives nothing by itself.
//   - Support sends no reply by itself. Mail from programs is stored and marked, and needs no
//     reply; bounces are passed to email and open no thread.
//
// Users send and read feedback over HTTP; the control plane reads and changes threads; mail is
// received through [Support.Receive], which [Support.Serve] calls for SMTP and LMTP. In process,
// any holder of the *Support may call everything.
package support

import (
	"context"
	"embed"
	"sync"

	"github.com/kitbackend/kit/audit"
	"github.com/kitbackend/kit/auth"
	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/email"
	"github.com/kitbackend/kit/internal/sns"
	"github.com/kitbackend/kit/jobs"
	"github.com/kitbackend/kit/secrets"
)

// Name is the capability's name.
const Name = "support"

//go:embed migrations/*.sql
var migrations embed.FS

// Peers are the capabilities that support uses. Each may be nil.
type Peers struct {
	// Audit records the operations of staff; nil records nothing.
	Audit *audit.Audit
	// Secrets holds the credentials of the model; required if AI is enabled.
	Secrets *secrets.Secrets
	// Email sends replies; without it only threads of the app can be replied to. It uses the same
	// database binding.
	Email *email.Email
	// Auth resolves verified addresses to users; without it no mail is linked to a user.
	Auth *auth.Auth
	// Files stores attachments; without it only their names are recorded.
	Files Files
}

// Support stores threads. It is safe for concurrent use, on PostgreSQL from several processes.
type Support struct {
	host       capability.Host
	cfg        Config
	peers      Peers
	db         *database.DB
	store      store
	categories []Category
	inboxes    map[string]string // configured spelling by canonical address
	own        map[string]bool   // canonical addresses that support sends from
	model      *model
	ses        *sns.Topic
	inert      sync.Once
}

// New checks the configuration; it does no I/O.
func New(host capability.Host, cfg Config, peers Peers) (*Support, error) {
	cfg = cfg.withDefaults()
	faults := capability.Faults{Capability: Name}
	faults.Join(cfg.validate(peers))
	s := &Support{
		host: host, cfg: cfg, peers: peers, db: host.DB, store: store{host.DB},
		categories: merged(cfg.Categories), inboxes: make(map[string]string), own: make(map[string]bool),
		ses: sns.New(cfg.Inbound.SES, host.Now),
	}
	for _, address := range cfg.InboundAddresses {
		if key, err := email.Canonical(address); err == nil {
			s.inboxes[key] = address
			s.own[key] = true
		}
	}
	if cfg.AI.Enabled && peers.Secrets != nil {
		model, err := newModel(cfg.AI, s.categories, peers.Secrets)
		faults.Join(err)
		s.model = model
	}
	if err := faults.Err(); err != nil {
		return nil, err
	}
	return s, nil
}

const (
	classifyBinding = "SUPPORT_CLASSIFY"
	sweepBinding    = "SUPPORT_SWEEP"
)

// Capability describes support to the kit.
func (s *Support) Capability() capability.Capability {
	return capability.Capability{
		Name:       Name,
		Version:    "1.0.0",
		Database:   s.db,
		Prefix:     s.cfg.BasePath,
		Routes:     s.routes(),
		Config:     s.cfg.keys(),
		Health:     s.health(),
		Migrations: migrations,
		Jobs: []jobs.Binding{
			{Name: classifyBinding, MaxAttempts: 8, Run: s.runClassify},
			{Name: sweepBinding, Schedule: "41 * * * *", Run: s.runSweep},
		},
		Refusals: refusals(),
		Export:   s.Export,
		Erase:    s.Erase,
	}
}

// Categories returns the categories of threads, the application's last.
func (s *Support) Categories() []Category { return append([]Category{}, s.categories...) }

func (s *Support) known(category string) bool {
	for _, c := range s.categories {
		if c.Key == category {
			return true
		}
	}
	return false
}

// maxCounted bounds what a health aggregate counts, so that its cost does not grow with the table.
const maxCounted = 10_000

func (s *Support) health() []capability.HealthKey {
	count := func(where string) func(context.Context) (any, error) {
		return func(ctx context.Context) (any, error) { return s.store.count(ctx, where) }
	}
	return []capability.HealthKey{
		{Key: "openThreads", Read: count(`state = 'open'`)},
		{Key: "needsReply", Read: count(`needs_reply`)},
		{Key: "unclassified", Read: count(`classified_by = 'none'`)},
	}
}
