package email

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base32"
	"encoding/base64"
	"encoding/binary"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/internal/id"
	"github.com/kitbackend/kit/internal/rate"
	"github.com/kitbackend/kit/internal/seal"
)

// kind says what a token is for. It is inside of the signature: a token of one
// kind is nothing on another route.
type kind byte

const (
	clickToken       kind = 'c'
	openToken        kind = 'o'
	unsubscribeToken kind = 'u'
)

// token is what the last segment of a callback path carries.
type token struct {
	kind  kind
	jobID string
	index uint16
	// expires is in unix seconds, 0 for never.
	expires uint32
	// payload is the target of a click, or the address to unsubscribe.
	payload string
}

// A token is base64url(version | key | kind | job id | index | expiry | payload)
// "." base64url(HMAC-SHA256 of that, cut to 16 bytes).
const (
	tokenVersion = 1
	headSize     = 3 + 16 + 2 + 4
	macSize      = 16
	maxToken     = 512 // what a path parameter may have
	clickTTL     = 400 * day
)

// jobIDs is how identifiers spell their 16 bytes.
var jobIDs = base32.NewEncoding("0123456789abcdefghjkmnpqrstvwxyz").WithPadding(base32.NoPadding)

// tokenKeys is the ring of the keys; number names one in a token.
type tokenKeys struct {
	host   capability.Host
	store  store
	seal   *seal.Keys
	reload *rate.Limiter

	mu     sync.RWMutex
	keys   map[byte][]byte
	newest byte
}

// reloads bounds how often unknown keys make a node read the rows.
var reloads = rate.Limit{Events: 10, Per: time.Second}

func newTokenKeys(host capability.Host, store store, keys *seal.Keys) *tokenKeys {
	return &tokenKeys{host: host, store: store, seal: keys, reload: rate.New(reloads, host.Now), keys: make(map[byte][]byte)}
}

// signer returns the newest key, making one when no row opens.
func (k *tokenKeys) signer(ctx context.Context) (number byte, key []byte, err error) {
	if number, key = k.current(); key != nil {
		return number, key, nil
	}
	keys, unopened, err := k.load(ctx)
	if err != nil {
		return 0, nil, err
	}
	if len(keys) == 0 {
		if unopened > 0 {
			k.host.Log.WarnContext(ctx, "email: no token key opens with the master keys, making a new one: links in mails sent before do not work",
				slog.Int("unopened", unopened))
		}
		return k.create(ctx)
	}
	number = slices.Max(slices.Collect(maps.Keys(keys)))
	return number, keys[number], nil
}

// create stores the next key; when another node has just done so, it returns that one.
func (k *tokenKeys) create(ctx context.Context) (number byte, key []byte, err error) {
	added := false
	err = k.host.DB.InTx(ctx, func(ctx context.Context) error {
		last, err := k.store.lastTokenKey(ctx)
		if err != nil {
			return err
		}
		number, key = byte(last+1), make([]byte, sha256.Size)
		_, _ = rand.Read(key) // never fails: crypto/rand ends the process instead
		added, err = k.store.insertTokenKey(ctx, last+1, k.seal.Seal(tokenKeyContext(last+1), key), k.host.DB.Now(ctx))
		if err != nil || !added {
			return err
		}
		k.add(ctx, number, key)
		return nil
	})
	switch {
	case err != nil:
		return 0, nil, err
	case !added:
		return k.signer(ctx)
	}
	return number, key, nil
}

// RotateTokenKey signs the links of later mails with a new key. The older keys
// verify for ever: an unsubscribe link never expires. There can be 255 keys.
func (e *Email) RotateTokenKey(ctx context.Context) error {
	_, _, err := e.tokens.create(ctx)
	return err
}

// Rewrap wraps token keys and kept messages with the first master key, so that
// older ones can be removed, and returns how many it changed. What opens with
// none of the master keys is left alone.
func (e *Email) Rewrap(ctx context.Context) (changed int, err error) {
	changed, err = sealedTokenKeys.Rewrap(ctx, e.host.DB, e.peers.Keys)
	if err != nil {
		return changed, err
	}
	n, err := sealedMessages.Rewrap(ctx, e.host.DB, e.peers.Keys)
	return changed + n, err
}

var (
	sealedTokenKeys = seal.Column[int64]{Table: "email_token_key", Key: "number", Column: "sealed", Context: tokenKeyContext}
	sealedMessages  = seal.Column[string]{Table: "email_message", Key: "job_id", Column: "sealed", Context: messageContext}
)

