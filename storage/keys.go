package storage

import (
	"context"
	"crypto/sha256"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/internal/random"
	"github.com/kitbackend/kit/internal/rate"
)

// signingKeys is the key ring of the signed URLs that the kit serves: sealed rows that all nodes
// share.
type signingKeys struct {
	host   capability.Host
	store  store
	sealer capability.Sealer
	reload *rate.Limiter

	mu     sync.RWMutex
	keys   map[byte][]byte
	newest byte
}

// reloads bounds how often unknown key numbers make a node read the rows.
var reloads = rate.Limit{Events: 10, Per: time.Second}

func newSigningKeys(host capability.Host, store store, sealer capability.Sealer) *signingKeys {
	return &signingKeys{host: host, store: store, sealer: sealer, reload: rate.New(reloads, host.Now), keys: make(map[byte][]byte)}
}

func keyContext(number int64) string { return fmt.Sprintf("storage/signing-key/%d", number) }

// current returns the newest key. It creates one if no row can be opened.
func (k *signingKeys) current(ctx context.Context) (byte, []byte, error) {
	if number, key := k.known(0); key != nil {
		return number, key, nil
	}
	for range 3 { // another node may create the same number
		last, err := k.load(ctx)
		if err != nil {
			return 0, nil, err
		}
		if number, key := k.known(0); key != nil {
			return number, key, nil
		}
		if err := k.create(ctx, last+1); err != nil {
			return 0, nil, err
		}
	}
	return 0, nil, fmt.Errorf("storage: no signing key opens with the master keys")
}

// known returns the key with a number; 0 means the newest.
func (k *signingKeys) known(number byte) (byte, []byte) {
	k.mu.RLock()
	defer k.mu.RUnlock()
	if number == 0 {
		number = k.newest
	}
	return number, k.keys[number]
}

// find returns the key with a number, or nil.
func (k *signingKeys) find(ctx context.Context, number byte) ([]byte, error) {
	if _, key := k.known(number); key != nil || number == 0 {
		return key, nil
	}
	if _, ok := k.reload.Allow(""); !ok {
		return nil, nil
	}
	if _, err := k.load(ctx); err != nil {
		return nil, err
	}
	_, key := k.known(number)
	return key, nil
}

// load reads the rows and returns the highest number.
func (k *signingKeys) load(ctx context.Context) (last int64, err error) {
	rows, err := k.store.signingKeys(ctx)
	if err != nil {
		return 0, err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, row := range rows {
		last = row.number
		key, err := k.sealer.Open(keyContext(row.number), row.sealed)
		if err != nil || len(key) != sha256.Size {
			k.host.Log.WarnContext(ctx, "storage: a signing key does not open with the master keys", slog.Int64("number", row.number))
			continue
		}
		k.keys[byte(row.number)], k.newest = key, byte(row.number)
	}
	return last, nil
}

// create adds a row, unless another node has added it.
func (k *signingKeys) create(ctx context.Context, number int64) error {
	key := random.Bytes(sha256.Size)
	return k.store.insertKey(ctx, sealedKey{number, k.sealer.Seal(keyContext(number), key)})
}

// RotateSigningKey signs later URLs with a new key. URLs signed before stay valid until they
// expire: keys are not removed. There can be 255 keys.
func (s *Storage) RotateSigningKey(ctx context.Context) error {
	last, err := s.keys.load(ctx)
	if err != nil {
		return err
	}
	if err := s.keys.create(ctx, last+1); err != nil {
		return err
	}
	_, err = s.keys.load(ctx)
	return err
}

// rewrap reseals the keys with the first master key.
func (k *signingKeys) rewrap(ctx context.Context) (changed int, err error) {
	rows, err := k.store.signingKeys(ctx)
	if err != nil {
		return 0, err
	}
	for _, row := range rows {
		sealed, different, err := k.sealer.Rewrap(keyContext(row.number), row.sealed)
		if err != nil || !different {
			continue
		}
		n, err := k.store.replaceKey(ctx, row, sealed)
		if err != nil {
			return changed, err
		}
		changed += int(n)
	}
	return changed, nil
}
