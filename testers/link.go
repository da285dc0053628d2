package testers

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"strings"
	"time"

	"github.com/kitbackend/kit/internal/id"
)

// linkKind is the purpose of a link. It is signed, so that a link is valid on the route of its kind
// only.
type linkKind byte

const (
	confirmLink linkKind = 'c'
	optInLink   linkKind = 'i'
	optOutLink  linkKind = 'o'
)

// link is the content of a signed link. It includes the hash of the address, so that an opt-out
// link works after the member is deleted.
type link struct {
	kind       linkKind
	memberID   string
	generation int64
	expires    time.Time // zero: never
	hash       string
}

// A link's token is base64url(version | key | kind | member id | generation |
// expiry | hash of the address) "." base64url(HMAC-SHA256, cut to 16 bytes).
const (
	tokenVersion = 1
	hashSize     = 16
	tokenSize    = 3 + id.Len + 4 + 4 + hashSize
	macSize      = 16
	maxToken     = 256
)

func mac(key []byte, what string, text []byte) []byte {
	h := hmac.New(sha256.New, key)
	h.Write([]byte("kit/testers/" + what + "/v1\x00"))
	h.Write(text)
	return h.Sum(nil)[:macSize]
}

// hashes returns the keyed hashes of an address, first the one that is stored in rows.
func (t *Testers) hashes(ctx context.Context, addressKey string) ([]string, error) {
	keys, err := t.keys.opened(ctx)
	var list []string
	for _, k := range keys {
		list = append(list, hex.EncodeToString(mac(k.key, "address", []byte(addressKey))))
	}
	return list, err
}

// url returns the signed URL of a link.
func (t *Testers) url(ctx context.Context, l link) (string, error) {
	keys, err := t.keys.opened(ctx)
	if err != nil {
		return "", err
	}
	k := keys[len(keys)-1]
	head := append(make([]byte, 0, tokenSize), tokenVersion, k.number, byte(l.kind))
	head = append(head, l.memberID...)
	head = binary.BigEndian.AppendUint32(head, uint32(l.generation))
	expires := uint32(0)
	if !l.expires.IsZero() {
		expires = uint32(l.expires.Unix())
	}
	head = binary.BigEndian.AppendUint32(head, expires)
	hash, err := hex.DecodeString(l.hash)
	if err != nil {
		return "", err
	}
	head = append(head, hash...)
	token := base64.RawURLEncoding.EncodeToString(head) + "." + base64.RawURLEncoding.EncodeToString(mac(k.key, "link", head))
	path := map[linkKind]string{confirmLink: "/confirm/", optInLink: "/opt-in/", optOutLink: "/opt-out/"}[l.kind]
	return strings.TrimSuffix(t.cfg.BaseURL, "/") + t.cfg.BasePath + path + token, nil
}

// read verifies a token for a route. The caller checks its expiry and generation. It refuses with
// testers/invalid_token.
func (t *Testers) read(ctx context.Context, want linkKind, text string) (link, error) {
	if len(text) > maxToken {
		return link{}, ErrInvalidToken
	}
	left, right, _ := strings.Cut(text, ".")
	encoding := base64.RawURLEncoding.Strict()
	head, err := encoding.DecodeString(left)
	if err != nil || len(head) != tokenSize || head[0] != tokenVersion || linkKind(head[2]) != want {
		return link{}, ErrInvalidToken
	}
	sum, err := encoding.DecodeString(right)
	if err != nil {
		return link{}, ErrInvalidToken
	}
	key, err := t.keys.find(ctx, head[1])
	if err != nil {
		return link{}, err
	}
	if key == nil || !hmac.Equal(sum, mac(key, "link", head)) {
		return link{}, ErrInvalidToken
	}
	l := link{kind: want, memberID: string(head[3 : 3+id.Len]), hash: hex.EncodeToString(head[tokenSize-hashSize:])}
	l.generation = int64(binary.BigEndian.Uint32(head[3+id.Len:]))
	if expires := binary.BigEndian.Uint32(head[3+id.Len+4:]); expires > 0 {
		l.expires = time.Unix(int64(expires), 0)
	}
	return l, nil
}
