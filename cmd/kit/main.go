// Kit calls a service over its control plane, for the holder of a key, and works on its database,
// for its operator.
//
//	kit keygen   -address URL -environment NAME -key FILE   generate the first key of a connection
//	kit token    -key FILE METHOD URL [BODY]                create the credential of one call
//	kit call     -key FILE METHOD PATH [BODY]               make one call
//	kit manifest -key FILE                                  show what the service composes
//	kit routes   -key FILE                                  list its control-plane routes
//	kit operate  -database DB -as NAME COMMAND              credit, disable, erase, retry; see package operate
//
// BODY is the body itself, @FILE, or - for standard input.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	p := program{stdin: os.Stdin, stdout: os.Stdout, stderr: os.Stderr}
	switch err := p.run(ctx, os.Args[1:]); {
	case errors.Is(err, flag.ErrHelp):
		os.Exit(2)
	case err != nil:
		fmt.Fprintln(os.Stderr, "kit:", err)
		os.Exit(1)
	}
}

// program is one run of the command.
type program struct {
	stdin          io.Reader
	stdout, stderr io.Writer
}

// command is one command: prepare declares its flags and returns the function that runs it.
type command struct {
	name, arguments, summary string
	prepare                  func(*program, *flag.FlagSet) func(context.Context, []string) error
}

var commands = []command{
	{"keygen", "", "generate the first key of a connection", (*program).keygen},
	{"token", "METHOD URL [BODY]", "create the credential of one call", (*program).token},
	{"call", "METHOD PATH [BODY]", "make one call", (*program).call},
	{"manifest", "", "show what the service composes", (*program).manifest},
	{"routes", "", "list the control-plane routes", (*program).routes},
	{"operate", "COMMAND", "work on the database: ledger, user, jobs; -h lists the commands", (*program).operate},
}

func (p *program) run(ctx context.Context, args []string) error {
	if len(args) == 0 || args[0] == "-h" || args[0] == "--help" || args[0] == "help" {
		p.usage()
		return flag.ErrHelp
	}
	i := slices.IndexFunc(commands, func(c command) bool { return c.name == args[0] })
	if i < 0 {
		p.usage()
		return fmt.Errorf("there is no command %q", args[0])
	}
	c := commands[i]
	flags := flag.NewFlagSet("kit "+c.name, flag.ContinueOnError)
	flags.SetOutput(p.stderr)
	flags.Usage = func() {
		fmt.Fprintf(p.stderr, "usage: kit %s [flags] %s\n", c.name, c.arguments)
		flags.PrintDefaults()
	}
	run := c.prepare(p, flags)
	if err := flags.Parse(args[1:]); err != nil {
		return err
	}
	return run(ctx, flags.Args())
}

func (p *program) usage() {
	fmt.Fprintln(p.stderr, "usage: kit COMMAND [flags] [arguments]")
	for _, c := range commands {
		fmt.Fprintf(p.stderr, "  %-9s %-19s %s\n", c.name, c.arguments, c.summary)
	}
}
