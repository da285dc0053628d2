package email

import (
	"fmt"
	"io/fs"
	"net/url"
	"regexp"
	"strings"
	"time"

	"github.com/kitbackend/kit/capability"
)

// Config configures email. Outside of production the zero value is complete: mail is stored in the
// mailbox instead of being sent.
type Config struct {
	// From is the sender, such as "Acme <hello@acme.example>"; required in
	// production, by default "Kit <kit@localhost>".
	From string
	// ReplyTo is the address for replies, by default From.
	ReplyTo string
	// ReturnPath is the address for bounces, by default that of From.
	ReturnPath string
	// Providers are tried in order; required in production.
	Providers []Provider
	// Templates holds the templates of mails: NAME.txt, of text/template, NAME.html, of
	// html/template, or both. One of them contains the subject, {{define "subject"}}…{{end}}; the
	// rest of NAME.txt is the text. A template in a folder has its name: de/welcome.txt is
	// "de/welcome". Files whose name begins with _ define parts for the templates of their folder
	// and of those below; embed needs the prefix all: for them. {{unsubscribe}} is the link to
	// unsubscribe. A key that a map does not have refuses the mail. [Email.Preview] executes a
	// template.
	Templates fs.FS
	// DKIM lists the signatures of each message, at most 4.
	DKIM []DKIM
	// Failover configures when a provider is skipped.
	Failover Failover
	// PerRecipientPerHour bounds the mails to one address over all nodes, by default 20; -1 means
	// no bound.
	PerRecipientPerHour int
	// Retry configures the retries of a message.
	Retry Retry
	// Tracking is off by default.
	Tracking Tracking
	// UnsubscribeOnGet unsubscribes on a mere GET of the unsubscribe link. Scanners follow links,
	// so this unsubscribes people who did not request it.
	UnsubscribeOnGet bool
	// SoftBounces configures when repeated temporary bounces suppress an address.
	SoftBounces SoftBounces
	// FoldPlusTags treats ada+shop@ and ada@ as one address for suppressions and limits.
	FoldPlusTags bool
	// MaxMessageBytes bounds a composed message, by default 10 MiB, at most 50.
	MaxMessageBytes int
	// Retention configures how long records are kept.
	Retention Retention
	// Webhooks enables routes for the reports of providers; none by default.
	Webhooks Webhooks
	// Database is the name of the binding of the jobs, by default "DB".
	Database string
	// BasePath is the prefix of the management routes, by default "/email".
	BasePath string
	// CallbackPath is the prefix of the links in mails, by default "/_kit/email". Changing it
	// breaks the links in mails already sent.
	CallbackPath string
}

// Provider is a provider that sends mail.
type Provider struct {
	// Name identifies the provider in jobs: lower case letters, digits and hyphens.
	Name      string
	Transport Transport
	// PerSecond and Burst limit this node's rate, by default 10 and 20; a PerSecond of -1 means no
	// limit. Messages above the limit wait.
	PerSecond float64
	Burst     int
	// WarmUp limits a new sender's messages per day, over all nodes; nil means no limit.
	WarmUp *WarmUp
}

// WarmUp allows StartPerDay messages on the first day, Since, and Growth times as many on each
// following day. Days are in UTC.
type WarmUp struct {
	Since       time.Time `json:"since"`
	StartPerDay int       `json:"startPerDay"`
	Growth      float64   `json:"growth"`
}

// Failover skips a provider for Cooldown (60 s) after UnhealthyAfter (5) consecutive messages could
// not be handed over to it.
type Failover struct {
	UnhealthyAfter int
	Cooldown       time.Duration
}

// Retry repeats a message after Base (30 s), then four times as long each time, at most Max (6 h),
// with a jitter of a fifth; until MaxAttempts (8) or GiveUpAfter (48 h).
type Retry struct {
	MaxAttempts            int
	Base, Max, GiveUpAfter time.Duration
}

// Tracking rewrites the links of HTML mail, or adds an image, to record clicks and opens. Neither
// proves that a person did anything. Links over 340 bytes are not rewritten.
type Tracking struct{ Clicks, Opens bool }

// SoftBounces suppresses an address for TTL (30 days) after Limit (3) temporary
// bounces within Window (14 days).
type SoftBounces struct {
	Limit       int
	Window, TTL time.Duration
}

// Retention keeps messages for Bodies (30 days, at least 14) and jobs for Jobs
// (365 days, at least as long).
type Retention struct{ Bodies, Jobs time.Duration }

const day = 24 * time.Hour

