package auth

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"log/slog"
	"sync"
	"time"

	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/internal/id"
	"github.com/kitbackend/kit/internal/rate"
	"github.com/kitbackend/kit/internal/seal"
)

// reloads bounds how often tokens of unknown keys make a node read the rows:
// often enough for keys that other nodes have just made.
var reloads = rate.Limit{Events: 10, Per: time.Second}

// signingKey is an opened row of auth_signing_key.
type signingKey struct {
	id      string
	private ed25519.PrivateKey
	public  ed25519.PublicKey
}

// keyring holds the signing keys that open with the master keys. The newest
// signs, all of them verify.
type keyring struct {
	host    capability.Host
	store   store
	seal    *seal.Keys
	limiter *rate.Limiter

	mu     sync.RWMutex
	keys   map[string]signingKey
	newest string
}

func newKeyring(host capability.Host, store store, keys *seal.Keys) *keyring {
	return &keyring{
		host: host, store: store, seal: keys,
		limiter: rate.New(reloads, host.Now),
		keys:    make(map[string]signingKey),
	}
}

// find answers the key with an id, looking for new rows when it is unknown.
func (k *keyring) find(ctx context.Context, keyID string) (key signingKey, found bool, err error) {
	if key, found = k.known(keyID); found {
		return key, true, nil
	}
	if _, ok := k.limiter.Allow(""); !ok {
		return signingKey{}, false, nil
	}
	if _, err := k.load(ctx); err != nil {
		return signingKey{}, false, err
	}
	key, found = k.known(keyID)
	return key, found, nil
}

// signer answers the key to sign with, making one when no row opens. Two nodes
// that make one each both verify both.
func (k *keyring) signer(ctx context.Context) (signingKey, error) {
	if key, ok := k.current(); ok {
		return key, nil
	}
	unopened, err := k.load(ctx)
	if err != nil {
		return signingKey{}, err
	}
	if key, ok := k.current(); ok {
		return key, nil
	}
	if unopened > 0 {
		k.host.Log.WarnContext(ctx, "auth: no signing key opens with the master keys, making a new one: tokens signed before do not verify",
			slog.Int("unopened", unopened))
	}
	return k.create(ctx)
}

// create stores a new key. It signs for others only once it is committed.
func (k *keyring) create(ctx context.Context) (key signingKey, err error) {
	err = k.host.DB.InTx(ctx, func(ctx context.Context) error {
		seed := make([]byte, ed25519.SeedSize)
		_, _ = rand.Read(seed) // never fails: crypto/rand ends the process instead
		now := k.host.DB.Now(ctx)
		key = newSigningKey(id.New(now), seed)
		row := sealedKey{id: key.id, sealed: k.seal.Seal(sealContext(key.id), seed)}
		if err := k.store.insertSigningKey(ctx, row, now); err != nil {
			return err
		}
		database.AfterCommit(ctx, func() { k.add(key) })
		return nil
	})
	return key, err
}

// load adds the keys of all rows that open, and counts the others.
func (k *keyring) load(ctx context.Context) (unopened int, err error) {
	rows, err := k.store.signingKeys(ctx)
	if err != nil {
		return 0, err
	}
	for _, row := range rows {
		seed, err := k.seal.Open(sealContext(row.id), row.sealed)
		if err != nil || len(seed) != ed25519.SeedSize {
			unopened++
			continue
		}
		k.add(newSigningKey(row.id, seed))
	}
	return unopened, nil
}

func (k *keyring) add(key signingKey) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.keys[key.id] = key
	k.newest = max(k.newest, key.id) // ids sort by the time they were drawn
}

func (k *keyring) known(keyID string) (signingKey, bool) {
	k.mu.RLock()
	defer k.mu.RUnlock()
	key, ok := k.keys[keyID]
	return key, ok
}

func (k *keyring) current() (signingKey, bool) {
	k.mu.RLock()
	defer k.mu.RUnlock()
	key, ok := k.keys[k.newest]
	return key, ok
}

func newSigningKey(keyID string, seed []byte) signingKey {
	private := ed25519.NewKeyFromSeed(seed)
	return signingKey{id: keyID, private: private, public: private.Public().(ed25519.PublicKey)}
}

// sealContext binds the sealed key to its id: rows cannot be swapped.
func sealContext(keyID string) string { return "auth/signing-key/" + keyID }
