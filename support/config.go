package support

import (
	"cmp"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"regexp"
	"time"

	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/email"
)

// Config adjusts support; the zero value takes messages from the app only.
type Config struct {
	// InboundAddresses are the addresses whose mail becomes threads, plus tags
	// included. While there is none the inbox ignores every mail.
	InboundAddresses []string
	// AI lets a model classify.
	AI AI
	// Categories are merged over the eight built-in ones: one under a built-in
	// key changes its description. At most 40.
	Categories []Category
	// Guard bounds what is taken.
	Guard Guard
	// Authentication says whose word about a mail's origin counts.
	Authentication Authentication
	// Inbound takes mail over HTTP, signed; none by default.
	Inbound Inbound
	// Listen takes mail over SMTP or LMTP while the kit runs; without an address
	// nothing listens.
	Listen Listen
	// ReplyTemplate returns the name of the email template of a reply, such as
	// one in the language of the thread's metadata; nil or "" sends plain text.
	// The template gets a [ReplyData].
	ReplyTemplate func(Thread) string
	// Database names the binding of the threads, by default "DB".
	Database string
	// BasePath is the mount prefix, by default "/support".
	BasePath string
}

// AI is the model behind an address that speaks the chat-completions form. The
// secret support-ai-credentials holds address and key.
type AI struct {
	Enabled bool
	// Model is the model's name; required when enabled.
	Model string
	// NoFallback makes a classification fail where the model does, instead of
	// falling back on rules.
	NoFallback bool
	// Timeout bounds one request, by default 15 s, at most 60 s.
	Timeout time.Duration
	// Client makes the requests, by default one that follows no redirects.
	Client *http.Client
}

// Guard bounds what comes in.
type Guard struct {
	// MaxRawBytes is the largest mail taken, by default 10 MiB, at most 50 MiB.
	MaxRawBytes int64
	// MaxPerSenderPerHour bounds the messages of one address or user, by default 20.
	MaxPerSenderPerHour int
	// MaxPerHour bounds the mails of everybody, and likewise the messages from
	// the app; by default 500.
	MaxPerHour int
	// KeepSpam leaves messages judged spam open; by default they are archived.
	KeepSpam bool
}

// Authentication says how the inbox learns that a mail is of its From domain.
type Authentication struct {
	// ServerID is the name your own mail server puts at the head of its
	// Authentication-Results. That server must remove those that others forged
	// under its name (RFC 8601, section 5). Empty trusts none.
	ServerID string
	// DKIM checks signatures itself, keys looked up in DNS.
	DKIM bool
	// LookupTXT is how, by default the resolver of the machine.
	LookupTXT func(domain string) ([]string, error)
}

// Listen is where the inbox takes mail.
type Listen struct {
	// Network is "tcp" or "unix", by default "tcp".
	Network string
	// Address is such as "127.0.0.1:2525".
	Address string
	// LMTP speaks LMTP instead of SMTP.
	LMTP bool
	// Domain is what the greeting says, by default "localhost".
	Domain string
	// TLS offers STARTTLS; nil offers none.
	TLS *tls.Config
	// MaxConnections bounds the clients at once, by default 50.
	MaxConnections int
	// Timeout bounds each read and write, by default 60 s. A whole mail may take
	// ten times as long.
	Timeout time.Duration
}

const maxRawCap = 50 << 20

var categoryForm = regexp.MustCompile(`^[a-z][a-z0-9_]{1,39}$`)

const (
	maxCategories  = 40
	maxDescription = 300
)

func (c Config) withDefaults() Config {
	c.Guard.MaxRawBytes = cmp.Or(c.Guard.MaxRawBytes, 10<<20)
	c.Guard.MaxPerSenderPerHour = cmp.Or(c.Guard.MaxPerSenderPerHour, 20)
	c.Guard.MaxPerHour = cmp.Or(c.Guard.MaxPerHour, 500)
	c.AI.Timeout = cmp.Or(c.AI.Timeout, 15*time.Second)
	c.Listen.Network = cmp.Or(c.Listen.Network, "tcp")
	c.Listen.Domain = cmp.Or(c.Listen.Domain, "localhost")
	c.Listen.MaxConnections = cmp.Or(c.Listen.MaxConnections, 50)
	c.Listen.Timeout = cmp.Or(c.Listen.Timeout, time.Minute)
	c.Database = cmp.Or(c.Database, "DB")
	c.BasePath = cmp.Or(c.BasePath, "/support")
	if c.Authentication.LookupTXT == nil {
		c.Authentication.LookupTXT = net.LookupTXT
	}
	if c.AI.Client == nil {
		c.AI.Client = &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	}
	return c
}

