package email

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base32"
	"encoding/base64"
	"encoding/binary"
	"strings"
	"time"

	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/internal/id"
)

// kind is the purpose of a token. It is covered by the signature: a token of one kind is invalid on
// another route.
type kind byte

const (
	clickToken       kind = 'c'
	openToken        kind = 'o'
	unsubscribeToken kind = 'u'
)

// token is the content of the last segment of a callback path.
type token struct {
	kind  kind
	jobID string
	index uint16
	// expires is in Unix seconds, 0 for never.
	expires uint32
	// payload is the target of a click, or the address to unsubscribe.
	payload string
}

// A token is base64url(version | key | kind | job ID | index | expiry | payload) "."
// base64url(HMAC-SHA256 of that, truncated to 16 bytes).
const (
	tokenVersion = 1
	headSize     = 3 + 16 + 2 + 4
	macSize      = 16
	maxToken     = 512 // the bound of a path parameter
	clickTTL     = 400 * day
)

// jobIDs is the encoding of the 16 bytes of an ID.
var jobIDs = base32.NewEncoding("0123456789abcdefghjkmnpqrstvwxyz").WithPadding(base32.NoPadding)

// mint signs a token with a key.
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
func (k *keyring) read(ctx context.Context, want kind, text string) (token, error) {
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

// links signs the links of one message.
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

var _ = [1]struct{}{}[id.Len-26] // IDs are 16 bytes in base 32
