// Package operate is the operator's interface for a shell: it credits and debits users, disables
// and erases them, finds transactions of the ledger by their ref, and lists and retries jobs.
//
// The operate command of package kitcmd runs it in the program of the application, where all its
// hooks and capabilities are, so that none of this needs an HTTP route. The command cmd/kit runs it
// with only a database. Changes are recorded by audit, with the operator as the actor.
package operate

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/kitbackend/kit"
	"github.com/kitbackend/kit/audit"
	"github.com/kitbackend/kit/auth"
	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/jobs"
	"github.com/kitbackend/kit/ledger"
)

// Options are the operator and the output of a command.
type Options struct {
	// As is the name of the operator in the audit trail; required.
	As string
	// Out is where results are written, as JSON.
	Out io.Writer
}

// Usage lists the commands.
const Usage = `the commands are:
  ledger credit [-memo TEXT] USER CURRENCY AMOUNT REF
  ledger debit  [-memo TEXT] USER CURRENCY AMOUNT REF
  ledger find REF
  user show|disable|enable|erase|erasure USER
  jobs list [-state STATE] [-binding NAME] [-limit N]
  jobs retry ID...
USER is an id or, except for erasure, an address`

// ErrUsage is the error of an unknown command or of wrong arguments; its text includes [Usage].
var ErrUsage = errors.New("unknown command; " + Usage)

// command describes one command.
type command struct {
	least, most int // bounds of the number of arguments
	run         func(*call) error
}

var commands = map[string]command{
	"ledger credit": {4, 4, func(c *call) error { return c.move((*ledger.Ledger).StaffCredit) }},
	"ledger debit":  {4, 4, func(c *call) error { return c.move((*ledger.Ledger).StaffDebit) }},
	"ledger find":   {1, 1, (*call).find},
	"user show":     {1, 1, (*call).show},
	"user disable":  {1, 1, func(c *call) error { return c.lock(false) }},
	"user enable":   {1, 1, func(c *call) error { return c.lock(true) }},
	"user erase":    {1, 1, (*call).erase},
	"user erasure":  {1, 1, (*call).erasure},
	"jobs list":     {0, 0, (*call).jobs},
	"jobs retry":    {1, 100, (*call).retry},
}

// call is one run of a command.
type call struct {
	ctx                  context.Context
	k                    *kit.Kit
	out                  io.Writer
	args                 []string
	memo, state, binding string
	limit                int
}