// The bounds of the configuration.
const (
	minBodies     = 14 * day
	maxDKIM       = 4
	maxAttempts   = 100
	maxMessageCap = 50 << 20
)

var providerForm = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,31}$`)

// or sets a field that has its zero value.
func or[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

func (c Config) withDefaults(host capability.Host) Config {
	if !host.Production() {
		or(&c.From, "Kit <kit@localhost>")
	}
	or(&c.Failover.UnhealthyAfter, 5)
	or(&c.Failover.Cooldown, time.Minute)
	or(&c.PerRecipientPerHour, 20)
	or(&c.Retry.MaxAttempts, 8)
	or(&c.Retry.Base, 30*time.Second)
	or(&c.Retry.Max, 6*time.Hour)
	or(&c.Retry.GiveUpAfter, 48*time.Hour)
	or(&c.SoftBounces.Limit, 3)
	or(&c.SoftBounces.Window, 14*day)
	or(&c.SoftBounces.TTL, 30*day)
	or(&c.MaxMessageBytes, 10<<20)
	or(&c.Retention.Bodies, 30*day)
	or(&c.Retention.Jobs, 365*day)
	or(&c.Database, "DB")
	or(&c.BasePath, "/email")
	or(&c.CallbackPath, "/_kit/email")
	providers := make([]Provider, len(c.Providers))
	for i, p := range c.Providers {
		or(&p.PerSecond, 10)
		or(&p.Burst, 20)
		providers[i] = p
	}
	c.Providers = providers
	return c
}

func (c Config) validate(host capability.Host) error {
	faults := capability.Faults{Capability: Name}
	missing := func(key, fix string) {
		faults.AddFault(capability.Fault{Key: key, Reason: "is missing", Fix: fix, Refusal: ErrNotConfigured})
	}
	if c.From == "" {
		missing("from", "give the sender of your mail")
	}
	if len(c.Providers) == 0 && host.Production() {
		missing("providers", "give one, such as email.NewSMTP")
	}
	for key, text := range map[string]string{"from": c.From, "replyTo": c.ReplyTo, "returnPath": c.ReturnPath} {
		if _, err := parseAddress(text); text != "" && err != nil {
			faults.Add(key, text, "is not an address", "write it like Acme <hello@acme.example>")
		}
	}
	if c.Failover.UnhealthyAfter < 1 || c.Failover.Cooldown < 0 {
		faults.Add("failover", c.Failover, "is out of bounds", "use positive values")
	}
	if r := c.Retry; r.MaxAttempts < 1 || r.MaxAttempts > maxAttempts || r.Base < time.Second || r.Max < r.Base || r.GiveUpAfter <= 0 || r.GiveUpAfter > 7*day {
		faults.Add("retry", r, "is out of bounds", "use 1 to 100 attempts, at least a second between them, for at most 7 days")
	}
	if s := c.SoftBounces; s.Limit < 1 || s.Window <= 0 || s.TTL <= 0 {
		faults.Add("softBounces", s, "is out of bounds", "use positive values")
	}
	if c.PerRecipientPerHour < -1 {
		faults.Add("perRecipientPerHour", c.PerRecipientPerHour, "is negative", "use -1 for no bound")
	}
	if c.MaxMessageBytes < 1<<10 || c.MaxMessageBytes > maxMessageCap {
		faults.Add("maxMessageBytes", c.MaxMessageBytes, "is out of bounds", "use 1 KiB to 50 MiB")
	}
	if c.Retention.Bodies < minBodies || c.Retention.Jobs < c.Retention.Bodies {
		faults.Add("retention", c.Retention, "is too short", "keep messages for 14 days at least, and jobs as long")
	}
	c.validateProviders(&faults)
	c.validateDKIM(&faults)
	c.Webhooks.validate(&faults)
	return faults.Err()
}

func (c Config) validateProviders(faults *capability.Faults) {
	seen := make(map[string]bool)
	for i, p := range c.Providers {
		at := func(field string) string { return fmt.Sprintf("providers[%d].%s", i, field) }
		if !providerForm.MatchString(p.Name) || seen[p.Name] || p.Name == mailboxName {
			faults.Add(at("name"), p.Name, "is no name, or is taken", "use lower case letters, digits and hyphens, each name once")
		}
		seen[p.Name] = true
		if p.Transport == nil {
			faults.Add(at("transport"), nil, "is missing", "give one, such as email.NewSMTP")
		}
		if (p.PerSecond != -1 && p.PerSecond <= 0) || p.Burst < 1 {
			faults.Add(at("perSecond"), p.PerSecond, "admits nothing", "use a positive rate and burst, or -1 for no bound")
		}
		if w := p.WarmUp; w != nil && (w.Since.IsZero() || w.StartPerDay < 1 || w.Growth < 1) {
			faults.Add(at("warmUp"), *w, "is out of bounds", "give the first day, at least 1 a day, and a growth of 1 or more")
		}
	}
}

func (c Config) validateDKIM(faults *capability.Faults) {
	if len(c.DKIM) > maxDKIM {
		faults.Add("dkim", len(c.DKIM), "is over the limit", "sign with at most 4 keys")
	}
	for i, d := range c.DKIM {
		if err := d.validate(); err != nil {
			faults.Add(fmt.Sprintf("dkim[%d]", i), d.Selector, err.Error(), "give domain, selector, and an RSA key of 2048 bits or an Ed25519 key")
		}
	}
}

func (c Config) keys() []capability.ConfigKey {
	var providers, signatures []string
	for _, p := range c.Providers {
		providers = append(providers, p.Name)
	}
	for _, d := range c.DKIM {
		signatures = append(signatures, d.Selector+"._domainkey."+d.Domain)
	}
	return []capability.ConfigKey{
		{Key: "from", Value: c.From, Summary: "The sender."},
		{Key: "replyTo", Value: c.ReplyTo, Summary: "Where replies go, by default to the sender."},
		{Key: "returnPath", Value: c.ReturnPath, Summary: "Where bounces go, by default to the sender."},
		{Key: "providers", Value: providers, Summary: "The ways out, in order."},
		{Key: "templates", Value: c.Templates != nil, Summary: "Whether the application brings templates of its own."},
		{Key: "dkim", Value: signatures, Summary: "The DNS names of the DKIM keys."},
		{Key: "perRecipientPerHour", Value: c.PerRecipientPerHour, Summary: "The most mails to one address in an hour."},
		{Key: "failoverUnhealthyAfter", Value: c.Failover.UnhealthyAfter, Summary: "The failures in a row after which a provider is passed over."},
		{Key: "failoverCooldown", Value: c.Failover.Cooldown.String(), Summary: "How long a provider is passed over."},
		{Key: "maxAttempts", Value: c.Retry.MaxAttempts, Summary: "The most attempts at one message."},
		{Key: "retryBase", Value: c.Retry.Base.String(), Summary: "The pause after the first attempt."},
		{Key: "retryMax", Value: c.Retry.Max.String(), Summary: "The longest pause between attempts."},
		{Key: "giveUpAfter", Value: c.Retry.GiveUpAfter.String(), Summary: "How long a message is repeated."},
		{Key: "softBounceLimit", Value: c.SoftBounces.Limit, Summary: "The temporary bounces that suppress an address."},
		{Key: "softBounceWindow", Value: c.SoftBounces.Window.String(), Summary: "Within which time temporary bounces count."},
		{Key: "softBounceTTL", Value: c.SoftBounces.TTL.String(), Summary: "How long repeated temporary bounces suppress an address."},
		{Key: "webhooks", Value: c.Webhooks.names(), Summary: "The providers whose reports are taken."},
		{Key: "trackClicks", Value: c.Tracking.Clicks, Summary: "Whether links are rewritten to record clicks."},
		{Key: "trackOpens", Value: c.Tracking.Opens, Summary: "Whether an image records opens."},
		{Key: "unsubscribeOnGet", Value: c.UnsubscribeOnGet, Summary: "Whether a mere GET of the link unsubscribes."},
		{Key: "foldPlusTags", Value: c.FoldPlusTags, Summary: "Whether suppressions ignore plus tags."},
		{Key: "maxMessageBytes", Value: c.MaxMessageBytes, Summary: "The size limit of a composed message."},
		{Key: "retentionBodies", Value: c.Retention.Bodies.String(), Summary: "How long messages are kept."},
		{Key: "retentionJobs", Value: c.Retention.Jobs.String(), Summary: "How long jobs are kept."},
		{Key: "database", Value: c.Database, Summary: "The database binding of the jobs."},
		{Key: "basePath", Value: c.BasePath, Summary: "Where the management routes are mounted."},
		{Key: "callbackPath", Value: c.CallbackPath, Summary: "Where the links in mails point to."},
	}
}

// callbackBase returns the beginning of links in mails.
func callbackBase(base *url.URL, path string) string {
	return strings.TrimSuffix(base.String(), "/") + strings.TrimSuffix(path, "/")
}
