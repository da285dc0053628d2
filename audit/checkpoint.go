package audit

import (
	"context"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/internal/id"
	"github.com/kitbackend/kit/internal/random"
)

// A checkpoint is due when the last one is this old, or this many events were sealed since.
const (
	checkpointEvery  = time.Hour
	checkpointEvents = 10_000
)

// CreatedAt returns when the checkpoint was signed.
func (c Checkpoint) CreatedAt() time.Time { return capability.Millis(c.createdAt).Time }

// statement returns the bytes that are signed.
func (c Checkpoint) statement() []byte {
	d := newDigest("kit/audit/checkpoint/v1")
	d.number(c.Seq, c.createdAt, int64(len(c.Heads)))
	for _, h := range c.Heads {
		d.number(h.Shard, h.Seq)
		d.bytes(h.Hash)
	}
	d.bytes(c.Prev)
	d.text(c.KeyID)
	return d.sum()
}

// hash returns the hash by which the next checkpoint refers to this one.
func (c Checkpoint) hash() []byte {
	d := newDigest("kit/audit/checkpoint/v1/hash")
	d.bytes(c.statement())
	d.bytes(c.Signature)
	return d.sum()
}

// Anchor returns the anchor of a checkpoint, to be stored outside of the database: the log has one
// for each. Pass it to [Audit.Verify].
func (c Checkpoint) Anchor() Anchor { return Anchor{Checkpoint: c.Seq, Hash: c.hash()} }

// String returns the number and the hash, as "12:9f86d0…".
func (a Anchor) String() string { return fmt.Sprintf("%d:%x", a.Checkpoint, a.Hash) }

// ParseAnchor parses the result of [Anchor.String].
func ParseAnchor(text string) (Anchor, error) {
	number, encoded, _ := strings.Cut(strings.TrimSpace(text), ":")
	seq, err := strconv.ParseInt(number, 10, 64)
	hash, failed := hex.DecodeString(encoded)
	if err != nil || failed != nil || seq < 1 || len(hash) != sha256.Size {
		return Anchor{}, errors.New("audit: an anchor is written like 12:hash, the hash of 64 hexadecimal digits")
	}
	return Anchor{seq, hash}, nil
}

// events returns the number of events in the chains.
func (c Checkpoint) events() (n int64) {
	for _, h := range c.Heads {
		n += h.Seq
	}
	return n
}

// Checkpoint signs the heads of the chains, unless nothing was sealed since the last checkpoint,
// and returns the newest one. It returns [ErrNoKeys] without master keys.
func (a *Audit) Checkpoint(ctx context.Context) (Checkpoint, error) {
	if a.sealer == nil {
		return Checkpoint{}, ErrNoKeys
	}
	return a.checkpoint(ctx, 0, 0)
}

// checkpoint signs the heads of the chains if there is something new and the last checkpoint is at
// least age old, as far in the future because of a clock that was ahead, or at least events behind.
func (a *Audit) checkpoint(ctx context.Context, age time.Duration, events int64) (c Checkpoint, err error) {
	key, err := a.signer.key(ctx, a.host.DB.Now(ctx))
	if err != nil {
		return Checkpoint{}, err
	}
	made := false
	err = a.host.DB.InTx(ctx, func(ctx context.Context) error {
		made = false
		last, found, err := a.store.lastCheckpoint(ctx)
		if err != nil {
			return err
		}
		heads, err := a.store.heads(ctx)
		if err != nil {
			return err
		}
		now := a.host.DB.Now(ctx)
		c = Checkpoint{Seq: last.Seq + 1, createdAt: now.UnixMilli(), Heads: heads, Prev: make([]byte, 32), KeyID: key.id}
		if found {
			c.Prev = last.hash()
		}
		added := c.events() - last.events()
		if added == 0 || now.Sub(last.CreatedAt()).Abs() < age && added < events {
			c = last
			return nil
		}
		c.Signature = ed25519.Sign(key.private, c.statement())
		made, err = a.store.insertCheckpoint(ctx, c)
		return err
	})
	if made {
		a.host.Log.InfoContext(ctx, "audit: checkpoint", slog.Int64("checkpoint", c.Seq), slog.Int64("events", c.events()),
			slog.String("hash", hex.EncodeToString(c.hash())), slog.String("anchor", c.Anchor().String()))
	}
	return c, err
}

// forever is greater than the number of any checkpoint or link.
const forever int64 = 1<<63 - 1

// Rewrap seals the signing keys of checkpoints with the first master key, so that older master keys
// can be removed, and returns how many it changed. A key that cannot be opened does not stop it and
// is named by the error.
func (a *Audit) Rewrap(ctx context.Context) (n int, err error) {
	if a.sealer == nil {
		return 0, ErrNoKeys
	}
	var unopened []error
	err = a.host.DB.InTx(ctx, func(ctx context.Context) error {
		n, unopened = 0, nil
		rows, err := a.store.signingKeys(ctx)
		if err != nil {
			return err
		}
		for _, row := range rows {
			sealed, changed, err := a.sealer.Rewrap(keyContext(row.id), row.sealed)
			if err != nil {
				unopened = append(unopened, fmt.Errorf("audit: signing key %s: %w", row.id, err))
				continue
			}
			if !changed {
				continue
			}
			if err := a.store.replaceKey(ctx, row, sealed); err != nil {
				return err
			}
			n++
		}
		return nil
	})
	return n, errors.Join(append(unopened, err)...)
}

// keyPair is a key that signs checkpoints.
type keyPair struct {
	id      string
	private ed25519.PrivateKey
}

func (k keyPair) verify(statement, signature []byte) bool {
	return ed25519.Verify(k.private.Public().(ed25519.PublicKey), statement, signature)
}

// signer caches the newest key that opens with the master keys.
type signer struct {
	store  store
	sealer capability.Sealer

	mu  sync.Mutex
	own keyPair
}

// key returns the key to sign with, and creates one if no stored key can be opened.
func (s *signer) key(ctx context.Context, now time.Time) (keyPair, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.own.private != nil {
		return s.own, nil
	}
	opened, err := s.open(ctx)
	if err != nil {
		return keyPair{}, err
	}
	for id, k := range opened {
		if id > s.own.id {
			s.own = k
		}
	}
	if s.own.private == nil {
		k := keyPair{id: id.New(now)}
		seed := random.Bytes(ed25519.SeedSize)
		k.private = ed25519.NewKeyFromSeed(seed)
		if err := s.store.insertKey(ctx, signingKey{k.id, s.sealer.Seal(keyContext(k.id), seed)}, now); err != nil {
			return keyPair{}, err
		}
		s.own = k
	}
	return s.own, nil
}

// open returns the keys that can be opened: only a holder of a master key can have created them.
func (s *signer) open(ctx context.Context) (map[string]keyPair, error) {
	rows, err := s.store.signingKeys(ctx)
	if err != nil {
		return nil, err
	}
	opened := make(map[string]keyPair)
	for _, row := range rows {
		seed, err := s.sealer.Open(keyContext(row.id), row.sealed)
		if err == nil && len(seed) == ed25519.SeedSize {
			opened[row.id] = keyPair{row.id, ed25519.NewKeyFromSeed(seed)}
		}
	}
	return opened, nil
}

// keyContext returns the context that binds a sealed key to its id, so that rows cannot be swapped.
func keyContext(keyID string) string { return "audit/signing-key/" + keyID }
