// Package seal encrypts the kit's data at rest: signing keys, refresh keys, secrets. Every value is
// encrypted under a key of its own, which a master key wraps; a master key is replaced by putting a
// new one first and keeping the old one for what it has sealed. A sealed value opens only in the
// context it was sealed for, so a row that was moved or swapped does not open.
package seal

import (
	"crypto/aes"
	"crypto/cipher"
	"errors"

	"github.com/kitbackend/kit/internal/random"
)

// version is the first byte of every sealed value.
const version = 1

const (
	keySize     = 32
	wrappedSize = 12 + keySize + 16 // nonce, key, tag
)

// ErrNotOpened is what [Keys.Open] returns whatever the reason: another master
// key, another context, or altered bytes.
var ErrNotOpened = errors.New("seal: the value does not open with the master keys in this context")

// Keys are the master keys. They are safe for concurrent use.
type Keys struct {
	first     string
	ciphers   map[string]cipher.AEAD
	ephemeral bool
}

// Ephemeral reports whether the master key was made for this run only: values sealed with it do not
// open in the next one.
func (k *Keys) Ephemeral() bool { return k.ephemeral }

// Seal encrypts plaintext for a context, such as "auth/signing-key/" and its id.
func (k *Keys) Seal(context string, plaintext []byte) []byte {
	key := random.Bytes(keySize)
	return newCipher(key).Seal(k.wrap(context, key), nil, plaintext, content(context))
}

// Open decrypts what [Keys.Seal] made for the same context, or returns [ErrNotOpened].
func (k *Keys) Open(context string, sealed []byte) ([]byte, error) {
	key, rest, err := k.unwrap(context, sealed)
	if err != nil {
		return nil, err
	}
	plaintext, err := newCipher(key).Open(nil, nil, rest, content(context))
	if err != nil {
		return nil, ErrNotOpened
	}
	return plaintext, nil
}

// Rewrap wraps the key of a sealed value with the first master key, so that
// older ones can be removed; changed is false when it already is. The content
// stays encrypted throughout. It returns [ErrNotOpened].
func (k *Keys) Rewrap(context string, sealed []byte) (rewrapped []byte, changed bool, err error) {
	if KeyID(sealed) == k.first {
		return sealed, false, nil
	}
	key, rest, err := k.unwrap(context, sealed)
	if err != nil {
		return nil, false, err
	}
	return append(k.wrap(context, key), rest...), true, nil
}

// KeyID returns which master key wraps a sealed value, or "".
func KeyID(sealed []byte) string {
	id, _, ok := split(sealed)
	if !ok {
		return ""
	}
	return id
}

// wrap starts a sealed value: version, id of the master key, wrapped key.
func (k *Keys) wrap(context string, key []byte) []byte {
	head := append([]byte{version, byte(len(k.first))}, k.first...)
	return k.ciphers[k.first].Seal(head, nil, key, wrapping(context))
}

// unwrap returns the key of a sealed value and the content it encrypts.
func (k *Keys) unwrap(context string, sealed []byte) (key, rest []byte, err error) {
	id, rest, ok := split(sealed)
	master, known := k.ciphers[id]
	if !ok || !known {
		return nil, nil, ErrNotOpened
	}
	key, err = master.Open(nil, nil, rest[:wrappedSize], wrapping(context))
	if err != nil {
		return nil, nil, ErrNotOpened
	}
	return key, rest[wrappedSize:], nil
}

// split separates the header of a sealed value; rest holds the wrapped key at least.
func split(sealed []byte) (id string, rest []byte, ok bool) {
	if len(sealed) < 2 || sealed[0] != version {
		return "", nil, false
	}
	n, rest := int(sealed[1]), sealed[2:]
	if len(rest) < n+wrappedSize {
		return "", nil, false
	}
	return string(rest[:n]), rest[n:], true
}

// The two layers authenticate different texts, so that neither can replace the other.
func wrapping(context string) []byte { return []byte("kit/seal/v1/key/" + context) }
func content(context string) []byte  { return []byte("kit/seal/v1/content/" + context) }

// newCipher is AES-256-GCM with random nonces; key has 32 bytes.
func newCipher(key []byte) cipher.AEAD {
	block, err := aes.NewCipher(key)
	if err != nil {
		panic(err)
	}
	aead, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		panic(err)
	}
	return aead
}
