//go:build !unix

package program

import (
	"context"
	"os/exec"
)

// command only limits the time, on systems without a shell that sets limits.
func command(ctx context.Context, _ Limits, name string, args []string) *exec.Cmd {
	return exec.CommandContext(ctx, name, args...)
}
