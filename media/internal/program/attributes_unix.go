//go:build unix && !linux

package program

import "syscall"

// attributes make a group of processes that can be killed together.
func attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