func (c Config) validate(peers Peers) error {
	faults := capability.Faults{Capability: Name}
	for i, address := range c.InboundAddresses {
		if _, err := email.Canonical(address); err != nil {
			faults.Add(fmt.Sprintf("inboundAddresses[%d]", i), address, "is not an address", "write it like help@example.com")
		}
	}
	if c.AI.Enabled && c.AI.Model == "" {
		faults.Add("ai.model", nil, "is missing", "name the model, or set ai.enabled to false")
	}
	if c.AI.Enabled && peers.Secrets == nil {
		faults.AddFault(*capability.MissingPeer(Name, "secrets"))
	}
	if c.AI.Timeout < 0 || c.AI.Timeout > time.Minute {
		faults.Add("ai.timeout", c.AI.Timeout.String(), "is out of bounds", "use at most 60 s")
	}
	if g := c.Guard; g.MaxRawBytes < 1<<10 || g.MaxRawBytes > maxRawCap {
		faults.Add("guard.maxRawBytes", g.MaxRawBytes, "is out of bounds", "use 1 KiB to 50 MiB")
	}
	if n := c.Guard.MaxPerSenderPerHour; n < 1 {
		faults.Add("guard.maxPerSenderPerHour", n, "admits nothing", "use a positive number")
	}
	if n := c.Guard.MaxPerHour; n < 1 {
		faults.Add("guard.maxPerHour", n, "admits nothing", "use a positive number")
	}
	c.Inbound.validate(&faults)
	c.validateCategories(&faults)
	c.validateListen(&faults)
	return faults.Err()
}

func (c Config) validateCategories(faults *capability.Faults) {
	if len(c.Categories) > maxCategories {
		faults.Add("categories", len(c.Categories), "are over the limit", "use at most 40")
	}
	seen := make(map[string]bool)
	for i, category := range c.Categories {
		at := func(field string) string { return fmt.Sprintf("categories[%d].%s", i, field) }
		switch {
		case !categoryForm.MatchString(category.Key):
			faults.Add(at("key"), category.Key, "is not a key", "use 2 to 40 lower case letters, digits and underscores")
		case seen[category.Key]:
			faults.Add(at("key"), category.Key, "is declared twice", "declare each category once")
		}
		seen[category.Key] = true
		if len(category.Description) > maxDescription || !clean(category.Description) {
			faults.Add(at("description"), nil, "is too long or not plain text", "use at most 300 bytes on one line")
		}
	}
}

func (c Config) validateListen(faults *capability.Faults) {
	l := c.Listen
	if l.Network != "tcp" && l.Network != "unix" {
		faults.Add("listen.network", l.Network, "is unknown", "use tcp or unix")
	}
	if l.MaxConnections < 1 || l.Timeout < time.Second {
		faults.Add("listen", nil, "is out of bounds", "use at least one connection and a timeout of a second")
	}
}

func (c Config) keys() []capability.ConfigKey {
	keys := func(all []Category) (list []string) {
		for _, category := range all {
			list = append(list, category.Key)
		}
		return list
	}
	return []capability.ConfigKey{
		{Key: "inboundAddresses", Value: c.InboundAddresses, Summary: "The addresses whose mail becomes threads; none leaves the inbox inert."},
		{Key: "ai", Value: map[string]any{"enabled": c.AI.Enabled, "model": c.AI.Model}, Summary: "The model that classifies."},
		{Key: "categories", Value: keys(merged(c.Categories)), Summary: "The categories, own ones last."},
		{Key: "guard.maxRawBytes", Value: c.Guard.MaxRawBytes, Summary: "The largest raw inbound message accepted."},
		{Key: "guard.maxPerSenderPerHour", Value: c.Guard.MaxPerSenderPerHour, Summary: "The most messages of one sender in an hour."},
		{Key: "guard.maxPerHour", Value: c.Guard.MaxPerHour, Summary: "The most messages in an hour."},
		{Key: "guard.archiveSpam", Value: !c.Guard.KeepSpam, Summary: "Whether messages judged spam are archived."},
		{Key: "inbound", Value: c.Inbound.names(), Summary: "The senders that hand mail over by signed requests."},
		{Key: "authentication", Value: map[string]any{"serverId": c.Authentication.ServerID, "dkim": c.Authentication.DKIM}, Summary: "What proves the sender of a mail."},
		{Key: "replyTemplate", Value: c.ReplyTemplate != nil, Summary: "Whether replies have a form of the application's own."},
		{Key: "listen", Value: c.Listen.Address, Summary: "Where mail is taken over SMTP or LMTP; empty: nowhere."},
		{Key: "database", Value: c.Database, Summary: "The database binding that holds the threads."},
		{Key: "basePath", Value: c.BasePath, Summary: "Where the routes are mounted."},
	}
}
