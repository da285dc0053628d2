package kitcmd

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/kitbackend/kit/auth"
	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/email"
	"github.com/kitbackend/kit/internal/local"
	"github.com/kitbackend/kit/kv"
	"github.com/kitbackend/kit/payments"
	"github.com/kitbackend/kit/secrets"
)

// Status is the result of a [Check].
type Status string

// The statuses of a check. A warning may be intended; a failure is not.
const (
	StatusOK      Status = "ok"
	StatusWarning Status = "warning"
	StatusFailure Status = "failure"
)

// Check is one check of doctor.
type Check struct {
	// Name is the subject of the check, such as "database DB" or "secrets".
	Name   string `json:"name"`
	Status Status `json:"status"`
	// Finding is what was found, as a sentence without its final period.
	Finding string `json:"finding"`
	// Fix describes what to do; it is empty if nothing needs to be done.
	Fix string `json:"fix,omitempty"`
}

// maxSkew is the largest tolerated difference between the clocks of a database server and of this
// process.
const maxSkew = 2 * time.Second

// oldSecret is the age from which doctor warns about a credential.
const oldSecret = 365 * 24 * time.Hour

// maxLag is the longest tolerated delay of a due job.
const maxLag = time.Minute

func (p *program) doctor(flags *flag.FlagSet) action {
	mailTo := flags.String("mail", "", "queue a test message to this `address`")
	return func(ctx context.Context, _ []string) error {
		e := &examination{program: p, ctx: ctx, checks: []Check{}, mailTo: *mailTo}
		e.all()
		var found error
		for _, c := range e.checks {
			if c.Status == StatusFailure {
				found = ErrFound
			}
		}
		if done, err := p.printJSON(e.checks); done {
			return errors.Join(err, found)
		}
		for _, c := range e.checks {
			fmt.Fprintf(p.stdout, "%-8s %s: %s\n", c.Status, c.Name, c.Finding)
			if c.Fix != "" {
				fmt.Fprintf(p.stdout, "         %s\n", c.Fix)
			}
		}
		return found
	}
}

// examination is one run of doctor, which collects checks.
type examination struct {
	*program
	ctx    context.Context
	checks []Check
	mailTo string
}

func (e *examination) ok(name, finding string) {
	e.checks = append(e.checks, Check{name, StatusOK, finding, ""})
}

func (e *examination) warn(name, finding, fix string) {
	e.checks = append(e.checks, Check{name, StatusWarning, finding, fix})
}

func (e *examination) fail(name, finding, fix string) {
	e.checks = append(e.checks, Check{name, StatusFailure, finding, fix})
}

func (e *examination) all() {
	e.environment()
	for _, name := range e.names() {
		e.database(name, e.kit.Databases()[name])
	}
	migrated := e.migrations()
	e.masterKeys(migrated)
	if migrated { // the following checks need the tables
		for _, name := range e.names() {
			e.writable(name, e.kit.Databases()[name])
		}
		e.secrets()
		e.health()
		e.jobs()
		e.mail()
	}
	e.origins()
	e.returnURLs()
}

func (e *examination) production() bool { return e.kit.Environment() == capability.Production }

func (e *examination) environment() {
	base, err := url.Parse(e.kit.BaseURL())
	if err != nil {
		e.fail("environment", err.Error(), "set WithBaseURL to the address that clients use")
		return
	}
	here := local.Host(base.Hostname())
	if e.kit.Environment() == capability.Sandbox && !here {
		e.warn("environment", "it is "+capability.Sandbox+" at "+e.kit.BaseURL(), "set KIT_ENVIRONMENT=production if it has real users")
		return
	}
	if e.production() && here {
		e.fail("environment", "it is production at "+e.kit.BaseURL()+", which no client can reach", "set WithBaseURL to the address that clients use")
		return
	}
	e.ok("environment", e.kit.Environment()+" at "+e.kit.BaseURL()+", version "+e.kit.Version())
}

