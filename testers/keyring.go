package testers

import (
	"context"
	"crypto/sha256"
	"log/slog"
	"strconv"
	"sync"
	"time"

	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/internal/random"
	"github.com/kitbackend/kit/internal/rate"
	"github.com/kitbackend/kit/internal/seal"
)

// keyring caches the keys of links, which are stored sealed. The oldest key hashes addresses, so
// that a hash stays the same; the newest signs; all verify.
type keyring struct {
	host   capability.Host
	store  store
	sealer capability.Sealer
	reload *rate.Limiter

	mu     sync.RWMutex
	sorted []openKey
}

type openKey struct {
	number byte
	key    []byte
}

const maxKeys = 255

// reloads limits how often links with unknown keys make a node read the table.
var reloads = rate.Limit{Events: 10, Per: time.Second}

func (k *keyring) kept() []openKey {
	k.mu.RLock()
	defer k.mu.RUnlock()
	return k.sorted
}

// opened returns the opened keys, oldest first, and creates one if there is none.
func (k *keyring) opened(ctx context.Context) ([]openKey, error) {
	if keys := k.kept(); len(keys) > 0 {
		return keys, nil
	}
	var keys []openKey
	err := k.host.DB.InTx(ctx, func(ctx context.Context) error {
		rows, err := k.store.sealedKeys(ctx)
		if err != nil {
			return err
		}
		if keys = k.open(rows); len(keys) > 0 {
			return nil
		}
		if len(rows) > 0 {
			k.host.Log.WarnContext(ctx, "testers: no key opens with the master keys, making a new one: earlier links and withdrawals of erased people do not hold",
				slog.Int("unopened", len(rows)))
		}
		if err := k.create(ctx); err != nil {
			return err
		}
		if rows, err = k.store.sealedKeys(ctx); err != nil {
			return err
		}
		keys = k.open(rows)
		return nil
	})
	if err == nil {
		database.AfterCommit(ctx, func() { k.keep(keys) })
	}
	return keys, err
}

// create stores the next key, unless another node just created it.
func (k *keyring) create(ctx context.Context) error {
	last, err := k.store.lastKey(ctx)
	if err != nil {
		return err
	}
	if last >= maxKeys {
		return capability.ErrInvalidRequest.Saying("There are %d link keys already.", maxKeys)
	}
	fresh := random.Bytes(sha256.Size)
	_, err = k.store.insertKey(ctx, last+1, k.sealer.Seal(keyContext(last+1), fresh), k.host.DB.Now(ctx))
	return err
}

// find returns the key of a number, or nil.
func (k *keyring) find(ctx context.Context, number byte) ([]byte, error) {
	if key := keyOf(k.kept(), number); key != nil {
		return key, nil
	}
	if _, ok := k.reload.Allow(""); !ok {
		return nil, nil
	}
	rows, err := k.store.sealedKeys(ctx)
	if err != nil {
		return nil, err
	}
	keys := k.open(rows)
	k.keep(keys)
	return keyOf(keys, number), nil
}

func keyOf(keys []openKey, number byte) []byte {
	for _, one := range keys {
		if one.number == number {
			return one.key
		}
	}
	return nil
}

// keep caches keys, unless another goroutine has cached a newer set.
func (k *keyring) keep(keys []openKey) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(keys) > len(k.sorted) {
		k.sorted = keys
	}
}

func (k *keyring) open(rows []sealedKey) (keys []openKey) {
	for _, row := range rows {
		key, err := k.sealer.Open(keyContext(row.number), row.sealed)
		if err == nil && len(key) == sha256.Size && row.number <= maxKeys {
			keys = append(keys, openKey{byte(row.number), key})
		}
	}
	return keys
}

// keyContext returns the context that binds a sealed key to its row.
func keyContext(number int64) string { return "testers/key/" + strconv.FormatInt(number, 10) }

// RotateLinkKey creates a new key that signs the links of later mails. The older keys verify for
// ever, because opt-out links never expire. Nodes that have not read the new key still sign with
// the previous one. There can be 255 keys; a further one is refused with kit/invalid_request.
func (t *Testers) RotateLinkKey(ctx context.Context) error {
	if _, err := t.keys.opened(ctx); err != nil {
		return err
	}
	return t.db.InTx(ctx, func(ctx context.Context) error {
		if err := t.keys.create(ctx); err != nil {
			return err
		}
		rows, err := t.store.sealedKeys(ctx)
		if err != nil {
			return err
		}
		keys := t.keys.open(rows)
		database.AfterCommit(ctx, func() { t.keys.keep(keys) })
		return nil
	})
}

// Rewrap wraps the keys with the first master key and returns how many it changed.
func (t *Testers) Rewrap(ctx context.Context) (int, error) {
	return seal.Column[int64]{Table: "testers_key", Key: "number", Column: "sealed", Context: keyContext}.Rewrap(ctx, t.db, t.keys.sealer)
}
