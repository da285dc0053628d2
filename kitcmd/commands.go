package kitcmd

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"text/tabwriter"

	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/controlplane"
)

func (p *program) serve(flags *flag.FlagSet) action {
	addr := flags.String("addr", "localhost:8080", "the `address` to listen on")
	return func(ctx context.Context, _ []string) error { return p.kit.Serve(ctx, *addr, p.handler) }
}

func (p *program) table() *tabwriter.Writer { return tabwriter.NewWriter(p.stdout, 0, 0, 2, ' ', 0) }

// routeLine is a route as printed with -json.
type routeLine struct {
	Method     string `json:"method"`
	Path       string `json:"path"`
	Guard      string `json:"guard"`
	Scope      string `json:"scope"`
	Capability string `json:"capability"`
}

func (p *program) routes(*flag.FlagSet) action {
	return func(context.Context, []string) error {
		lines := []routeLine{}
		for _, r := range p.kit.Routes() {
			lines = append(lines, routeLine{r.Method, r.Path, r.Guard, r.Scope, r.Capability})
		}
		if done, err := p.printJSON(lines); done {
			return err
		}
		w := p.table()
		for _, r := range lines {
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", r.Method, r.Path, r.Guard, r.Scope)
		}
		return w.Flush()
	}
}

// refusalLine is a refusal as printed with -json.
type refusalLine struct {
	Code    string `json:"code"`
	Status  int    `json:"status"`
	Message string `json:"message"`
}

func (p *program) errors(*flag.FlagSet) action {
	return func(context.Context, []string) error {
		list := capability.GeneralRefusals()
		for _, c := range p.kit.Capabilities() {
			list = append(list, c.Refusals...)
		}
		slices.SortFunc(list, func(a, b *capability.Error) int { return cmp.Compare(a.Code, b.Code) })
		list = slices.CompactFunc(list, func(a, b *capability.Error) bool { return a.Code == b.Code })
		lines := []refusalLine{}
		for _, e := range list {
			lines = append(lines, refusalLine{e.Code, e.Status, e.Message})
		}
		if done, err := p.printJSON(lines); done {
			return err
		}
		w := p.table()
		for _, e := range lines {
			fmt.Fprintf(w, "%s\t%d\t%s\n", e.Code, e.Status, e.Message)
		}
		return w.Flush()
	}
}

func (p *program) openapi(*flag.FlagSet) action {
	return func(context.Context, []string) error {
		document, err := p.kit.OpenAPI()
		if err != nil {
			return err
		}
		var indented bytes.Buffer
		if err := json.Indent(&indented, document, "", "  "); err != nil {
			return err
		}
		_, err = indented.WriteTo(p.stdout)
		return err
	}
}

// manifest is the manifest of the control plane, without a connection.
type manifest struct {
	Environment  string               `json:"environment"`
	Version      string               `json:"version"`
	Capabilities []controlplane.Entry `json:"capabilities"`
}

func (p *program) manifest(*flag.FlagSet) action {
	return func(ctx context.Context, _ []string) error {
		base, err := url.Parse(p.kit.BaseURL())
		if err != nil {
			return err
		}
		m := manifest{p.kit.Environment(), p.kit.Version(), controlplane.Describe(ctx, p.kit.Capabilities(), base.Path)}
		if done, err := p.printJSON(m); done {
			return err
		}
		fmt.Fprintf(p.stdout, "%s · version %s\n", m.Environment, m.Version)
		for _, c := range m.Capabilities {
			fmt.Fprintf(p.stdout, "\n%s %s\n", c.Name, c.Version)
			for _, key := range c.ConfigKeys {
				fmt.Fprintf(p.stdout, "  %s = %v\n", key.Key, c.Config[key.Key])
			}
			for _, key := range c.HealthKeys {
				fmt.Fprintf(p.stdout, "  %s: %s\n", key, c.Health[key])
			}
		}
		return nil
	}
}

// migrated lists the migrations that migrate has applied or, with -dry, would apply.
type migrated struct {
	Migrations []string `json:"migrations"`
	Applied    bool     `json:"applied"`
}

func (p *program) migrate(flags *flag.FlagSet) action {
	dry := flags.Bool("dry", false, "only list the missing migrations")
	return func(ctx context.Context, _ []string) error {
		missing, err := p.kit.PendingMigrations(ctx)
		if err != nil {
			return err
		}
		if !*dry {
			if err := p.kit.Migrate(ctx); err != nil {
				return err
			}
		}
		if done, err := p.printJSON(migrated{append([]string{}, missing...), !*dry}); done {
			return err
		}
		verb := "applied"
		if *dry {
			verb = "missing"
		}
		for _, name := range missing {
			fmt.Fprintf(p.stdout, "%s %s\n", verb, name)
		}
		if len(missing) == 0 {
			fmt.Fprintln(p.stdout, "the databases are up to date")
		}
		return nil
	}
}

func (p *program) rewrap(*flag.FlagSet) action {
	return func(ctx context.Context, _ []string) error {
		changed, err := p.kit.Rewrap(ctx)
		if err != nil {
			return fmt.Errorf("the older master keys are still needed, %d values were wrapped again: %w", changed, err)
		}
		if done, err := p.printJSON(map[string]int{"changed": changed}); done {
			return err
		}
		fmt.Fprintf(p.stdout, "%d values were wrapped with the first master key; the older ones can be removed\n", changed)
		return nil
	}
}

// names returns the database bindings, DB first.
func (p *program) names() []string {
	return slices.SortedFunc(maps.Keys(p.kit.Databases()), func(a, b string) int {
		return cmp.Or(cmp.Compare(order(a), order(b)), cmp.Compare(a, b))
	})
}