// database checks that a database responds and that its clock agrees with that of this process.
func (e *examination) database(name string, db *database.DB) {
	name = "database " + name
	if err := db.Ping(e.ctx); err != nil {
		e.fail(name, "it does not respond: "+err.Error(), "check its address, credentials and server")
		return
	}
	if skew, err := skewOf(e.ctx, db); err != nil {
		e.fail(name, "its clock cannot be read: "+err.Error(), "check the database server")
	} else if skew.Abs() > maxSkew {
		e.fail(name, fmt.Sprintf("its clock differs by %v from that of this machine", skew.Round(time.Millisecond)),
			"synchronize the clocks of both machines, with chrony or systemd-timesyncd")
	} else {
		e.ok(name, db.Dialect().String()+" responds, its clock agrees")
	}
}

// skewOf returns how far the clock of the server is ahead of that of this process; SQLite has no
// clock of its own.
func skewOf(ctx context.Context, db *database.DB) (time.Duration, error) {
	if db.Dialect() != database.PostgreSQL {
		return 0, nil
	}
	before := time.Now()
	var millis int64
	if err := db.QueryRow(ctx, `SELECT CAST(extract(epoch FROM clock_timestamp()) * 1000 AS BIGINT)`).Scan(&millis); err != nil {
		return 0, err
	}
	middle := before.Add(time.Since(before) / 2)
	return time.UnixMilli(millis).Sub(middle), nil
}

func (e *examination) writable(name string, db *database.DB) {
	name = "writes to " + name
	if err := kv.NewSQL(db).Put(e.ctx, "kit/doctor", []byte("1"), time.Minute); err != nil {
		e.fail(name, "it cannot be written: "+err.Error(), "check the permissions of its user and the disk space")
		return
	}
	e.ok(name, "a key was written")
}

func (e *examination) migrations() bool {
	missing, err := e.kit.PendingMigrations(e.ctx)
	switch {
	case err != nil:
		e.fail("migrations", err.Error(), "run the version that wrote this database, or a newer one")
	case len(missing) > 0:
		e.fail("migrations", fmt.Sprintf("%d are missing, the first is %s", len(missing), missing[0]), "run migrate")
	default:
		e.ok("migrations", "the databases are up to date")
	}
	return err == nil && len(missing) == 0
}

func (e *examination) masterKeys(migrated bool) {
	seals := false
	for _, c := range e.kit.Capabilities() {
		seals = seals || c.Rewrap != nil
	}
	if !seals {
		return
	}
	sealer, err := e.kit.Host().Sealing()
	const fix = "set KIT_MASTER_KEYS, for example to k1:$(openssl rand -base64 32), and keep a copy outside of the machine"
	switch {
	case err != nil:
		e.fail("master keys", err.Error(), fix)
	case sealer.Ephemeral() && e.kit.Environment() != capability.Development:
		e.fail("master keys", "there are none: no other run can decrypt what this one encrypts", fix)
	case sealer.Ephemeral():
		e.warn("master keys", "there are none: no other run can decrypt what this one encrypts", fix)
	case !migrated: // there is nothing to compare them with yet
		e.ok("master keys", "they are set")
	default:
		fit, err := e.kit.MasterKeysFit(e.ctx)
		switch {
		case err != nil:
			e.fail("master keys", "they cannot be compared with those of the database: "+err.Error(), "check the database")
		case !fit:
			e.fail("master keys", "they are not those of this database: its encrypted values cannot be decrypted",
				"set KIT_MASTER_KEYS to those of the other nodes, or, if they are lost, delete the row of kit_master_key")
		default:
			e.ok("master keys", "they are set, and those of the database")
		}
	}
}

