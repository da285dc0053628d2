//go:build linux || darwin

package soak

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"sync/atomic"
	"syscall"
	"time"
)

// fill works on a disk that fills up: a limit on the size of files stands for it.
// It prints what was acknowledged, and a fault for everything that is not as it
// should be.
func fill(address string) error {
	skew := new(atomic.Int64)
	n, err := start(address, skew)
	if err != nil {
		return err
	}
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &limit); err != nil {
		return err
	}
	room := limit
	size, err := largest(address, address+"-wal")
	if err != nil {
		return err
	}
	room.Cur = uint64(size) + 2<<20
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &room); err != nil {
		return err
	}
	refused := 0
	for i := 0; refused < 20 && i < 5000; i++ {
		ref := fmt.Sprintf("full-%d", i)
		status, response := n.call("POST", "/ledger/coins/credit", fmt.Sprintf(`{"userId":"user0","amount":3,"ref":%q}`, ref), "")
		switch {
		case status == http.StatusCreated:
			n.say("http %s", ref)
		case status == http.StatusServiceUnavailable && code(response) == "kit/unavailable":
			refused++
		default:
			n.say("fault a write on a full disk: %d %s", status, response)
		}
	}
	ctx := context.Background()
	if refused == 0 {
		n.say("fault the disk never was full")
	}
	for _, path := range []string{"/health", "/ledger/coins"} {
		if status, response := n.call("GET", path, "", ""); status != http.StatusOK {
			n.say("fault a read on a full disk: %s: %d %s", path, status, response)
		}
	}
	if n.Ready(ctx) == nil {
		n.say("fault ready though the disk is full")
	}
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &limit); err != nil {
		return err
	}
	skew.Store(int64(time.Minute)) // a failing disk is remembered for a while
	if status, response := n.call("POST", "/ledger/coins/credit", `{"userId":"user0","amount":3,"ref":"room-again"}`, ""); status != http.StatusCreated {
		n.say("fault a write once there is room: %d %s", status, response)
	} else {
		n.say("http room-again")
	}
	if err := n.Ready(ctx); err != nil {
		n.say("fault not ready once there is room: %v", err)
	}
	return n.stop()
}

// largest returns the size of the largest of some files.
func largest(paths ...string) (size int64, err error) {
	for _, path := range paths {
		info, statErr := os.Stat(path)
		if statErr == nil {
			size = max(size, info.Size())
		}
		err = errors.Join(err, statErr)
	}
	return size, err
}
