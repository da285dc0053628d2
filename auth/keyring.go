package auth

import (
	"context"
	"crypto/ed25519"
	"encoding/json"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/internal/id"
	"github.com/kitbackend/kit/internal/jose"
	"github.com/kitbackend/kit/internal/random"
	"github.com/kitbackend/kit/internal/rate"
)

const (
	// publishLead is how long a key is published before it signs: twice as long as a client may
	// cache the result of [LibraryHost.JWKS].
	publishLead = 10 * time.Minute
	// lookEvery is how often a node that signs looks for keys that others have
	// made: all must know the next one before it signs.
	lookEvery = time.Minute
	// loadTimeout bounds a read of the rows that requests wait for.
	loadTimeout = 5 * time.Second
)

// reloads bounds how often tokens of unknown keys make a node read the rows:
// often enough for keys that other nodes have just made.
var reloads = rate.Limit{Events: 10, Per: time.Second}

// signingKey is an opened row of auth_signing_key.
type signingKey struct {
	id        string
	private   ed25519.PrivateKey
	public    ed25519.PublicKey
	createdAt time.Time
}

// keyring holds the signing keys that open with the master keys. The role of each
// follows from the clock and from when they were made: a key is
// published at once, signs after publishLead (the first one at once), until its successor does, and
// verifies until the last token it may have signed has expired.
type keyring struct {
	host    capability.Host
	store   store
	seal    capability.Sealer
	ttl     time.Duration
	limiter *rate.Limiter

	mu       sync.RWMutex
	keys     keys
	lookedAt time.Time
	loadedAt time.Time // of the rows; zero: never
	loads    singleflight.Group
}

func newKeyring(host capability.Host, store store, sealer capability.Sealer, ttl time.Duration) *keyring {
	return &keyring{host: host, store: store, seal: sealer, ttl: ttl, limiter: rate.New(reloads, host.Now)}
}

// find returns the key with an id if it verifies at an instant. For an unknown id it reads new
// rows.
func (k *keyring) find(ctx context.Context, keyID string, now time.Time) (key signingKey, found bool, err error) {
	if key, known, live := k.held().find(keyID, now); known {
		return key, live, nil
	}
	if since := now.Sub(k.lastLoad()); 0 <= since && since < lookEvery { // else everybody waits for the rows
		if _, ok := k.limiter.Allow(""); !ok {
			key, _, live := k.held().find(keyID, now) // it may have come while this caller looked
			return key, live, nil
		}
	}
	all, err := k.shared(ctx)
	if err != nil {
		return signingKey{}, false, err
	}
	key, _, found = all.find(keyID, now)
	return key, found, nil
}

// shared is load for callers that may share one: a node that has just started
// reads the rows once for all the tokens that wait for them.
func (k *keyring) shared(ctx context.Context) (keys, error) {
	if k.host.DB.InTransaction(ctx) {
		all, _, err := k.load(ctx)
		return all, err
	}
	loaded := k.loads.DoChan("", func() (any, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), loadTimeout)
		defer cancel()
		all, _, err := k.load(ctx)
		return all, err
	})
	select {
	case result := <-loaded:
		if result.Err != nil {
			return nil, result.Err
		}
		return result.Val.(keys), nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// lastLoad is when the rows were read last; zero: never.
func (k *keyring) lastLoad() time.Time {
	k.mu.RLock()
	defer k.mu.RUnlock()
	return k.loadedAt
}

// signer returns the key that signs now. It makes the first key when no row opens, and the next one
// when the newest is due for replacement. If two nodes make one each, every node verifies both.
func (k *keyring) signer(ctx context.Context) (signingKey, error) {
	now := k.host.Now()
	key, ok := k.held().signer(now)
	if ok && !k.look(now) {
		return key, nil
	}
	all, unopened, err := k.load(ctx)
	if err != nil {
		if ok { // it verifies for an hour after its successor has begun
			return key, nil
		}
		return signingKey{}, err
	}
	if key, ok = all.signer(now); ok && now.Sub(all[len(all)-1].createdAt) < k.ttl {
		return key, nil
	}
	if !ok && unopened > 0 {
		k.host.Log.WarnContext(ctx, "auth: no signing key opens with the master keys, making a new one: tokens signed before do not verify",
			slog.Int("unopened", unopened))
	}
	made, err := k.create(ctx, now)
	if err != nil || !ok {
		return made, err
	}
	return key, nil // the next one is not published long enough
}

// look reports whether it is time to look for the next key.
func (k *keyring) look(now time.Time) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if since := now.Sub(k.lookedAt); 0 <= since && since < lookEvery {
		return false
	}
	k.lookedAt = now
	return true
}

// create stores a new key, which other nodes know once it is committed. A key sealed by an
// ephemeral master key would not open elsewhere and is not stored.
func (k *keyring) create(ctx context.Context, now time.Time) (key signingKey, err error) {
	seed := random.Bytes(ed25519.SeedSize)
	key = newSigningKey(id.New(now), seed, now)
	if k.seal.Ephemeral() {
		return k.addFirst(key), nil
	}
	err = k.host.DB.InTx(ctx, func(ctx context.Context) error {
		row := sealedKey{id: key.id, sealed: k.seal.Seal(sealContext(key.id), seed), createdAt: now.UnixMilli()}
		if err := k.store.insertSigningKey(ctx, row); err != nil {
			return err
		}
		database.AfterCommit(ctx, func() { k.add(key) })
		return nil
	})
	return key, err
}

