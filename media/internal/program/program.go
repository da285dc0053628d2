// Package program runs programs that read untrusted files: with limits on time, memory and the size
// of the files they write, and kills them with every process they started.
package program

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"
)

// Limits bound a program.
type Limits struct {
	// Time is wall time.
	Time time.Duration
	// Memory bounds the address space and File the size of one file, in bytes. Both apply only
	// where a shell can set them.
	Memory, File int64
}

// Bounds of the output that is kept of a program, in bytes.
const (
	maxOutput    = 64 << 10
	maxComplaint = 2 << 10
	// patience is how long a killed program may keep its pipes open.
	patience = 5 * time.Second
)

// ErrFailed reports a program that exited with a failure.
var ErrFailed = errors.New("program: failed")

// Run runs a program in a directory, which is also its home, and returns its output. It fails with
// ErrFailed, with the cause of ctx, or with context.DeadlineExceeded after Limits.Time.
func Run(ctx context.Context, dir string, limits Limits, name string, args ...string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, limits.Time)
	defer cancel()
	cmd := command(ctx, limits, name, args)
	var output, complaint bytes.Buffer
	cmd.Dir, cmd.WaitDelay = dir, patience
	cmd.Stdout, cmd.Stderr = &head{&output, maxOutput}, &head{&complaint, maxComplaint}
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "TMPDIR=" + dir, "LC_ALL=C",
		"VIPS_CONCURRENCY=1", "VIPS_BLOCK_UNTRUSTED=1"}
	err := cmd.Run()
	var ended *exec.ExitError
	switch {
	case ctx.Err() != nil:
		return nil, fmt.Errorf("program: %s: %w", name, context.Cause(ctx))
	case errors.As(err, &ended):
		return nil, fmt.Errorf("%w: %s: %w: %s", ErrFailed, name, err, strings.ToValidUTF8(complaint.String(), "?"))
	default:
		return output.Bytes(), err
	}
}

// head keeps the first bytes that are written and discards the rest.
type head struct {
	to   io.Writer
	left int
}

func (h *head) Write(p []byte) (int, error) {
	n := min(len(p), h.left)
	h.left -= n
	_, err := h.to.Write(p[:n])
	return len(p), err
}
