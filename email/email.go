// Package email sends mail that arrives: every message is a durable job that
// commits with the rows it follows from, is signed, repeated after temporary
// failures, and held back from people who do not want it or cannot be reached.
//
// The promises:
//   - [Email.Send] inside a transaction sends when that transaction commits and
//     never when it does not.
//   - A message is handed over at least once. Its bytes but for the signature,
//     and so its Message-ID, are the same in all attempts: receivers can tell a
//     repetition. It goes out twice only when the process ends, or the
//     connection breaks, between the server's acceptance and our note of it.
//   - A suppression is looked up when a message is accepted and again when it
//     is sent. One of scope "list" holds back lists only: after
//     leaving a newsletter one still gets the password reset.
//   - Messages are kept sealed under the master keys; management routes show who
//     got mail and when, never what it said.
//   - The trail and the suppressions of erased people name an address by a keyed
//     hash only.
//   - Links in mails carry a signature. Fetching one changes nothing that
//     matters: scanners follow links.
//
// Other capabilities and the application send in process, hand bounces in with
// [Email.IngestMail] and ask with [Email.HeldBack] who gets no mail. Over HTTP the control
// plane reads jobs and manages suppressions; the links in mails are public. In
// development, from the same machine, GET /__kit/mailbox shows what was sent.
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

// Peers are what email uses.
type Peers struct {
	// Audit is told of retries and of suppressions that people change; nil
	// records nothing.
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

// unsubscribeVisits bounds the requests of one client to unsubscribe links.
var unsubscribeVisits = rate.Limit{Events: 60, Per: time.Minute}

// New checks the configuration; it does no I/O but to read the templates.
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
	e.from, _ = parseAddress(cfg.From) // validated above, as are the next two
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

// mailboxName is the provider that jobs show when mail was kept, not sent.
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

// Kept is one mail in the mailbox.
type Kept = devmail.Mail

// LastMail returns the newest mail that the mailbox kept for an address; ok is
// false when there is none. It is for tests and development: with a provider
// nothing is kept.
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