// Run runs one command. It refuses with the refusals of the operations, and with [ErrUsage] for a
// command that it does not know or whose arguments are wrong.
func Run(ctx context.Context, k *kit.Kit, o Options, args []string) error {
	if len(args) < 2 {
		return ErrUsage
	}
	verb, known := commands[args[0]+" "+args[1]]
	if !known {
		return ErrUsage
	}
	if o.As == "" {
		return errors.New("operate: the operator has no name: give one with -as NAME, or in Options.As")
	}
	c := &call{ctx: audit.As(ctx, audit.Actor{Kind: audit.ActorOperator, ID: o.As}), k: k, out: o.Out}
	flags := flag.NewFlagSet("operate", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	flags.StringVar(&c.memo, "memo", "", "")
	flags.StringVar(&c.state, "state", "", "")
	flags.StringVar(&c.binding, "binding", "", "")
	flags.IntVar(&c.limit, "limit", 0, "")
	if err := flags.Parse(args[2:]); err != nil {
		return fmt.Errorf("%w: %w", err, ErrUsage)
	}
	if c.args = flags.Args(); len(c.args) < verb.least || len(c.args) > verb.most {
		return ErrUsage
	}
	return verb.run(c)
}

func (c *call) print(value any) error {
	text, err := json.MarshalIndent(value, "", "  ")
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(c.out, "%s\n", text)
	return err
}

var (
	errNoLedger = errors.New("there is no ledger")
	errNoAuth   = errors.New("there are no users: auth is not composed")
)

// user returns the id of the user that the first argument names, by id or by address. An address
// that nobody has is refused: as an id it would get the money, or count as erased, of nobody.
func (c *call) user() (id string, err error) {
	given := c.args[0]
	if c.k.Auth() == nil || !strings.Contains(given, "@") {
		return given, nil
	}
	if _, err := c.k.Auth().User(c.ctx, given); !errors.Is(err, auth.ErrUserNotFound) {
		return given, err
	}
	user, found, err := c.k.Auth().UserByEmail(c.ctx, given)
	if err == nil && !found {
		err = fmt.Errorf("no user has the address %s", given)
	}
	return user.ID, err
}

func (c *call) move(operation func(*ledger.Ledger, context.Context, ledger.Entry) (ledger.Transaction, error)) error {
	if c.k.Ledger() == nil {
		return errNoLedger
	}
	amount, err := strconv.ParseInt(c.args[2], 10, 64)
	if err != nil {
		return fmt.Errorf("the amount %q is no whole number of minor units", c.args[2])
	}
	userID, err := c.user()
	if err != nil {
		return err
	}
	t, err := operation(c.k.Ledger(), c.ctx, ledger.Entry{
		UserID: userID, Currency: c.args[1], Amount: amount, Ref: c.args[3], Memo: c.memo})
	if err != nil {
		return err
	}
	return c.print(t)
}

func (c *call) find() error {
	if c.k.Ledger() == nil {
		return errNoLedger
	}
	t, ok, err := c.k.Ledger().Find(c.ctx, c.args[0])
	if err != nil {
		return err
	}
	if !ok {
		return fmt.Errorf("the ledger has no transaction under %q", c.args[0])
	}
	return c.print(t)
}

func (c *call) show() error {
	if c.k.Auth() == nil {
		return errNoAuth
	}
	id, err := c.user()
	if err != nil {
		return err
	}
	user, err := c.k.Auth().User(c.ctx, id)
	if err != nil {
		return err
	}
	return c.print(account{user.ID, user.Email, capability.Time{Time: user.CreatedAt}, capability.Time{Time: user.DisabledAt}})
}

// account is the output for a user.
type account struct {
	ID        string          `json:"id"`
	Email     string          `json:"email,omitempty"`
	CreatedAt capability.Time `json:"createdAt"`
	// DisabledAt is absent unless the user is disabled.
	DisabledAt capability.Time `json:"disabledAt,omitzero"`
}

// job is the output for a job.
type job struct {
	ID          string          `json:"id"`
	Binding     string          `json:"binding"`
	Key         string          `json:"key,omitempty"`
	State       jobs.State      `json:"state"`
	Attempt     int             `json:"attempt"`
	MaxAttempts int             `json:"maxAttempts"`
	RunAt       capability.Time `json:"runAt"`
	FinishedAt  capability.Time `json:"finishedAt,omitzero"`
	LastError   string          `json:"lastError,omitempty"`
}

func (c *call) lock(open bool) error {
	if c.k.Auth() == nil {
		return errNoAuth
	}
	change := c.k.Auth().DisableUser
	if open {
		change = c.k.Auth().EnableUser
	}
	id, err := c.user()
	if err != nil {
		return err
	}
	if err := change(c.ctx, id); err != nil {
		return err
	}
	return c.show()
}

// erase requests the erasure; a job of the application performs it.
func (c *call) erase() error {
	id, err := c.user()
	if err != nil {
		return err
	}
	err = c.k.Database().InTx(c.ctx, func(ctx context.Context) error {
		if err := c.k.EraseUser(ctx, id); err != nil {
			return err
		}
		return c.k.Audit().Record(ctx, audit.Event{Action: "kit/erasure_requested", Subject: audit.Target{Type: "user", ID: id}})
	})
	if err != nil {
		return err
	}
	return c.erasureOf(id)
}

// erasure takes an id only, because an erased user has no address.
func (c *call) erasure() error { return c.erasureOf(c.args[0]) }

func (c *call) erasureOf(id string) error {
	erasure, err := c.k.Erasure(c.ctx, id)
	if err != nil {
		return err
	}
	return c.print(erasure)
}

// states are the states that a list of jobs can be restricted to.
var states = []jobs.State{jobs.StateAvailable, jobs.StateRunning, jobs.StateCompleted, jobs.StateDiscarded, jobs.StateCancelled}

func (c *call) jobs() error {
	if c.state != "" && !slices.Contains(states, jobs.State(c.state)) {
		return fmt.Errorf("there is no state %q: the states are %v", c.state, states)
	}
	list, err := c.k.ListJobs(c.ctx, jobs.Filter{Binding: c.binding, State: jobs.State(c.state)}, c.limit)
	if err != nil {
		return err
	}
	seen := make([]job, len(list))
	for i, j := range list {
		seen[i] = job{j.ID, j.Binding, j.Key, j.State, j.Attempt, j.MaxAttempts,
			capability.Time{Time: j.RunAt}, capability.Time{Time: j.FinishedAt}, j.LastError}
	}
	return c.print(seen)
}

func (c *call) retry() error {
	for _, id := range c.args {
		ok, err := c.k.RetryJob(c.ctx, id)
		if err != nil {
			return err
		}
		if !ok {
			return fmt.Errorf("job %s does not exist, is running, is done, or has been replaced by a newer one", id)
		}
	}
	return c.print(map[string]int{"retried": len(c.args)})
}
