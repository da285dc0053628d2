// Package email sends mail: every message is a durable job that commits with the caller's
// transaction, is signed, is retried after temporary failures, and is not sent to recipients who do
// not want it or cannot be reached.
//
// # Guarantees
//
//   - [Email.Send] inside a transaction sends if that transaction commits, and never otherwise.
//   - A message is handed over at least once. Its bytes except for the signature, and so its
//     Message-ID, are the same in all attempts, so that receivers can recognize a duplicate. It is
//     sent twice only if the process ends, or the connection breaks, between the server's
//     acceptance and its record.
//   - Suppressions are checked when a message is accepted and again when it is sent. A suppression
//     of scope "list" only applies to list messages: after unsubscribing from a newsletter a
//     recipient still gets the password reset.
//   - Messages are stored sealed under the master keys; management routes show who got mail and
//     when, never its content.
//   - Audit events, and the suppressions of erased people, contain only a keyed hash of an address.
//   - Links in mails are signed. Fetching one changes nothing of importance, because scanners
//     follow links.
//
// # Who may call
//
// Other capabilities and the application send in process, ingest bounces with [Email.IngestMail]
// and find suppressed recipients with [Email.HeldBack]. Over HTTP the control plane reads jobs and
// manages suppressions; the links in mails are public. In development, from the same machine, GET
// /__kit/mailbox shows the mails.
package email

import (
	"context"
	"embed"
	"time"

	"github.com/kitbackend/kit/audit"
	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/email/devmail"
	"github.com/kitbackend/kit/internal/rate"
	"github.com/kitbackend/kit/internal/sns"
)

// Name is the capability's name.
const Name = "email"

//go:embed migrations/*.sql
var migrations embed.FS

// Peers are the capabilities email uses.
type Peers struct {
	// Audit records retries and changes of suppressions by people; nil records nothing.
	Audit *audit.Audit
}

// Email sends mail. It is safe for concurrent use.
type Email struct {
	host      capability.Host
	cfg       Config
	peers     Peers
	store     store
	from      address
	replyTo   address
	envelope  string
	callbacks string
	templates templates
	sealer    capability.Sealer
	tokens    *keyring
	addresses *keyring
	chain     chain
	mailbox   *devmail.Mailbox
	visits    *rate.Limiter
	ses       ses
}

// unsubscribeVisits limits the requests of one client to unsubscribe links.
var unsubscribeVisits = rate.Limit{Events: 60, Per: time.Minute}

// New returns an Email. It checks the configuration; the only I/O is reading the templates.
func New(host capability.Host, cfg Config, peers Peers) (*Email, error) {
	cfg = cfg.withDefaults(host)
	faults := capability.Faults{Capability: Name}
	faults.Join(cfg.validate(host))
	sealer, err := host.Sealing()
	faults.Join(err)
	parsed, err := parseTemplates(cfg.Templates)
	if err != nil {
		faults.Add("templates", nil, err.Error(), "correct the template")
	}
	if err := faults.Err(); err != nil {
		return nil, err
	}
	store := store{host.DB}
	e := &Email{
		host: host, cfg: cfg, peers: peers, store: store, templates: parsed,
		callbacks: callbackBase(host.BaseURL, cfg.CallbackPath),
		sealer:    sealer,
		tokens:    newKeyring(host, store, sealer, tokenKeyTable, "links in mails sent before do not work"),
		addresses: newKeyring(host, store, sealer, addressKeyTable, "suppressions of people who were erased do not hold"),
		mailbox:   devmail.New(host, sealer),
		visits:    rate.New(unsubscribeVisits, host.Now),
		ses:       ses{sns.New(cfg.Webhooks.SES, host.Now)},
	}
	e.from, _ = parseAddress(cfg.From) // validated above, like the next two
	e.replyTo, _ = parseAddress(cfg.ReplyTo)
	e.envelope = e.from.spec
	if path, err := parseAddress(cfg.ReturnPath); err == nil {
		e.envelope = path.spec
	}
	providers := cfg.Providers
	if len(providers) == 0 {
		host.Log.Info("email has no provider: mail is kept in the mailbox, nothing is sent")
		providers = []Provider{{Name: mailboxName, Transport: keep{e.mailbox}, PerSecond: -1, Burst: 1}}
	}
	e.chain = newChain(providers, host.Now)
	return e, nil
}

// mailboxName is the provider of jobs whose mail was stored instead of sent.
const mailboxName = "mailbox"

// keep is the transport of the mailbox.
type keep struct{ box *devmail.Mailbox }

func (k keep) Deliver(ctx context.Context, m Envelope) (string, error) {
	return k.box.Keep(ctx, m.JobID, m.To, m.Message)
}

// Capability describes email to the kit.
func (e *Email) Capability() capability.Capability {
	return capability.Capability{
		Name:       Name,
		Version:    "1.0.0",
		Database:   e.host.DB,
		Prefix:     e.cfg.BasePath,
		Routes:     e.routes(),
		Config:     e.cfg.keys(),
		Health:     e.health(),
		Migrations: migrations,
		Jobs:       e.jobs(),
		Refusals:   refusals(),
		Claims:     []string{e.cfg.CallbackPath},
		Rewrap:     e.Rewrap,
		Export:     e.export,
		Erase:      e.erase,
		Close:      e.chain.close,
	}
}

// Kept is a mail in the mailbox.
type Kept = devmail.Mail

// LastMail returns the newest mail in the mailbox for an address; ok is false if there is none. It
// is for tests and development: with a provider nothing is stored.
func (e *Email) LastMail(ctx context.Context, to string) (mail Kept, ok bool, err error) {
	a, err := parseAddress(to)
	if err != nil {
		return Kept{}, false, err
	}
	return e.mailbox.Last(ctx, a.spec)
}

func (e *Email) health() []capability.HealthKey {
	count := func(state State) func(context.Context) (any, error) {
		return func(ctx context.Context) (any, error) { return e.store.countJobs(ctx, state) }
	}
	return []capability.HealthKey{
		{Key: "queued", Read: count(StateQueued)},
		{Key: "failed", Read: count(StateFailed)},
		{Key: "providers", Read: func(context.Context) (any, error) { return e.chain.health(), nil }},
	}
}
