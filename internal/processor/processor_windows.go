package processor

import (
	"syscall"
	"time"
)

func spent() time.Duration {
	process, err := syscall.GetCurrentProcess()
	if err != nil {
		return 0
	}
	var created, exited, kernel, user syscall.Filetime
	if err := syscall.GetProcessTimes(process, &created, &exited, &kernel, &user); err != nil {
		return 0
	}
	return hundreds(kernel) + hundreds(user)
}

// hundreds returns a duration that the system counts in steps of 100 ns.
func hundreds(f syscall.Filetime) time.Duration {
	return time.Duration(int64(f.HighDateTime)<<32|int64(f.LowDateTime)) * 100
}
