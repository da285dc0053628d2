package support

import (
	"cmp"
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"regexp"
	"time"

	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/email"
)

// Config configures support; with the zero value it takes messages from the app only.
type Config struct {
	// InboundAddresses are the addresses whose mail becomes threads, also with a plus tag. If there
	// is none, every mail is ignored.
	InboundAddresses []string
	// AI configures the classification by a model.
	AI AI
	// Categories are added to the eight built-in ones: one with a built-in key replaces its
	// description. At most 40.
	Categories []Category
	// Guard limits the messages that are accepted.
	Guard Guard
	// Authentication configures how the origin of a mail is verified.
	Authentication Authentication
	// Inbound configures signed mail over HTTP; none by default.
	Inbound Inbound
	// Listen configures the SMTP or LMTP listener that runs with the kit; without an address there
	// is none.
	Listen Listen
	// ReplyTemplate returns the name of the email template of a reply, such as one in the language
	// of the thread's user; nil or "" sends plain text. It is called in the transaction of the
	// reply, and an error refuses the reply. The template is executed with a [ReplyData].
	ReplyTemplate func(ctx context.Context, thread Thread) (name string, err error)
	// Database is the name of the database binding of the threads, by default "DB".
	Database string
	// BasePath is the path prefix of the routes, by default "/support".
	BasePath string
}

// AI configures a model that is called through the chat-completions API. The secret
// support-ai-credentials contains its address and key.
type AI struct {
	Enabled bool
	// Model is the name of the model; required if Enabled.
	Model string
	// NoFallback makes a classification fail if the model fails, instead of using the rules.
	NoFallback bool
	// Timeout bounds one request, by default 15 s, at most 60 s.
	Timeout time.Duration
	// Client sends the requests, by default one that follows no redirects.
	Client *http.Client
}

// Guard limits the messages that are accepted.
type Guard struct {
	// MaxRawBytes is the maximum size of a mail, by default 10 MiB, at most 50 MiB.
	MaxRawBytes int64
	// MaxPerSenderPerHour limits the messages of one address or user, by default 20.
	MaxPerSenderPerHour int
	// MaxPerHour limits the mails of all senders and, separately, the messages of all users of the
	// app; by default 500.
	MaxPerHour int
	// KeepSpam leaves messages open that are classified as spam; by default they are archived.
	KeepSpam bool
}

// Authentication configures how the inbox verifies that a mail is from its From domain.
type Authentication struct {
	// ServerID is the authserv-id of your own mail server's Authentication-Results fields. That
	// server must remove forged fields with its name (RFC 8601, section 5). If empty, no such field
	// is trusted.
	ServerID string
	// DKIM makes support verify DKIM signatures itself, with keys from DNS.
	DKIM bool
	// LookupTXT looks up DNS TXT records, by default with the resolver of the machine.
	LookupTXT func(domain string) ([]string, error)
}

// Listen configures the SMTP or LMTP listener.
type Listen struct {
	// Network is "tcp" or "unix", by default "tcp".
	Network string
	// Address is the address to listen on, such as "127.0.0.1:2525".
	Address string
	// LMTP speaks LMTP instead of SMTP.
	LMTP bool
	// Domain is the host name in the greeting, by default "localhost".
	Domain string
	// TLS is the configuration of STARTTLS; if nil, STARTTLS is not offered.
	TLS *tls.Config
	// MaxConnections limits the concurrent connections, by default 50.
	MaxConnections int
	// Timeout bounds each read and write, by default 60 s. A whole mail may take ten times as long.
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
