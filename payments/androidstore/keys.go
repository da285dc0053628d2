package androidstore

import (
	"context"
	"crypto/rsa"
	"encoding/base64"
	"errors"
	"math/big"
	"regexp"
	"strconv"
	"sync"
	"time"

	"github.com/kitbackend/kit/payments"
	"github.com/kitbackend/kit/payments/internal/outbound"
)

const (
	// keysFor is how long keys are kept when the issuer does not say, and the most
	// that it may say.
	keysFor     = time.Hour
	maxKeysFor  = 24 * time.Hour
	maxKeys     = 32
	minRefetch  = 30 * time.Second
	keysTimeout = 2 * time.Second
	maxExponent = 1 << 31
)

// keys are the issuer's public keys, fetched when they are needed: once they are
// old, and for a key that is not among them, though not more often than every 30
// seconds.
type keys struct {
	url    string
	client *outbound.Client

	mu      sync.Mutex
	known   map[string]*rsa.PublicKey
	until   time.Time
	fetched time.Time
	failure error // of the last fetch
}

// key returns the key of an id. It refuses with [payments.ErrInvalidSignature] if the issuer has no
// such key, and returns [payments.Transient] if the keys cannot be fetched.
func (k *keys) key(ctx context.Context, now func() time.Time, id string) (*rsa.PublicKey, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	at := now()
	known, ok := k.known[id]
	if ok && at.Before(k.until) && !at.Before(k.fetched) {
		return known, nil
	}
	if k.fetched.IsZero() || at.Sub(k.fetched) >= minRefetch || at.Before(k.fetched) {
		k.fetched = at
		k.failure = k.refresh(ctx, now)
		known, ok = k.known[id]
	}
	switch {
	case ok && k.failure == nil:
		return known, nil
	case k.failure != nil:
		return nil, payments.Transient(errors.New("the keys of the issuer cannot be had"), minRefetch)
	}
	return nil, payments.ErrInvalidSignature.Because(errors.New("the issuer has no key of the id in the token"))
}

// refresh fetches the keys. It ignores the cancellation of its caller, because others wait for it
// too.
func (k *keys) refresh(ctx context.Context, now func() time.Time) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), keysTimeout)
	defer cancel()
	return k.fetch(ctx, now)
}

func (k *keys) fetch(ctx context.Context, now func() time.Time) error {
	var set struct {
		Keys []struct {
			Type     string `json:"kty"`
			ID       string `json:"kid"`
			Use      string `json:"use"`
			Modulus  string `json:"n"`
			Exponent string `json:"e"`
		} `json:"keys"`
	}
	response, err := k.client.JSON(ctx, outbound.Request{Now: now, Base: k.url, Repeatable: true}, &set)
	if err != nil {
		return err
	}
	if !response.OK() {
		return k.client.Unexpected(response)
	}
	found := make(map[string]*rsa.PublicKey)
	for _, each := range set.Keys[:min(len(set.Keys), maxKeys)] {
		n, err := base64.RawURLEncoding.DecodeString(each.Modulus)
		e, err2 := base64.RawURLEncoding.DecodeString(each.Exponent)
		exponent := new(big.Int).SetBytes(e)
		if each.Type != "RSA" || each.ID == "" || each.Use != "" && each.Use != "sig" || err != nil || err2 != nil ||
			!exponent.IsInt64() || exponent.Int64() < 3 || exponent.Int64() >= maxExponent || len(n) > 1024 {
			continue
		}
		found[each.ID] = &rsa.PublicKey{N: new(big.Int).SetBytes(n), E: int(exponent.Int64())}
	}
	if len(found) == 0 {
		return errors.New("the issuer has no keys")
	}
	k.known, k.until = found, now().Add(lifetime(response.Header.Get("Cache-Control")))
	return nil
}

var maxAge = regexp.MustCompile(`(?:^|[\s,])max-age=([0-9]{1,9})`)

// lifetime returns how long a response may be cached.
func lifetime(cacheControl string) time.Duration {
	match := maxAge.FindStringSubmatch(cacheControl)
	if match == nil {
		return keysFor
	}
	seconds, err := strconv.Atoi(match[1])
	if err != nil {
		return keysFor
	}
	return min(max(time.Duration(seconds)*time.Second, time.Minute), maxKeysFor)
}
