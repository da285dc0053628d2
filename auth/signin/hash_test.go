package signin

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/crypto/scrypt"

	"github.com/kitbackend/kit/auth"
	"github.com/kitbackend/kit/capability"
)

func TestHashedPasswordIsVerified(t *testing.T) {
	for i, password := range []string{"correct horse", "", strings.Repeat("x", 300), "пароль", "a\x00b"} {
		cost, parameters := passwordCost, "m=19456,t=2,p=1"
		if i > 0 { // what a password is made of changes nothing about the cost
			cost, parameters = hashCost{memory: 1 << 10, time: 1, threads: 1}, "m=1024,t=1,p=1"
		}
		h := newHasher(cost)
		encoded, err := h.hash(t.Context(), password)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.HasPrefix(encoded, "$argon2id$v=19$"+parameters+"$") {
			t.Errorf("encoded as %s", encoded)
		}
		if ok, rehash, err := h.verify(t.Context(), encoded, password); !ok || rehash || err != nil {
			t.Errorf("%q: %v, rehash %v, %v", password, ok, rehash, err)
		}
		if ok, rehash, err := h.verify(t.Context(), encoded, password+"x"); ok || rehash || err != nil {
			t.Errorf("%q with more: %v, rehash %v, %v", password, ok, rehash, err)
		}
		if again, _ := h.hash(t.Context(), password); again == encoded {
			t.Error("two hashes of a password are equal")
		}
	}
}

// Keyboards compose characters differently; the password is the same.
func TestSpellingsOfOneCharacter(t *testing.T) {
	h := newHasher(passwordCost)
	encoded, err := h.hash(t.Context(), "\u00c5ngstr\u00f6m")
	if err != nil {
		t.Fatal(err)
	}
	for _, typed := range []string{"A\u030angstro\u0308m", "\u212bngstr\u00f6m"} {
		if ok, _, err := h.verify(t.Context(), encoded, typed); !ok || err != nil {
			t.Errorf("%q: %v, %v", typed, ok, err)
		}
	}
}

// Hashes as other software has published them.
var imported = map[string]struct{ encoded, password string }{
	"better-auth": {"000102030405060708090a0b0c0d0e0f:88e1cc92564e0b1df18702f4d08656b194c2633a103fb38d01f867a5c82ea6e9b3d932abb4bde673b007b26a907e7c349fcd58c3c8d62ecc9ac223dc14df3aab", "\u00c5 password"},
	"bcrypt":      {"$2y$07$BCryptRequires22Chrcte/VlQH0piJtjXl.0t1XkA8pw9dMXTpOq", "rasmuslerdorf"},
	"argon2i":     {"$argon2i$v=19$m=1024,t=2,p=2$YzJBSzV4TUhkMzc3d3laeg$zqU/1IN0/AogfP4cmSJI1vc8lpXRW9/S0sYY2i2jHT0", "rasmuslerdorf"},
	"argon2id":    {"$argon2id$v=19$m=65536,t=2,p=1$c29tZXNhbHQ$CTFhFdXPJO1aFaMaO6Mm5c8y7cJHAph8ArZWb2GRPPc", "password"},
	"scrypt":      {"$scrypt$ln=16,r=8,p=1$aM15713r3Xsvxbi31lqr1Q$nFNh2CVHVjNldFVKDHDlm4CbdRSCdEBsjjJxD+iCs5E", "password"},
}

func TestImportedHashes(t *testing.T) {
	h := newHasher(passwordCost)
	for name, tt := range imported {
		if ok, rehash, err := h.verify(t.Context(), tt.encoded, tt.password); !ok || !rehash || err != nil {
			t.Errorf("%s: %v, rehash %v, %v", name, ok, rehash, err)
		}
		if ok, rehash, err := h.verify(t.Context(), tt.encoded, tt.password+"x"); ok || rehash || err != nil {
			t.Errorf("%s, wrong password: %v, rehash %v, %v", name, ok, rehash, err)
		}
	}
}

// Other software hashed what was typed, not its normal form.
func TestImportedHashOfAnUnusualSpelling(t *testing.T) {
	h, typed := newHasher(passwordCost), "A\u030a password"
	key, err := scrypt.Key([]byte(typed), []byte("saltsalt"), 1<<4, 8, 1, 32)
	if err != nil {
		t.Fatal(err)
	}
	encoded := fmt.Sprintf("$scrypt$ln=4,r=8,p=1$%s$%s", phc.EncodeToString([]byte("saltsalt")), phc.EncodeToString(key))
	if ok, _, err := h.verify(t.Context(), encoded, typed); !ok || err != nil {
		t.Errorf("%v, %v", ok, err)
	}
}

