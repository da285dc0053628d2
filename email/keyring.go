package email

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/email/devmail"
	"github.com/kitbackend/kit/internal/random"
	"github.com/kitbackend/kit/internal/rate"
	"github.com/kitbackend/kit/internal/seal"
)

// keyring holds the numbered keys of one table, where they are stored sealed.
type keyring struct {
	host   capability.Host
	store  store
	sealer capability.Sealer
	table  string
	// lost describes, for the log, what stops working if no key can be opened.
	lost   string
	reload *rate.Limiter

	mu     sync.RWMutex
	keys   map[byte][]byte
	oldest byte
	newest byte
}

// The tables of keys. Tokens are signed with the newest key and verified with all of them;
// addresses are hashed with the oldest, so that a hash never changes.
const (
	tokenKeyTable   = "email_token_key"
	addressKeyTable = "email_address_key"
)

// reloads bounds how often unknown key numbers make a node read the rows.
var reloads = rate.Limit{Events: 10, Per: time.Second}

func newKeyring(host capability.Host, store store, sealer capability.Sealer, table, lost string) *keyring {
	return &keyring{host: host, store: store, sealer: sealer, table: table, lost: lost,
		reload: rate.New(reloads, host.Now), keys: make(map[byte][]byte)}
}

// signer returns the newest key. It creates one if no row can be opened.
func (k *keyring) signer(ctx context.Context) (number byte, key []byte, err error) {
	k.mu.RLock()
	number, key = k.newest, k.keys[k.newest]
	k.mu.RUnlock()
	if key != nil {
		return number, key, nil
	}
	keys, err := k.loadOrCreate(ctx)
	if err != nil {
		return 0, nil, err
	}
	number = slices.Max(slices.Collect(maps.Keys(keys)))
	return number, keys[number], nil
}

// hasher returns the oldest key that can be opened. It creates one if there is none.
func (k *keyring) hasher(ctx context.Context) ([]byte, error) {
	k.mu.RLock()
	key := k.keys[k.oldest]
	k.mu.RUnlock()
	if key != nil {
		return key, nil
	}
	keys, err := k.loadOrCreate(ctx)
	if err != nil {
		return nil, err
	}
	return keys[slices.Min(slices.Collect(maps.Keys(keys)))], nil
}

// loadOrCreate returns the keys that can be opened, at least one.
func (k *keyring) loadOrCreate(ctx context.Context) (map[byte][]byte, error) {
	for {
		keys, unopened, err := k.load(ctx)
		if err != nil || len(keys) > 0 {
			return keys, err
		}
		if unopened > 0 {
			k.host.Log.WarnContext(ctx, "email: no key opens with the master keys, making a new one: "+k.lost,
				slog.String("table", k.table), slog.Int("unopened", unopened))
		}
		number, key, created, err := k.create(ctx)
		if err != nil || created {
			return map[byte][]byte{number: key}, err
		}
	}
}

// create stores the next key; created is false if another node stored it first.
func (k *keyring) create(ctx context.Context) (number byte, key []byte, created bool, err error) {
	err = k.host.DB.InTx(ctx, func(ctx context.Context) error {
		last, err := k.store.lastKey(ctx, k.table)
		if err != nil {
			return err
		}
		number, key = byte(last+1), random.Bytes(sha256.Size)
		created, err = k.store.insertKey(ctx, k.table, last+1, k.sealer.Seal(keyContext(k.table, last+1), key), k.host.DB.Now(ctx))
		if err == nil && created && last == 0 {
			k.add(ctx, map[byte][]byte{number: key})
		}
		return err
	})
	return number, key, created, err
}

// load returns the keys that can be opened and counts the other rows.
func (k *keyring) load(ctx context.Context) (keys map[byte][]byte, unopened int, err error) {
	rows, err := k.store.sealedKeys(ctx, k.table)
	if err != nil {
		return nil, 0, err
	}
	keys = make(map[byte][]byte)
	for _, row := range rows {
		key, err := k.sealer.Open(keyContext(k.table, row.number), row.sealed)
		if err != nil || len(key) != sha256.Size {
			unopened++
			continue
		}
		keys[byte(row.number)] = key
	}
	k.add(ctx, keys)
	return keys, unopened, nil
}

// add keeps the keys in memory once the current transaction, which may have created one, is
// committed.
func (k *keyring) add(ctx context.Context, keys map[byte][]byte) {
	if len(keys) == 0 {
		return
	}
	numbers := slices.Sorted(maps.Keys(keys))
	database.AfterCommit(ctx, func() {
		k.mu.Lock()
		defer k.mu.Unlock()
		maps.Copy(k.keys, keys)
		k.oldest, k.newest = numbers[0], max(k.newest, numbers[len(numbers)-1])
	})
}

// find returns the key with a number, or nil.
func (k *keyring) find(ctx context.Context, number byte) ([]byte, error) {
	k.mu.RLock()
	key := k.keys[number]
	k.mu.RUnlock()
	if key != nil {
		return key, nil
	}
	if _, ok := k.reload.Allow(""); !ok {
		return nil, nil
	}
	keys, _, err := k.load(ctx)
	return keys[number], err
}

// keyContext binds a sealed key to its row: "email/token-key/1".
func keyContext(table string, number int64) string {
	kind := "token-key"
	if table == addressKeyTable {
		kind = "address-key"
	}
	return "email/" + kind + "/" + strconv.FormatInt(number, 10)
}

// pseudonym returns the keyed hash that replaces an address in audit events and in suppressions of
// erased people. It contains no "@", so that it cannot be mistaken for an address.
func (e *Email) pseudonym(ctx context.Context, addressKey string) (string, error) {
	key, err := e.addresses.hasher(ctx)
	if err != nil {
		return "", err
	}
	h := hmac.New(sha256.New, key)
	h.Write([]byte("kit/email/address/v1\x00" + addressKey))
	return "#" + hex.EncodeToString(h.Sum(nil)[:16]), nil
}

// RotateTokenKey signs the links of later mails with a new key. The older keys are never removed,
// because an unsubscribe link never expires. There can be 255 keys.
func (e *Email) RotateTokenKey(ctx context.Context) error {
	_, _, _, err := e.tokens.create(ctx)
	if err == nil {
		_, _, err = e.tokens.load(ctx)
	}
	return err
}

// Rewrap reseals the keys and the stored messages with the first master key, so that older ones can
// be removed, and returns how many it changed. Values that cannot be opened with any master key are
// not changed.
func (e *Email) Rewrap(ctx context.Context) (changed int, err error) {
	for _, column := range []func() (int, error){
		func() (int, error) { return sealedKeys(tokenKeyTable).Rewrap(ctx, e.host.DB, e.sealer) },
		func() (int, error) { return sealedKeys(addressKeyTable).Rewrap(ctx, e.host.DB, e.sealer) },
		func() (int, error) { return sealedMessages.Rewrap(ctx, e.host.DB, e.sealer) },
		func() (int, error) { return devmail.Sealed.Rewrap(ctx, e.host.DB, e.sealer) },
	} {
		n, err := column()
		if changed += n; err != nil {
			return changed, err
		}
	}
	return changed, nil
}

func sealedKeys(table string) seal.Column[int64] {
	return seal.Column[int64]{Table: table, Key: "number", Column: "sealed",
		Context: func(number int64) string { return keyContext(table, number) }}
}

var sealedMessages = seal.Column[string]{Table: "email_message", Key: "job_id", Column: "sealed", Context: messageContext}
