package signin

import (
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"time"

	"golang.org/x/crypto/argon2"
	"golang.org/x/text/unicode/norm"

	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/internal/random"
)

const (
	passwordSalt = 16
	passwordKey  = 32
)

// hashCost is what argon2id takes for a hash: memory in KiB, passes over it and
// threads.
type hashCost struct {
	memory, time uint32
	threads      uint8
}

// passwordCost is the minimum that OWASP recommends. Each hash in progress holds its memory.
var passwordCost = hashCost{memory: 19 << 10, time: 2, threads: 1}

// prefix starts the hashes of this cost.
func (c hashCost) prefix() string {
	return fmt.Sprintf("$argon2id$v=%d$m=%d,t=%d,p=%d$", argon2.Version, c.memory, c.time, c.threads)
}

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

// hasher hashes and checks passwords, at most as many at a time as there are processors. Further
// callers queue; when the queue is full they are refused with kit/unavailable. So a flood of
// sign-ins costs a known amount of memory.
type hasher struct {
	*slots
	cost hashCost
	// live is the prefix of hashes with the current cost.
	live string
	// nobody is a hash of the current cost that no password has.
	nobody string
}

func newHasher(cost hashCost) *hasher {
	processors, live := runtime.GOMAXPROCS(0), cost.prefix()
	return &hasher{
		slots: newSlots(processors, processors*waitingPerSlot, hashingPatience), cost: cost, live: live,
		nobody: live + phc.EncodeToString(make([]byte, passwordSalt)) + "$" + phc.EncodeToString(make([]byte, passwordKey)),
	}
}

// hash returns the PHC string of a password.
func (h *hasher) hash(ctx context.Context, password string) (encoded string, err error) {
	salt := random.Bytes(passwordSalt)
	err = h.do(ctx, func() {
		key := argon2.IDKey([]byte(normal(password)), salt, h.cost.time, h.cost.memory, h.cost.threads, passwordKey)
		encoded = h.live + phc.EncodeToString(salt) + "$" + phc.EncodeToString(key)
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
	return ok && err == nil, ok && err == nil && !strings.HasPrefix(encoded, h.live), err
}

// dummy does the work of [hasher.verify] for a user who does not exist, and
// fails when verify would, so that neither time nor load tells the two apart.
func (h *hasher) dummy(ctx context.Context, password string) error {
	_, _, err := h.verify(ctx, h.nobody, password)
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

// normal returns the normal form in which passwords are hashed: keyboards differ in how they
// compose the same character.
func normal(password string) string { return norm.NFKC.String(password) }

// spellings returns the normal form of a password, and the password as typed, which other software
// may have hashed.
func spellings(password string) []string {
	if normal := normal(password); normal != password {
		return []string{normal, password}
	}
	return []string{password}
}

func equal(a, b []byte) bool { return subtle.ConstantTimeCompare(a, b) == 1 }
