package program

import "syscall"

// attributes make a group of processes that can be killed together, and whose
// first goes with the process that started it.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
