// Package kitcmd gives an application a command line for its composition, with one line in main
// after [kit.New].
//
//	func main() {
//		k, err := kit.New(kit.WithLedger(coins))
//		if err != nil {
//			log.Fatal(err)
//		}
//		kitcmd.Main(k)
//	}
//
// The commands are serve, routes, errors, openapi, manifest, migrate, doctor, backup, import, verify,
// rewrap and operate. Each accepts -json, with which a command that has a result prints it as one
// JSON value. They act with the rights of the process, without a credential. A SQLite file can be
// open in one process only, so while the application serves, its other commands are refused; on
// PostgreSQL they run at the same time. [WithCommand] adds commands of the application.
package kitcmd

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"syscall"

	"github.com/kitbackend/kit"
)

// ErrFound is the error of [Run] if a command completed and found problems, which it has printed:
// doctor, verify and backup.
var ErrFound = errors.New("kitcmd: faults were found")

// Option configures [Main] and [Run].
type Option func(*program)

// WithHandler sets the handler that serve serves, such as the application's router with the kit
// mounted in it; by default it is the kit.
func WithHandler(h http.Handler) Option { return func(p *program) { p.handler = h } }

// WithCommand adds a command of the application, or replaces a command of the kit. run is called
// with the arguments after the name.
func WithCommand(name, summary string, run func(ctx context.Context, args []string) error) Option {
	return func(p *program) {
		own := command{name: name, summary: summary, prepare: func(*program, *flag.FlagSet) action { return run }}
		if i := slices.IndexFunc(p.commands, func(c command) bool { return c.name == name }); i >= 0 {
			p.commands[i] = own
			return
		}
		p.commands = append(p.commands, own)
	}
}

// Main runs the command named by the arguments of the process, closes the kit and its databases, and
// exits: with status 0 after success, with 1 after an error or a finding, and with 2 after printing
// the usage. SIGINT or SIGTERM cancels the command.
func Main(k *kit.Kit, opts ...Option) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := runAndClose(ctx, k, os.Args, os.Stdout, os.Stderr, opts...)
	stop()
	switch {
	case errors.Is(err, flag.ErrHelp):
		os.Exit(2)
	case errors.Is(err, ErrFound):
		os.Exit(1)
	case err != nil:
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// runAndClose closes the databases too, because nobody can after Main: a copy of a SQLite file alone
// has what was written only after that.
func runAndClose(ctx context.Context, k *kit.Kit, args []string, stdout, stderr io.Writer, opts ...Option) error {
	err := Run(ctx, k, args, stdout, stderr, opts...)
	for _, db := range k.Databases() {
		err = errors.Join(err, db.Close())
	}
	return err
}

// Run is [Main] for tests and for programs with their own main function: args begins with the
// program's name, and the error is nil where Main exits with 0, [ErrFound] after findings and
// [flag.ErrHelp] after printing the usage. It closes the kit, and no database that it was given.
func Run(ctx context.Context, k *kit.Kit, args []string, stdout, stderr io.Writer, opts ...Option) error {
	p := &program{kit: k, stdout: stdout, stderr: stderr, name: "app", commands: slices.Clone(commands)}
	for _, opt := range opts {
		opt(p)
	}
	if len(args) > 0 {
		p.name, args = filepath.Base(args[0]), args[1:]
	}
	return errors.Join(p.run(ctx, args), k.Close(context.WithoutCancel(ctx)))
}

// program is one run of the command line.
type program struct {
	kit            *kit.Kit
	handler        http.Handler
	name           string
	stdout, stderr io.Writer
	commands       []command
	json           bool
}

// action runs a command once its flags are parsed.
type action = func(ctx context.Context, args []string) error

// command is one command: prepare declares its flags and returns the function that runs it.
type command struct {
	name, arguments, summary string
	prepare                  func(*program, *flag.FlagSet) action
}

var commands = []command{
	{"serve", "", "serve requests and run jobs until interrupted", (*program).serve},
	{"routes", "", "list the route table", (*program).routes},
	{"errors", "", "list every code that a refusal can carry", (*program).errors},
	{"openapi", "", "print the OpenAPI document", (*program).openapi},
	{"manifest", "", "show what is composed, its configuration and health", (*program).manifest},
	{"migrate", "", "bring the databases up to date", (*program).migrate},
	{"doctor", "", "check the installation and suggest fixes", (*program).doctor},
	{"backup", "FOLDER", "copy the SQLite databases of an application that is stopped", (*program).backup},
	{"import", "FOLDER", "copy the files of a backup into new PostgreSQL databases", (*program).importBackup},
	{"verify", "", "verify ledger, boards, audit trail and storage", (*program).verify},
	{"rewrap", "", "seal everything with the first master key", (*program).rewrap},
	{"operate", "COMMAND", "credit, disable, erase, retry jobs; -h lists the commands", (*program).operate},
}

func (p *program) run(ctx context.Context, args []string) error {
	if len(args) == 0 || args[0] == "-h" || args[0] == "--help" || args[0] == "help" {
		p.usage()
		return flag.ErrHelp
	}
	i := slices.IndexFunc(p.commands, func(c command) bool { return c.name == args[0] })
	if i < 0 {
		p.usage()
		return fmt.Errorf("there is no command %q", args[0])
	}
	c := p.commands[i]
	flags := flag.NewFlagSet(p.name+" "+c.name, flag.ContinueOnError)
	flags.SetOutput(p.stderr)
	flags.Usage = func() {
		fmt.Fprintf(p.stderr, "usage: %s %s [flags] %s\n", p.name, c.name, c.arguments)
		flags.PrintDefaults()
	}
	flags.BoolVar(&p.json, "json", false, "print one JSON value")
	run := c.prepare(p, flags)
	if err := flags.Parse(args[1:]); err != nil {
		return err
	}
	if c.arguments == "" && flags.NArg() > 0 && slices.ContainsFunc(commands, func(o command) bool { return o.name == c.name }) {
		flags.Usage()
		return fmt.Errorf("%s takes no arguments", c.name)
	}
	return run(ctx, flags.Args())
}

func (p *program) usage() {
	fmt.Fprintf(p.stderr, "usage: %s COMMAND [flags] [arguments]\n", p.name)
	for _, c := range p.commands {
		fmt.Fprintf(p.stderr, "  %-9s %-7s %s\n", c.name, c.arguments, c.summary)
	}
}

// printJSON prints a value if -json is set, and reports whether it did.
func (p *program) printJSON(value any) (done bool, err error) {
	if !p.json {
		return false, nil
	}
	enc := json.NewEncoder(p.stdout)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return true, enc.Encode(value)
}