func TestHostileHashesAreNotComputed(t *testing.T) {
	const salt, key = "c29tZXNhbHQ", "CTFhFdXPJO1aFaMaO6Mm5c8y7cJHAph8ArZWb2GRPPc"
	argon := func(parameters string) string { return "$argon2id$v=19$" + parameters + "$" + salt + "$" + key }
	scrypted := func(parameters string) string { return "$scrypt$" + parameters + "$" + salt + "$" + key }
	for _, encoded := range []string{
		"", "plain", ":", strings.Repeat("0", 32) + ":" + strings.Repeat("0", 126),
		argon("m=4194304,t=2,p=1"), argon("m=131073,t=1,p=1"), argon("m=131072,t=9,p=1"), argon("m=19456,t=17,p=1"),
		argon("m=19456,t=0,p=1"), argon("m=19456,t=2,p=0"), argon("m=19456,t=2,p=17"), argon("m=7,t=2,p=1"), argon("m=9999999,t=999,p=999"),
		argon("m=19456,t=2"), "$argon2id$m=19456,t=2,p=1$" + salt + "$" + key, "$argon2id$v=16$m=19456,t=2,p=1$" + salt + "$" + key,
		"$argon2d$v=19$m=19456,t=2,p=1$" + salt + "$" + key, argon("m=19456,t=2,p=1") + "=",
		"$argon2id$v=19$m=19456,t=2,p=1$c2FsdA$" + key, "$argon2id$v=19$m=19456,t=2,p=1$" + salt + "$c2hvcnQ",
		"$argon2id$v=19$m=19456,t=2,p=1$" + salt + "$" + strings.Repeat("A", 300),
		scrypted("ln=31,r=8,p=1"), scrypted("ln=20,r=8,p=1"), scrypted("ln=16,r=8,p=5"), scrypted("ln=0,r=8,p=1"), scrypted("ln=14,r=0,p=1"),
		scrypted("ln=14,r=8,p=0"), scrypted("ln=17,r=999,p=1"), strings.Repeat("a", 1<<20),
		"$2a$15$BCryptRequires22Chrcte/VlQH0piJtjXl.0t1XkA8pw9dMXTpOq", "$2a$03$BCryptRequires22Chrcte/VlQH0piJtjXl.0t1XkA8pw9dMXTpOq",
		"$2a$07$short", "$1$07$BCryptRequires22Chrcte/VlQH0piJtjXl.0t1XkA8pw9dMXTpOq",
	} {
		if ok, _, err := newHasher(passwordCost).verify(t.Context(), encoded, "password"); ok || !errors.Is(err, errHashForm) {
			t.Errorf("%.60s: %v, %v", encoded, ok, err)
		}
	}
}

// An unknown user costs what a known one does: the same parameters.
func TestDummyIsOfTheLiveForm(t *testing.T) {
	h := newHasher(passwordCost)
	encoded, err := h.hash(t.Context(), "password")
	if err != nil {
		t.Fatal(err)
	}
	if len(encoded) != len(h.nobody) || encoded[:len(h.live)] != h.nobody[:len(h.live)] {
		t.Errorf("%s is not as %s", h.nobody, encoded)
	}
	if err := h.dummy(t.Context(), "password"); err != nil {
		t.Error(err)
	}
}

func TestNoMoreHashesThanProcessors(t *testing.T) {
	h := newHasher(passwordCost)
	if h.free != runtime.GOMAXPROCS(0) {
		t.Errorf("%d slots", h.free)
	}
	processors := h.free
	var working, peak atomic.Int64
	var callers sync.WaitGroup
	for range 50 {
		callers.Go(func() {
			if err := h.do(t.Context(), func() {
				now := working.Add(1)
				defer working.Add(-1)
				for most := peak.Load(); now > most && !peak.CompareAndSwap(most, now); most = peak.Load() {
				}
				runtime.Gosched()
			}); err != nil {
				t.Error(err)
			}
		})
	}
	callers.Wait()
	if peak.Load() > int64(processors) || h.waiting != 0 || h.free != processors {
		t.Errorf("%d at once, %d wait, %d slots free", peak.Load(), h.waiting, h.free)
	}
}

func TestFullQueueRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHasher(passwordCost)
		finish := make(chan struct{})
		hold := func() error { return h.do(t.Context(), func() { <-finish }) }
		var refused atomic.Int64
		for range h.queue + h.free {
			go func() {
				if err := hold(); errors.Is(err, capability.ErrUnavailable) {
					refused.Add(1)
				}
			}()
		}
		synctest.Wait()
		err := hold()
		if refusal := auth.LibraryRefusal(err); !errors.Is(err, capability.ErrUnavailable) || refusal.Status != 503 || refusal.Code != "SERVICE_UNAVAILABLE" {
			t.Errorf("beyond the queue: %v", err)
		}
		if err := h.dummy(t.Context(), "password"); !errors.Is(err, capability.ErrUnavailable) {
			t.Errorf("an unknown user beyond the queue: %v", err)
		}
		if _, err := h.hash(t.Context(), "password"); !errors.Is(err, capability.ErrUnavailable) {
			t.Errorf("a new password beyond the queue: %v", err)
		}
		<-time.After(hashingPatience) // of the bubble's clock
		synctest.Wait()
		if refused.Load() != int64(h.queue) || h.waiting != 0 {
			t.Errorf("%d of %d gave up, %d wait", refused.Load(), h.queue, h.waiting)
		}
		close(finish)
		synctest.Wait()
		if err := hold(); err != nil {
			t.Errorf("afterwards: %v", err)
		}
	})
}

func TestCallerWhoLeftIsNotHashed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHasher(passwordCost)
		finish := make(chan struct{})
		for range h.free {
			go func() { _ = h.do(t.Context(), func() { <-finish }) }()
		}
		synctest.Wait()
		ctx, leave := context.WithCancel(t.Context())
		leave()
		if _, _, err := h.verify(ctx, h.nobody, "password"); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		close(finish)
	})
}

// Sign-ins at once cost the processors what argon2 costs, whatever their number.
func BenchmarkVerify(b *testing.B) {
	h := newHasher(passwordCost)
	encoded, err := h.hash(b.Context(), "password")
	if err != nil {
		b.Fatal(err)
	}
	for _, callers := range []int{1, 16, 64} {
		b.Run(fmt.Sprintf("callers=%d", callers), func(b *testing.B) {
			b.ReportAllocs()
			b.SetParallelism(max(1, callers/runtime.GOMAXPROCS(0)))
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					if ok, _, err := h.verify(b.Context(), encoded, "password"); !ok || err != nil {
						b.Error(ok, err)
					}
				}
			})
		})
	}
}
