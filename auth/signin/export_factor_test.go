package signin

import (
	"context"
	"crypto/hmac"
	"crypto/sha1"
	"encoding/binary"
	"fmt"
	"runtime"
	"time"

	"github.com/kitbackend/kit/auth/signin/passkey"
)

// TOTPCode is what an authenticator shows at an instant (RFC 6238).
func TOTPCode(secret []byte, at time.Time) string {
	mac := hmac.New(sha1.New, secret)
	mac.Write(binary.BigEndian.AppendUint64(nil, uint64(at.Unix()/30)))
	sum := mac.Sum(nil)
	return fmt.Sprintf("%06d", binary.BigEndian.Uint32(sum[sum[19]&0xf:])&0x7fffffff%1_000_000)
}

// MaxPasskeys is how many a user may have.
const MaxPasskeys = passkey.MaxPerUser

// WhileHashing has a request wait for its turn to hash, and changes something before it
// goes on.
func (l *TestLibrary) WhileHashing(request, change func()) {
	h := l.hasher
	h.mu.Lock()
	free := h.free
	h.free = 0
	h.mu.Unlock()
	done := make(chan struct{})
	go func() { defer close(done); request() }()
	for waiting := 0; waiting == 0; runtime.Gosched() {
		h.mu.Lock()
		waiting = h.waiting
		h.mu.Unlock()
	}
	change()
	for range free {
		h.release()
	}
	<-done
}

// Paused has guesses slowed down by the test's leave, and returns by how much.
func (l *TestLibrary) Paused() *[]time.Duration {
	var paused []time.Duration
	l.limits.slow.pause = func(_ context.Context, d time.Duration) error {
		paused = append(paused, d)
		return nil
	}
	return &paused
}
