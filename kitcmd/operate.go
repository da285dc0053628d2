package kitcmd

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"os"

	"github.com/kitbackend/kit/operate"
)

// operate runs the operator's commands of package operate, with all that the application composes.
func (p *program) operate(flags *flag.FlagSet) action {
	as := flags.String("as", cmp.Or(os.Getenv("SUDO_USER"), os.Getenv("USER")), "the operator's `name` in the audit trail")
	usage := flags.Usage
	flags.Usage = func() {
		usage()
		fmt.Fprintln(p.stderr, operate.Usage)
	}
	return func(ctx context.Context, args []string) error {
		return operate.Run(ctx, p.kit, operate.Options{As: *as, Out: p.stdout}, args)
	}
}
