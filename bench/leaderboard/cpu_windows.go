package main

import (
	"syscall"
	"time"
)

// cpuTime is what this process has used of the processors.
func cpuTime() time.Duration {
	process, err := syscall.GetCurrentProcess()
	if err != nil {
		return 0
	}
	var created, exited, kernel, user syscall.Filetime
	if err := syscall.GetProcessTimes(process, &created, &exited, &kernel, &user); err != nil {
		return 0
	}
	spent := func(f syscall.Filetime) time.Duration { // in steps of 100 ns
		return time.Duration(int64(f.HighDateTime)<<32|int64(f.LowDateTime)) * 100
	}
	return spent(kernel) + spent(user)
}