// secrets reports each secret that fails, and once those of which something else is true.
func (e *examination) secrets() {
	if e.kit.Secrets() == nil {
		return
	}
	list, err := e.statuses()
	if err != nil {
		e.fail("secrets", "they cannot be read: "+err.Error(), "check the provider of secrets")
		return
	}
	var complete, empty, old []string
	for _, s := range list {
		name := "secret " + s.Name
		var partial []string
		present := false
		for _, b := range s.Blocks {
			present = present || b.Present
			if len(b.Missing) > 0 {
				partial = append(partial, b.Name+" lacks "+strings.Join(b.Missing, " and "))
			}
		}
		switch {
		case s.Problem != "":
			e.fail(name, s.Problem, "check the provider "+s.Provider)
		case len(partial) > 0:
			e.fail(name, "is incomplete: "+strings.Join(partial, "; "), e.give(s.Provider, s.Name))
		case !present:
			empty = append(empty, s.Name)
		case s.NextDueAt != nil && s.NextDueAt.Before(time.Now().Add(-24*time.Hour)):
			e.fail(name, "should have been rotated at "+s.NextDueAt.Format(time.RFC3339), "check its last rotation, and that jobs run")
		case s.LastRotatedAt != nil && time.Since(s.LastRotatedAt.Time) > oldSecret:
			old = append(old, s.Name+" was last rotated on "+s.LastRotatedAt.Format(time.DateOnly))
		default:
			complete = append(complete, s.Name)
		}
	}
	if len(empty) > 0 {
		e.warn("secrets without values", "they are "+strings.Join(empty, ", "), e.give(list[0].Provider, ":name"))
	}
	if len(old) > 0 {
		e.warn("secrets to rotate", strings.Join(old, "; "), "rotate them")
	}
	if len(complete) > 0 {
		e.ok("secrets", strings.Join(complete, ", ")+" are complete")
	}
}

// statuses lists all secrets.
func (e *examination) statuses() (list []secrets.SecretStatus, err error) {
	for page := capability.NewPage(capability.MaxLimit, ""); ; {
		items, err := e.kit.Secrets().ListSecrets(e.ctx, page)
		if list = append(list, items.Items...); err != nil || items.NextCursor == nil {
			return list, err
		}
		page = capability.NewPage(capability.MaxLimit, *items.NextCursor)
	}
}

// give says how a secret of a provider gets its values.
func (e *examination) give(provider, name string) string {
	if provider == new(secrets.Environment).Name() {
		return "give its values in the environment, as secrets.Environment reads them"
	}
	return "give its values with Secrets.Rotate, or with POST " + e.path("secrets", "/secrets") + "/admin/status/" + name + "/rotate of the control plane"
}

// path returns the path prefix of a capability, or otherwise if it is not composed.
func (e *examination) path(name, otherwise string) string {
	for _, c := range e.kit.Capabilities() {
		if c.Name == name {
			return cmp.Or(c.Prefix, otherwise)
		}
	}
	return otherwise
}

func (e *examination) health() {
	if err := e.kit.Ready(e.ctx); err != nil {
		e.fail("health", strings.ReplaceAll(err.Error(), "\n", "; "), "fix what it reports; a readiness probe reports the same")
		return
	}
	e.ok("health", "every aggregate can be read")
}

// jobs checks that a node runs jobs and that none is late or was given up.
func (e *examination) jobs() {
	stats, err := e.kit.Jobs().Stats(e.ctx)
	if err != nil {
		e.fail("jobs", err.Error(), "check the database")
		return
	}
	scheduled := 0
	for _, c := range e.kit.Capabilities() {
		for _, b := range c.Jobs {
			if b.Schedule != "" {
				scheduled++
			}
		}
	}
	switch {
	case stats.Lag > maxLag && stats.Leased == 0:
		e.fail("jobs", fmt.Sprintf("a job has been due for %v and no node has run it", stats.Lag.Round(time.Second)), "call Run or Serve on at least one node")
	case stats.Lag > maxLag:
		e.warn("jobs", fmt.Sprintf("a job has waited for %v: there is more work than workers", stats.Lag.Round(time.Second)), "run more nodes, or find the slow jobs")
	case stats.Discarded > 0:
		e.warn("jobs", fmt.Sprintf("%d jobs were discarded within the last 14 days", stats.Discarded), "read their last error in kit_job, where state is discarded")
	default:
		e.ok("jobs", fmt.Sprintf("%d wait, %d run, none is late; %d bindings have a schedule", stats.Available, stats.Running, scheduled))
	}
}

