// Package testers runs a closed test of an app: the roster of invited people, their consent and
// opt-in at the store, their use of the app, reminders, and an estimate of when the store's
// requirement is met.
//
// # Guarantees
//
//   - Whoever opted out is never mailed again, whatever staff does: a withdrawal ends all
//     memberships of the address and is kept as a keyed hash after they are erased. Every mail has
//     an opt-out link, in its text and in its header.
//   - Fetching a link changes nothing unless ActOnGet is set: pages have a button, because programs
//     follow links. Following a link again never moves a member back.
//   - Opening a mail is not activity. Only use of the app is: sign-in, GET /testers/status and
//     [Testers.Seen], recorded once per UTC day.
//   - The constants of the forecast are chosen, not fitted, and every forecast states that. A kit
//     whose constants changed without a new ModelVersion does not start.
//   - A missed daily pass is reconstructed from the log of events.
//
// The control plane reads cohorts and invites, removes and reminds testers; users read their own
// status; the links in mails are public and signed.
package testers

import (
	"context"
	"embed"
	"fmt"
	"html/template"
	"net/url"
	"strings"
	"time"

	"github.com/kitbackend/kit/audit"
	"github.com/kitbackend/kit/auth"
	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/email"
	"github.com/kitbackend/kit/hooks"
	"github.com/kitbackend/kit/internal/rate"
	"github.com/kitbackend/kit/jobs"
)

// Name is the capability's name.
const Name = "testers"

//go:embed migrations/*.sql
var migrations embed.FS

// Peers are the capabilities that testers uses.
type Peers struct {
	// Audit records the operations of staff and withdrawals; nil records nothing.
	Audit *audit.Audit
	// Email sends invitations and nudges. It is required and uses the same database binding.
	Email *email.Email
	// Auth resolves verified addresses to users; without it a member is linked to a user only by a
	// link opened in the app.
	Auth *auth.Auth
}

// Testers manages the rosters. It is safe for concurrent use, on PostgreSQL from several processes.
type Testers struct {
	host  capability.Host
	cfg   Config
	peers Peers
	db    *database.DB
	store store
	keys  keyring
	pages *template.Template
	terms []string
	hosts []string
}

// New checks the configuration; it does no I/O.
func New(host capability.Host, cfg Config, peers Peers) (*Testers, error) {
	cfg = cfg.withDefaults(host.BaseURL)
	faults := capability.Faults{Capability: Name}
	faults.Join(cfg.validate())
	if peers.Email == nil {
		faults.AddFault(*capability.MissingPeer(Name, email.Name))
	}
	sealer, err := host.Sealing()
	faults.Join(err)
	if err := faults.Err(); err != nil {
		return nil, err
	}
	t := &Testers{host: host, cfg: cfg, peers: peers, db: host.DB, store: store{host.DB}, pages: cfg.Pages}
	t.keys = keyring{host: host, store: t.store, sealer: sealer, reload: rate.New(reloads, host.Now)}
	if t.pages == nil {
		t.pages = builtInPages()
	}
	for _, term := range cfg.Copy.ExtraTerms {
		t.terms = append(t.terms, fold(term))
	}
	for _, name := range cfg.Copy.AllowHosts {
		t.hosts = append(t.hosts, strings.ToLower(name))
	}
	if base, err := url.Parse(cfg.BaseURL); err == nil {
		t.hosts = append(t.hosts, strings.ToLower(base.Hostname()))
	}
	t.attach(host.Hooks)
	return t, nil
}

// attach subscribes to hooks: sign-ins count as use of the app, unsubscribing from all mail as
// withdrawal, and messages to support as feedback.
func (t *Testers) attach(h *hooks.Hooks) {
	seen := func(_ context.Context, s hooks.Session) { // its context carries a transaction that has ended
		ctx, cancel := context.WithTimeout(context.Background(), visitTimeout)
		defer cancel()
		if err := t.Seen(ctx, s.UserID, Visit{SessionID: s.SessionID}); err != nil {
			t.host.Log.WarnContext(ctx, "testers: a visit was not noted", "error", err)
		}
	}
	h.SessionStarted.After(seen)
	h.SessionUsed.After(seen)
	h.MailUnsubscribed.In(t.unsubscribed)
	h.SupportReceived.In(t.received)
}

// visitTimeout bounds how long recording a visit may delay a sign-in.
const visitTimeout = 5 * time.Second

const dailyBinding = "TESTERS_DAILY"

// Capability describes testers to the kit.
func (t *Testers) Capability() capability.Capability {
	daily := jobs.Binding{Name: dailyBinding, Schedule: "5 0 * * *",
		Run: func(ctx context.Context, _ jobs.Job) error { return t.Daily(ctx) }}
	if !t.cfg.NoDispatch {
		daily.Dispatch = jobs.Dispatchable[struct{}]()
	}
	return capability.Capability{
		Name:       Name,
		Version:    "1.0.0",
		Database:   t.db,
		Prefix:     t.cfg.BasePath,
		Routes:     t.routes(),
		Config:     t.cfg.keys(),
		Health:     []capability.HealthKey{{Key: "cohorts", Read: t.health}},
		Migrations: migrations,
		Jobs:       []jobs.Binding{daily},
		Refusals:   refusals(),
		Rewrap:     t.Rewrap,
		Export:     t.Export,
		Erase:      t.Erase,
	}
}

func (t *Testers) health(ctx context.Context) (any, error) { return t.store.countCohorts(ctx) }

// Prepare creates the declared cohorts and checks that the constants of the forecast match their
// version. The kit calls it after the migrations.
func (t *Testers) Prepare(ctx context.Context) error {
	return t.db.InTx(ctx, func(ctx context.Context) error {
		f := t.cfg.Forecast
		hash, err := t.store.model(ctx, f.ModelVersion, t.cfg.constants(), t.db.Now(ctx))
		if err != nil {
			return err
		}
		if hash != t.cfg.constants() {
			return &capability.Fault{Capability: Name, Key: "forecast.modelVersion", Value: f.ModelVersion,
				Reason: "is that of other constants: forecast constants changed without modelVersion bump",
				Fix:    "give the changed constants a new modelVersion"}
		}
		for _, cohort := range t.cfg.Cohorts {
			if err := t.store.setCohort(ctx, t.cfg.complete(cohort), t.db.Now(ctx)); err != nil {
				return fmt.Errorf("testers: cohort %s: %w", cohort.ID, err)
			}
		}
		return nil
	})
}
