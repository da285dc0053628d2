// Package wire contains what both ends of a control-plane connection compute: the ids of keys and
// connections, the form of a public key, and the types of the signed messages.
package wire

import (
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"strings"
)

// The typ of the two kinds of signed message.
const (
	// CredentialType is the typ of the credential of one call.
	CredentialType = "kit-cp+jwt"
	// ProofType is the typ of the proof of possession of a new key.
	ProofType = "kit-cp-proof+jwt"
)

// idLength is the length of an id, a truncated hash: 132 bits in base64url.
const idLength = 22

var encoding = base64.RawURLEncoding.Strict()

// The errors of a public key.
var (
	ErrForm = errors.New(`a public key is a JWK of three members: "kty": "OKP", "crv": "Ed25519", and x in base64url`)
	ErrWeak = errors.New("a public key of small order signs nothing")
)

// JWK is an Ed25519 public key (RFC 8037). It has no other members, in particular no private part.
type JWK struct {
	KeyType string `json:"kty"`
	Curve   string `json:"crv"`
	X       string `json:"x"`
}

// NewJWK returns the JWK of a public key.
func NewJWK(key ed25519.PublicKey) JWK {
	return JWK{KeyType: "OKP", Curve: "Ed25519", X: encoding.EncodeToString(key)}
}

// Public returns the key. It refuses with [ErrForm] and [ErrWeak].
func (j JWK) Public() (ed25519.PublicKey, error) {
	key, err := encoding.DecodeString(j.X)
	if err != nil || j.KeyType != "OKP" || j.Curve != "Ed25519" || strings.ContainsAny(j.X, "\r\n") {
		return nil, ErrForm
	}
	return key, Usable(key)
}

// Usable refuses keys of a wrong size with [ErrForm], and keys for which anybody can forge
// signatures with [ErrWeak].
func Usable(key ed25519.PublicKey) error {
	if len(key) != ed25519.PublicKeySize {
		return ErrForm
	}
	y := bytes.Clone(key)
	y[31] &= 0x7f // the sign bit of the x coordinate
	for _, weak := range smallOrder {
		if bytes.Equal(y, weak) {
			return ErrWeak
		}
	}
	return nil
}

// smallOrder lists the encodings of all points whose order divides the cofactor 8, without the sign
// bit, including the non-canonical ones above the field's prime.
var smallOrder = [][]byte{
	fromHex("0000000000000000000000000000000000000000000000000000000000000000"),
	fromHex("0100000000000000000000000000000000000000000000000000000000000000"),
	fromHex("26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05"),
	fromHex("c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a"),
	fromHex("ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f"),
	fromHex("edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f"),
	fromHex("eeffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f"),
}

func fromHex(text string) []byte {
	raw, err := hex.DecodeString(text)
	if err != nil {
		panic(err)
	}
	return raw
}

// KeyID returns the id of a public key, by its thumbprint (RFC 7638).
func KeyID(key ed25519.PublicKey) string {
	return "k_" + name(`{"crv":"Ed25519","kty":"OKP","x":"`+encoding.EncodeToString(key)+`"}`)
}

// ConnectionID returns the id of the connection that begins with a key in an environment. The
// holder of the key can compute it without a request.
func ConnectionID(environment string, first ed25519.PublicKey) string {
	return "c_" + name("kit/controlplane/connection/v1\n"+environment+"\n"+KeyID(first))
}

// BodyHash returns the claim bdh, which binds a credential to the exact body.
func BodyHash(body []byte) string {
	sum := sha256.Sum256(body)
	return encoding.EncodeToString(sum[:])
}

func name(text string) string {
	sum := sha256.Sum256([]byte(text))
	return encoding.EncodeToString(sum[:])[:idLength]
}
