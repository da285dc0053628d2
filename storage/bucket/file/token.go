package file

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/kitbackend/kit/storage/bucket"
)

// claims are the contents of the token of a signed URL.
//
//	version 1, purpose 1, key number 1, expires 8, key 26,
//	part only: upload 26, number 2, size 8
//	put only: size 8, checksum 0 or 32
//	MAC 32, over all of it and the query
type claims struct {
	purpose   byte
	expires   int64 // unix milliseconds
	key       string
	upload    string
	number    int
	size      int64
	checksum  []byte
	parameter url.Values // type and disposition, in the query
}

// The purposes. Each has signing keys of its own.
const (
	purposePut  = 'p'
	purposePart = 'n'
	purposeGet  = 'g'
)

const (
	tokenVersion = 1
	keyLength    = 26
	headLength   = 3 + 8 + keyLength
)

var tokenCoding = base64.RawURLEncoding.Strict()

// SignPut implements [bucket.Bucket].
func (b *Bucket) SignPut(ctx context.Context, key string, put bucket.Put, ttl time.Duration) (bucket.Signed, error) {
	address, err := b.sign(ctx, claims{purpose: purposePut, key: key, size: put.Size, checksum: put.SHA256,
		parameter: url.Values{"type": {put.ContentType}}}, ttl)
	return bucket.Signed{Method: http.MethodPut, URL: address, Header: map[string]string{"Content-Type": put.ContentType}}, err
}

// SignPart implements [bucket.Bucket].
func (b *Bucket) SignPart(ctx context.Context, key, upload string, number int, size int64, ttl time.Duration) (bucket.Signed, error) {
	address, err := b.sign(ctx, claims{purpose: purposePart, key: key, upload: upload, number: number, size: size}, ttl)
	return bucket.Signed{Method: http.MethodPut, URL: address}, err
}

// SignGet implements [bucket.Bucket].
func (b *Bucket) SignGet(ctx context.Context, key string, get bucket.Get, ttl time.Duration) (bucket.Signed, error) {
	address, err := b.sign(ctx, claims{purpose: purposeGet, key: key,
		parameter: url.Values{"type": {get.ContentType}, "disposition": {get.Disposition}}}, ttl)
	return bucket.Signed{Method: http.MethodGet, URL: address}, err
}

func (b *Bucket) sign(ctx context.Context, c claims, ttl time.Duration) (string, error) {
	if !bucket.ValidKey(c.key) || c.purpose == purposePart && !bucket.ValidKey(c.upload) {
		return "", bucket.ErrNotFound
	}
	number, key, err := b.serving.Current(ctx)
	if err != nil {
		return "", err
	}
	c.expires = b.serving.Now().Add(ttl).UnixMilli()
	token := c.encode(number)
	query := c.parameter.Encode()
	token = append(token, mac(key, c.purpose, token, query)...)
	address := b.serving.Prefix + tokenCoding.EncodeToString(token)
	if query != "" {
		address += "?" + query
	}
	return address, nil
}

func (c claims) encode(number byte) []byte {
	t := []byte{tokenVersion, c.purpose, number}
	t = binary.BigEndian.AppendUint64(t, uint64(c.expires))
	t = append(t, c.key...)
	switch c.purpose {
	case purposePart:
		t = append(t, c.upload...)
		t = binary.BigEndian.AppendUint16(t, uint16(c.number))
		t = binary.BigEndian.AppendUint64(t, uint64(c.size))
	case purposePut:
		t = binary.BigEndian.AppendUint64(t, uint64(c.size))
		t = append(t, c.checksum...)
	}
	return t
}

// mac signs a token and a query with a key derived for the purpose.
func mac(key []byte, purpose byte, token []byte, query string) []byte {
	derived := hmac.New(sha256.New, key)
	derived.Write([]byte{'k', 'i', 't', ' ', 's', 't', 'o', 'r', 'a', 'g', 'e', ' ', purpose})
	m := hmac.New(sha256.New, derived.Sum(nil))
	m.Write([]byte(strconv.Itoa(len(token)) + ":"))
	m.Write(token)
	m.Write([]byte(query))
	return m.Sum(nil)
}

// verify decodes and checks a token. Any fault of a token is [bucket.ErrDenied].
func (b *Bucket) verify(ctx context.Context, text, query string) (c claims, err error) {
	raw, err := tokenCoding.DecodeString(text)
	if err != nil || len(raw) < headLength+sha256.Size || raw[0] != tokenVersion {
		return c, bucket.ErrDenied
	}
	token, sum := raw[:len(raw)-sha256.Size], raw[len(raw)-sha256.Size:]
	key, err := b.serving.Find(ctx, token[2])
	if err != nil {
		return c, err
	}
	if key == nil || !hmac.Equal(sum, mac(key, token[1], token, query)) {
		return c, bucket.ErrDenied
	}
	c, ok := decode(token)
	if !ok || b.serving.Now().UnixMilli() >= c.expires {
		return c, bucket.ErrDenied
	}
	if c.parameter, err = url.ParseQuery(query); err != nil {
		return c, bucket.ErrDenied
	}
	return c, nil
}

func decode(token []byte) (c claims, ok bool) {
	c = claims{purpose: token[1], expires: int64(binary.BigEndian.Uint64(token[3:])), key: string(token[11:headLength])}
	rest := token[headLength:]
	switch c.purpose {
	case purposePart:
		if len(rest) != keyLength+2+8 {
			return c, false
		}
		c.upload = string(rest[:keyLength])
		c.number = int(binary.BigEndian.Uint16(rest[keyLength:]))
		c.size = int64(binary.BigEndian.Uint64(rest[keyLength+2:]))
		return c, bucket.ValidKey(c.key) && bucket.ValidKey(c.upload)
	case purposePut:
		if len(rest) != 8 && len(rest) != 8+sha256.Size {
			return c, false
		}
		c.size, c.checksum = int64(binary.BigEndian.Uint64(rest)), rest[8:]
		return c, bucket.ValidKey(c.key)
	default:
		return c, c.purpose == purposeGet && len(rest) == 0 && bucket.ValidKey(c.key)
	}
}
