package signin

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"time"

	"golang.org/x/crypto/argon2"
	"golang.org/x/text/unicode/norm"

	"github.com/kitbackend/kit/capability"
)

// The parameters that new passwords are hashed with: argon2id at the least cost
// OWASP recommends. Each hash at work holds passwordMemory KiB.
const (
	passwordMemory  = 19 << 10
	passwordTime    = 2
	passwordThreads = 1
	passwordSalt    = 16
	passwordKey     = 32
)

// Bounds of the queue for a processor: about three seconds of hashing.
const (
	waitingPerSlot  = 128
	hashingPatience = 5 * time.Second
)

// The reasons why a hash could not be made or checked.
var (
	errHashingBusy = capability.ErrUnavailable.Because(errors.New("signin: more passwords wait to be hashed than the processors can take"))
	errHashForm    = errors.New("signin: the password hash is of no known form or costs more than is allowed")
)

// hasher hashes passwords and checks them, no more at a time than there are
// processors: beyond, callers queue, and beyond the queue they are refused with
// kit/unavailable. So a flood of sign-ins costs a known amount of memory.
type hasher struct{ *slots }

func newHasher() *hasher {
	processors := runtime.GOMAXPROCS(0)
	return &hasher{newSlots(processors, processors*waitingPerSlot, hashingPatience)}
}

// hash returns the PHC string of a password.
func (h *hasher) hash(ctx context.Context, password string) (encoded string, err error) {
	salt := make([]byte, passwordSalt)
	_, _ = rand.Read(salt) // never fails: crypto/rand ends the process instead
	err = h.do(ctx, func() {
		key := argon2.IDKey([]byte(normal(password)), salt, passwordTime, passwordMemory, passwordThreads, passwordKey)
		encoded = livePrefix + phc.EncodeToString(salt) + "$" + phc.EncodeToString(key)
	})
	return encoded, err
}

// verify checks a password against a hash of [hasher.hash] or an imported one;
// rehash says that the password is right and its hash should be made anew.
func (h *hasher) verify(ctx context.Context, encoded, password string) (ok, rehash bool, err error) {
	form, err := parseHash(encoded)
	if err != nil {
		return false, false, err
	}
	err = h.do(ctx, func() {
		for _, typed := range spellings(password) {
			ok = ok || form(typed)
		}
	})
	return ok && err == nil, ok && err == nil && !strings.HasPrefix(encoded, livePrefix), err
}

// dummy does the work of [hasher.verify] for a user who does not exist, and
// fails when verify would, so that neither time nor load tells the two apart.
func (h *hasher) dummy(ctx context.Context, password string) error {
	_, _, err := h.verify(ctx, nobody, password)
	return err
}

// do runs work in one of the slots.
func (h *hasher) do(ctx context.Context, work func()) error {
	if err := ctx.Err(); err != nil {
		return capability.ErrUnavailable.Because(err)
	}
	if err := h.acquire(ctx); err != nil {
		return err
	}
	defer h.release()
	work()
	return nil
}

// livePrefix starts the hashes that need not be made anew.
var livePrefix = fmt.Sprintf("$argon2id$v=%d$m=%d,t=%d,p=%d$", argon2.Version, passwordMemory, passwordTime, passwordThreads)

// nobody is a hash at the live cost that no password has.
var nobody = livePrefix + phc.EncodeToString(make([]byte, passwordSalt)) + "$" + phc.EncodeToString(make([]byte, passwordKey))

// normal is the spelling that passwords are hashed in: keyboards differ in how
// they compose the same character.
func normal(password string) string { return norm.NFKC.String(password) }

// spellings also has the password as it was typed: other software hashed that.
func spellings(password string) []string {
	if normal := normal(password); normal != password {
		return []string{normal, password}
	}
	return []string{password}
}

func equal(a, b []byte) bool { return subtle.ConstantTimeCompare(a, b) == 1 }