// load returns the keys that open and counts the other rows.
func (k *tokenKeys) load(ctx context.Context) (keys map[byte][]byte, unopened int, err error) {
	rows, err := k.store.tokenKeys(ctx)
	if err != nil {
		return nil, 0, err
	}
	keys = make(map[byte][]byte)
	for _, row := range rows {
		number := byte(row.number)
		key, err := k.seal.Open(tokenKeyContext(row.number), row.sealed)
		if err != nil || len(key) != sha256.Size {
			unopened++
			continue
		}
		keys[number] = key
		k.add(ctx, number, key)
	}
	return keys, unopened, nil
}

// add keeps a key once the transaction that may have made it is committed.
func (k *tokenKeys) add(ctx context.Context, number byte, key []byte) {
	database.AfterCommit(ctx, func() {
		k.mu.Lock()
		defer k.mu.Unlock()
		k.keys[number] = key
		k.newest = max(k.newest, number)
	})
}

func (k *tokenKeys) current() (byte, []byte) {
	k.mu.RLock()
	defer k.mu.RUnlock()
	return k.newest, k.keys[k.newest]
}

// find returns the key of a number, nil when there is none.
func (k *tokenKeys) find(ctx context.Context, number byte) ([]byte, error) {
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

func tokenKeyContext(number int64) string { return "email/token-key/" + strconv.FormatInt(number, 10) }

// mint writes a token under a key.
func mint(number byte, key []byte, t token) string {
	var jobID [16]byte
	_, _ = jobIDs.Decode(jobID[:], []byte(t.jobID))
	head := make([]byte, 0, headSize+len(t.payload))
	head = append(head, tokenVersion, number, byte(t.kind))
	head = append(head, jobID[:]...)
	head = binary.BigEndian.AppendUint16(head, t.index)
	head = binary.BigEndian.AppendUint32(head, t.expires)
	head = append(head, t.payload...)
	return base64.RawURLEncoding.EncodeToString(head) + "." + base64.RawURLEncoding.EncodeToString(mac(key, head))
}

func mac(key, head []byte) []byte {
	h := hmac.New(sha256.New, key)
	h.Write(head)
	return h.Sum(nil)[:macSize]
}

// read verifies a token for a route. It refuses with email/invalid_token.
func (k *tokenKeys) read(ctx context.Context, want kind, text string) (token, error) {
	left, right, _ := strings.Cut(text, ".")
	if len(text) > maxToken {
		return token{}, ErrInvalidToken
	}
	head, err := base64.RawURLEncoding.Strict().DecodeString(left)
	if err != nil || len(head) < headSize || head[0] != tokenVersion || kind(head[2]) != want {
		return token{}, ErrInvalidToken
	}
	sum, err := base64.RawURLEncoding.Strict().DecodeString(right)
	if err != nil {
		return token{}, ErrInvalidToken
	}
	key, err := k.find(ctx, head[1])
	if err != nil {
		return token{}, capability.ErrUnavailable.Because(err)
	}
	if key == nil || !hmac.Equal(sum, mac(key, head)) {
		return token{}, ErrInvalidToken
	}
	return token{
		kind:    want,
		jobID:   jobIDs.EncodeToString(head[3:19]),
		index:   binary.BigEndian.Uint16(head[19:]),
		expires: binary.BigEndian.Uint32(head[21:]),
		payload: string(head[headSize:]),
	}, nil
}

// links mints the links of one message.
type links struct {
	base   string
	number byte
	key    []byte
	jobID  string
	until  uint32
}

func (e *Email) links(ctx context.Context, jobID string, now time.Time) (links, error) {
	number, key, err := e.tokens.signer(ctx)
	return links{e.callbacks, number, key, jobID, uint32(now.Add(clickTTL).Unix())}, err
}

func (l links) click(index int, target string) string {
	if index > 0xffff {
		return target
	}
	return l.base + "/c/" + mint(l.number, l.key, token{clickToken, l.jobID, uint16(index), l.until, target})
}

func (l links) open() string {
	return l.base + "/o/" + mint(l.number, l.key, token{openToken, l.jobID, 0, l.until, ""})
}

func (l links) unsubscribe(addressKey string) string {
	return l.base + "/u/" + mint(l.number, l.key, token{unsubscribeToken, l.jobID, 0, 0, addressKey})
}

var _ = [1]struct{}{}[id.Len-26] // identifiers are 16 bytes in base 32