// load returns the keys that are held and those of all rows that open, and
// counts the other rows. In a transaction, which may roll back a key of its own, the new ones are
// held from its commit on.
func (k *keyring) load(ctx context.Context) (all keys, unopened int, err error) {
	rows, err := k.store.signingKeys(ctx)
	if err != nil {
		return nil, 0, err
	}
	loadedAt := k.host.Now()
	all = k.held()
	for _, row := range rows {
		seed, err := k.seal.Open(sealContext(row.id), row.sealed)
		if err != nil || len(seed) != ed25519.SeedSize {
			unopened++
			continue
		}
		key := newSigningKey(row.id, seed, instant(row.createdAt))
		all = all.with(key)
		database.AfterCommit(ctx, func() { k.add(key) })
	}
	database.AfterCommit(ctx, func() { // last: who sees that rows were read finds their keys
		k.mu.Lock()
		defer k.mu.Unlock()
		k.loadedAt = loadedAt
	})
	return all, unopened, nil
}

// held returns the keys that this node knows; the list is never changed.
func (k *keyring) held() keys {
	k.mu.RLock()
	defer k.mu.RUnlock()
	return k.keys
}

func (k *keyring) add(key signingKey) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.keys = k.keys.with(key)
}

// addFirst adds a key unless another came first, and returns the one that did.
func (k *keyring) addFirst(key signingKey) signingKey {
	k.mu.Lock()
	defer k.mu.Unlock()
	if n := len(k.keys); n > 0 && key.createdAt.Sub(k.keys[n-1].createdAt) < k.ttl {
		return k.keys[n-1]
	}
	k.keys = k.keys.with(key)
	return key
}

// keys are in the order they were made.
type keys []signingKey

// with returns the keys and one more, in the order of their ids, which is that of their creation.
func (ks keys) with(key signingKey) keys {
	i, known := slices.BinarySearchFunc(ks, key.id, func(one signingKey, keyID string) int { return strings.Compare(one.id, keyID) })
	if known {
		return ks
	}
	return slices.Insert(slices.Clone(ks), i, key)
}

// find returns a key by its id, and whether it verifies at an instant.
func (ks keys) find(keyID string, now time.Time) (key signingKey, known, live bool) {
	for i, key := range ks {
		if key.id == keyID {
			return key, true, !ks.retired(i, now)
		}
	}
	return signingKey{}, false, false
}

// signer returns the key that signs at an instant.
func (ks keys) signer(now time.Time) (key signingKey, ok bool) {
	for i := len(ks) - 1; i > 0; i-- {
		if !now.Before(signsFrom(ks[i])) {
			return ks[i], true
		}
	}
	if len(ks) == 0 {
		return signingKey{}, false
	}
	return ks[0], true
}

// signsFrom returns when a key begins to sign that is not the first.
func signsFrom(key signingKey) time.Time { return key.createdAt.Add(publishLead) }

// retired reports whether no token of a key can be valid at an instant.
func (ks keys) retired(i int, now time.Time) bool {
	return i+1 < len(ks) && now.After(signsFrom(ks[i+1]).Add(MaxAccessTokenTTL+lookEvery+leeway))
}

// JWKS returns the public keys that verify access tokens now, as a JWK Set (RFC 7517). Clients may
// cache it for 5 minutes.
func (a *LibraryHost) JWKS(ctx context.Context) ([]byte, error) {
	if _, err := a.keys.signer(ctx); err != nil { // so that there is one
		return nil, err
	}
	all := a.keys.held()
	if _, ok := a.keys.limiter.Allow("jwks"); ok { // for keys that other nodes have made
		var err error
		if all, _, err = a.keys.load(ctx); err != nil {
			return nil, err
		}
	}
	type jwk struct {
		KeyType   string `json:"kty"`
		Curve     string `json:"crv"`
		X         string `json:"x"`
		ID        string `json:"kid"`
		Use       string `json:"use"`
		Algorithm string `json:"alg"`
	}
	set := struct {
		Keys []jwk `json:"keys"`
	}{[]jwk{}}
	now := a.host.Now()
	for i, key := range all {
		if !all.retired(i, now) {
			set.Keys = append(set.Keys, jwk{"OKP", "Ed25519", encoding.EncodeToString(key.public), key.id, "sig", jose.Algorithm})
		}
	}
	return json.Marshal(set)
}

func newSigningKey(keyID string, seed []byte, createdAt time.Time) signingKey {
	private := ed25519.NewKeyFromSeed(seed)
	return signingKey{id: keyID, private: private, public: private.Public().(ed25519.PublicKey), createdAt: createdAt}
}

// sealContext binds the sealed key to its id: rows cannot be swapped.
func sealContext(keyID string) string { return "auth/signing-key/" + keyID }
