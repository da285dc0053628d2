//go:build unix

package bench

import (
	"syscall"
	"time"
)

// spent is the processor time of this process.
func spent() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
