//go:build !unix

package program

import (
	"context"
	"os/exec"
)

// command has no limits but time on systems without a shell that sets them.
func command(ctx context.Context, _ Limits, name string, args []string) *exec.Cmd {
	return exec.CommandContext(ctx, name, args...)
}
