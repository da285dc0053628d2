package program

import "syscall"

// attributes returns the attributes of a process group that can be killed as a whole, and whose
// first process is killed when its parent ends.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
