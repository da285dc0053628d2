//go:build unix

package file

import (
	"context"
	"errors"
	"os"
	"syscall"
	"time"

	"github.com/kitbackend/kit/storage/bucket"
)

// lockFile waits for a lock on an open file, which other processes observe too.
func lockFile(f *os.File, exclusive bool) error {
	how := syscall.LOCK_SH
	if exclusive {
		how = syscall.LOCK_EX
	}
	return flock(f, how)
}

func flock(f *os.File, how int) error {
	for {
		err := syscall.Flock(int(f.Fd()), how)
		if !errors.Is(err, syscall.EINTR) {
			return err
		}
	}
}

func unlockFile(f *os.File) { _ = syscall.Flock(int(f.Fd()), syscall.LOCK_UN) } // closing unlocks too

// partWait is the interval of tries to lock a part that another process writes.
const partWait = 20 * time.Millisecond

// lockPart waits until no other process writes a part. A body may take long to arrive: a lock that
// waits in the kernel would block a thread and not end with ctx.
func lockPart(ctx context.Context, root *os.Root, name string) (unlock func(), err error) {
	f, err := root.OpenFile(name, os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, missing(err, bucket.ErrNoUpload)
	}
	for {
		err := flock(f, syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return func() { _ = f.Close() }, nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, errors.Join(err, f.Close())
		}
		select {
		case <-time.After(partWait):
		case <-ctx.Done():
			return nil, errors.Join(context.Cause(ctx), f.Close())
		}
	}
}
