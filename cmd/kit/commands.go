package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/kitbackend/kit/controlplane/client"
)

// maxBody is the maximum size of a request body from a file or standard input, in bytes.
const maxBody = 1 << 20

func keyFlag(flags *flag.FlagSet) *string {
	return flags.String("key", "kit-key.json", "the key `file`, readable only by its owner")
}

func scopeFlag(flags *flag.FlagSet) *string {
	return flags.String("scope", "", "the `scopes` to request, separated by spaces")
}

func (p *program) keygen(flags *flag.FlagSet) func(context.Context, []string) error {
	address := flags.String("address", "", "the control plane's `URL`, such as https://example.com/control-plane")
	environment := flags.String("environment", "", "the `name` of the service's environment, such as production")
	issuer := flags.String("issuer", "", "the `origin` you sign as; by default that of the address")
	key := keyFlag(flags)
	return func(_ context.Context, args []string) error {
		if *address == "" || *environment == "" || len(args) > 0 {
			flags.Usage()
			return errors.New("keygen needs -address and -environment")
		}
		identity, err := client.Generate(*address, *environment, *issuer)
		if err != nil {
			return err
		}
		if _, err := client.New(identity); err != nil {
			return err
		}
		if err := identity.Create(*key); err != nil {
			return err
		}
		fmt.Fprintf(p.stderr, "The private key is in %s. Start the service with this in its environment:\n", *key)
		fmt.Fprintf(p.stdout, "KIT_CONTROL_PLANE_CONNECTION='%s'\n", identity.Bootstrap())
		return nil
	}
}

func (p *program) token(flags *flag.FlagSet) func(context.Context, []string) error {
	key, scope := keyFlag(flags), scopeFlag(flags)
	return func(_ context.Context, args []string) error {
		if len(args) < 2 || len(args) > 3 {
			flags.Usage()
			return errors.New("token needs a method and an address")
		}
		identity, err := client.Load(*key)
		if err != nil {
			return err
		}
		body, err := p.body(args[2:])
		if err != nil {
			return err
		}
		token, err := identity.Token(time.Now(), strings.ToUpper(args[0]), args[1], body, strings.Fields(*scope)...)
		if err == nil {
			fmt.Fprintln(p.stdout, token)
		}
		return err
	}
}

func (p *program) call(flags *flag.FlagSet) func(context.Context, []string) error {
	key, scope := keyFlag(flags), scopeFlag(flags)
	return func(ctx context.Context, args []string) error {
		if len(args) < 2 || len(args) > 3 {
			flags.Usage()
			return errors.New("call needs a method and a path")
		}
		c, err := load(*key)
		if err != nil {
			return err
		}
		body, err := p.body(args[2:])
		if err != nil {
			return err
		}
		var in any // nil sends no body
		if body != nil {
			in = json.RawMessage(body)
		}
		var response json.RawMessage
		if err := c.Call(ctx, strings.ToUpper(args[0]), args[1], in, &response, strings.Fields(*scope)...); err != nil {
			return err
		}
		return p.printJSON(response)
	}
}

func (p *program) manifest(flags *flag.FlagSet) func(context.Context, []string) error {
	key, asJSON := keyFlag(flags), flags.Bool("json", false, "print the response as JSON")
	return func(ctx context.Context, _ []string) error {
		m, err := fetch(ctx, *key)
		if err != nil {
			return err
		}
		if *asJSON {
			return p.printJSON(m)
		}
		fmt.Fprintf(p.stdout, "%s · %s · version %s\n", m.ConnectionID, m.Environment, m.Version)
		for _, c := range m.Capabilities {
			fmt.Fprintf(p.stdout, "\n%s %s · %d control-plane routes\n", c.Name, c.Version, len(c.AdminRoutes))
			for _, k := range c.ConfigKeys {
				fmt.Fprintf(p.stdout, "  %s = %s\n", k.Key, c.Config[k.Key])
			}
			for _, k := range c.HealthKeys {
				fmt.Fprintf(p.stdout, "  %s: %s\n", k, c.Health[k])
			}
		}
		return nil
	}
}

func (p *program) routes(flags *flag.FlagSet) func(context.Context, []string) error {
	key, asJSON := keyFlag(flags), flags.Bool("json", false, "print a JSON array")
	return func(ctx context.Context, _ []string) error {
		m, err := fetch(ctx, *key)
		if err != nil {
			return err
		}
		routes := []client.Route{}
		for _, c := range m.Capabilities {
			routes = append(routes, c.AdminRoutes...)
		}
		if *asJSON {
			return p.printJSON(routes)
		}
		w := tabwriter.NewWriter(p.stdout, 0, 0, 2, ' ', 0)
		for _, r := range routes {
			scope := r.Scope
			if scope == "" {
				scope = "-"
			}
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", r.Method, r.Path, scope, r.Summary)
		}
		return w.Flush()
	}
}

func load(path string) (*client.Client, error) {
	identity, err := client.Load(path)
	if err != nil {
		return nil, err
	}
	return client.New(identity)
}

func fetch(ctx context.Context, path string) (client.Manifest, error) {
	c, err := load(path)
	if err != nil {
		return client.Manifest{}, err
	}
	return c.Manifest(ctx)
}

// body returns the body given by the optional last argument, or nil if there is none.
func (p *program) body(args []string) ([]byte, error) {
	if len(args) == 0 {
		return nil, nil
	}
	path, isFile := strings.CutPrefix(args[0], "@")
	switch {
	case args[0] == "-":
		return limited(p.stdin)
	case !isFile:
		return []byte(args[0]), nil
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return limited(f)
}

func limited(r io.Reader) ([]byte, error) {
	body, err := io.ReadAll(io.LimitReader(r, maxBody+1))
	if err == nil && len(body) > maxBody {
		err = fmt.Errorf("the body has more than %d bytes", maxBody)
	}
	return body, err
}

func (p *program) printJSON(value any) error {
	text, err := json.MarshalIndent(value, "", "  ")
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(p.stdout, "%s\n", text)
	return err
}
