//go:build unix && !linux

package program

import "syscall"

// attributes returns the attributes of a process group that can be killed as a whole.
func attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