func (e *examination) mail() {
	if e.kit.Email() == nil {
		if e.kit.Auth() != nil && !(&auth.LibraryHost{Auth: e.kit.Auth()}).CanMail() {
			e.warn("mail", "nothing sends the mails of sign-in", "compose WithEmail, or set Mailer of auth.Config")
		}
		return
	}
	providers, _ := e.config("email", "providers").([]string)
	from, _ := e.config("email", "from").(string)
	switch {
	case len(providers) == 0 && e.production():
		e.fail("mail", "it has no provider", "set Providers of email.Config")
	case len(providers) == 0:
		e.warn("mail", "it is kept in the mailbox, nothing is sent", "set Providers of email.Config to send mail")
	default:
		e.ok("mail", "from "+from+" by "+strings.Join(providers, ", then "))
	}
	if e.mailTo == "" {
		return
	}
	if _, err := e.kit.Email().Send(e.ctx, email.Message{To: e.mailTo, Subject: "A test of the mail of " + e.kit.BaseURL(),
		Text: "The command doctor sent this message to test the delivery of mail. Nothing needs to be done."}); err != nil {
		e.fail("test mail", err.Error(), "see the code in docs/errors.md")
		return
	}
	e.ok("test mail", "queued to "+e.mailTo+"; it is sent where jobs run")
}

// config returns a value of a capability's manifest, or nil.
func (e *examination) config(name, key string) any {
	for _, c := range e.kit.Capabilities() {
		if c.Name != name {
			continue
		}
		for _, k := range c.Config {
			if k.Key == key {
				return k.Value
			}
		}
	}
	return nil
}

// origins checks the origins whose pages may act as users.
func (e *examination) origins() {
	if e.kit.Auth() == nil {
		return
	}
	list, _ := e.config("auth", "trustedOrigins").([]string)
	bad := false
	for _, origin := range list {
		if u, err := url.Parse(origin); e.production() && err == nil && u.Scheme == "http" {
			bad = true
			e.fail("origin "+origin, "is plain http in production: anyone on the network path acts as its users", "serve the page over https, or remove the origin from TrustedOrigins")
		}
	}
	if !bad {
		e.ok("origins", fmt.Sprintf("pages of %d other origins may act as users", len(list)))
	}
}

func (e *examination) returnURLs() {
	urls, ok := e.config("payments", "returnURLs").(map[payments.RailID]payments.ReturnURLs)
	if !ok {
		return
	}
	base, err := url.Parse(e.kit.BaseURL())
	if err != nil {
		return
	}
	for _, rail := range slices.Sorted(maps.Keys(urls)) {
		u := urls[rail]
		var warned []string
		for _, address := range []string{u.Success, u.Cancel, u.Portal} {
			target, err := url.Parse(address)
			if err != nil || address == "" || target.Hostname() == base.Hostname() {
				continue
			}
			origin := target.Scheme + "://" + target.Host
			trusted := e.kit.Auth() != nil && (&auth.LibraryHost{Auth: e.kit.Auth()}).TrustedOrigin(origin)
			if !trusted && !slices.Contains(warned, origin) {
				warned = append(warned, origin)
				e.warn("return address of "+string(rail), origin+" is neither that of the base URL nor a trusted origin", "check that its pages are yours")
			}
		}
	}
	e.ok("return addresses", fmt.Sprintf("of %d rails", len(urls)))
}
