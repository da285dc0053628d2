//go:build unix

package program

import (
	"context"
	"os/exec"
	"strconv"
	"syscall"
)

// bounded is a shell script that sets the limits and executes the program. It is constant: names
// and arguments are passed unchanged.
const bounded = `ulimit -c 0; ulimit -v "$1" 2>/dev/null; ulimit -f "$2" 2>/dev/null; shift 2; exec "$@"`

func command(ctx context.Context, limits Limits, name string, args []string) *exec.Cmd {
	const kilobyte, block = 1 << 10, 512 // the units of ulimit
	args = append([]string{"-c", bounded, "kit", strconv.FormatInt(limits.Memory/kilobyte, 10),
		strconv.FormatInt(limits.File/block+1, 10), name}, args...)
	cmd := exec.CommandContext(ctx, "/bin/sh", args...)
	cmd.SysProcAttr = attributes()
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	return cmd
}
