package events

import (
	"cmp"
	"encoding/base64"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/secrets"
)

const day = 24 * time.Hour

// The bounds of the configuration.
const (
	maxEndpoints = 32
	maxTimeout   = time.Minute
	minSecret    = 24 // in bytes, as the specification of the signature requires
	maxSecret    = 64
)

// Config configures the endpoints and their messages.
type Config struct {
	// Endpoints are the receivers, at most 32.
	Endpoints []Endpoint
	// DisableAfter is how long all attempts on an endpoint must fail before it is disabled, at
	// least an hour; by default 5 days.
	DisableAfter time.Duration
	// Retention is how long messages are kept, at least a day; by default 30 days.
	Retention time.Duration
	// Timeout bounds one attempt, at most a minute; by default 15 seconds.
	Timeout time.Duration
	// Database is the name of the database binding of the outbox, by default "DB". It must be the
	// binding of the capabilities whose events are sent.
	Database string
}

// Endpoint is a receiver.
type Endpoint struct {
	// Name matches ^[a-z][a-z0-9-]{0,39}$ and identifies the endpoint in Go and in the name of its
	// secret.
	Name string
	// URL is the URL that messages are posted to, https unless Private.
	URL string
	// Events are the types of the events to send, see [Types]; none means all.
	Events []string
	// Secret is "whsec_" and the base64 of 24 to 64 random bytes. If empty, the secret is stored by
	// the capability secrets, as block "signing", field "secret" of the secret "events-" and the
	// name. There it can be rotated; for a day after a rotation, messages are signed with the
	// previous secret too.
	Secret string
	// Private allows an endpoint with http and in a private network.
	Private bool
}

var nameForm = regexp.MustCompile(`^[a-z][a-z0-9-]{0,39}$`)

func (c Config) withDefaults() Config {
	c.DisableAfter = cmp.Or(c.DisableAfter, 5*day)
	c.Retention = cmp.Or(c.Retention, 30*day)
	c.Timeout = cmp.Or(c.Timeout, 15*time.Second)
	c.Database = cmp.Or(c.Database, "DB")
	return c
}

func (c Config) validate(faults *capability.Faults, secrets bool) {
	if len(c.Endpoints) > maxEndpoints {
		faults.Add("endpoints", len(c.Endpoints), "are too many", fmt.Sprintf("name %d at most", maxEndpoints))
	}
	seen := make(map[string]bool)
	for i, to := range c.Endpoints {
		at := func(field string) string { return fmt.Sprintf("endpoints[%d].%s", i, field) }
		switch {
		case !nameForm.MatchString(to.Name):
			faults.Add(at("name"), to.Name, "is not a name of an endpoint", "use lower case letters, digits and hyphens, 40 at most")
		case seen[to.Name]:
			faults.Add(at("name"), to.Name, "is declared twice", "give each endpoint a name of its own")
		}
		seen[to.Name] = true
		to.validate(faults, at, secrets)
	}
	if c.DisableAfter < time.Hour {
		faults.Add("disableAfter", c.DisableAfter.String(), "is too short", "give an hour at least")
	}
	if c.Retention < day {
		faults.Add("retention", c.Retention.String(), "is too short", "give a day at least")
	}
	if c.Timeout <= 0 || c.Timeout > maxTimeout {
		faults.Add("timeout", c.Timeout.String(), "is out of range", "give a minute at most")
	}
}

func (e Endpoint) validate(faults *capability.Faults, at func(string) string, keeps bool) {
	u, err := url.Parse(e.URL)
	switch {
	case err != nil || u.Host == "" || u.User != nil || u.Fragment != "" || u.Scheme != "https" && u.Scheme != "http":
		faults.Add(at("url"), nil, "is not an address", "write it like https://example.com/hooks")
	case u.Scheme != "https" && !e.Private:
		faults.Add(at("url"), nil, "is not https", "use https, or set Private for an endpoint of your own network")
	}
	for _, name := range e.Events {
		if !slices.Contains(Types(), name) {
			faults.Add(at("events"), name, "is not an event", "use one of "+strings.Join(Types(), ", "))
		}
	}
	switch _, err := signingKey(e.Secret); {
	case e.Secret == "" && !keeps:
		faults.AddFault(capability.Fault{Key: at("secret"), Reason: "is missing", Fix: "set it, or compose secrets, which then keeps it",
			Peer: secrets.Name})
	case e.Secret != "" && err != nil:
		faults.Add(at("secret"), nil, err.Error(), "make one with echo whsec_$(openssl rand -base64 32)")
	}
}

const secretPrefix = "whsec_"

// signingKey decodes a secret. Its error does not quote it.
func signingKey(secret string) ([]byte, error) {
	text, ok := strings.CutPrefix(secret, secretPrefix)
	key, err := base64.StdEncoding.DecodeString(text)
	if !ok || err != nil || len(key) < minSecret || len(key) > maxSecret {
		return nil, fmt.Errorf("is not %s and the base64 of %d to %d bytes", secretPrefix, minSecret, maxSecret)
	}
	return key, nil
}

// shown is an endpoint in the manifest, without the URL, which may contain a token.
type shown struct {
	Name    string   `json:"name"`
	Host    string   `json:"host"`
	Events  []string `json:"events"`
	Private bool     `json:"private"`
}

func (c Config) keys() []capability.ConfigKey {
	list := make([]shown, len(c.Endpoints))
	for i, to := range c.Endpoints {
		u, _ := url.Parse(to.URL) // checked by validate
		list[i] = shown{to.Name, u.Host, append([]string{}, to.Events...), to.Private}
	}
	return []capability.ConfigKey{
		{Key: "endpoints", Value: list, Summary: "Who is told; no events means all."},
		{Key: "disableAfterSeconds", Value: int64(c.DisableAfter / time.Second), Summary: "How long an endpoint fails before it is disabled."},
		{Key: "retentionSeconds", Value: int64(c.Retention / time.Second), Summary: "How long messages are kept."},
		{Key: "timeoutSeconds", Value: c.Timeout.Seconds(), Summary: "How long one attempt takes at most."},
		{Key: "database", Value: c.Database, Summary: "The database binding of the outbox."},
	}
}
