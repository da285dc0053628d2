// Package jose signs and verifies the kit's own tokens: compact JWS (RFC 7515)
// with EdDSA (RFC 8037) over JWT claims (RFC 7519). It is strict where the
// RFCs and libraries leave room: one encoding, one algorithm, no header member
// that could change how the signature is checked, no claim twice.
package jose

import (
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/lestrrat-go/jwx/v2/jwa"
	"github.com/lestrrat-go/jwx/v2/jws"
)

// Algorithm is the only one signed with and accepted.
const Algorithm = "EdDSA"

// MaxSize bounds a token, in bytes.
const MaxSize = 4 << 10

// ErrSignature is what [Token.Verify] returns for a signature that does not verify.
var ErrSignature = errors.New("jose: the signature does not verify")

// Token is a parsed token. Nothing in it can be trusted before Verify.
type Token struct {
	KeyID, Type string
	// ExpiresAt and IssuedAt are in seconds since 1970.
	ExpiresAt, IssuedAt int64
	claims              map[string]any
	input, signature    []byte
}

// Verify checks the signature over the bytes as received.
func (t *Token) Verify(key ed25519.PublicKey) error {
	verifier, err := jws.NewVerifier(jwa.EdDSA)
	if err != nil {
		return err
	}
	if err := verifier.Verify(t.input, t.signature, key); err != nil {
		return ErrSignature
	}
	return nil
}

// Has reports whether a claim is there, whatever its type.
func (t *Token) Has(claim string) bool {
	_, ok := t.claims[claim]
	return ok
}

// Text returns a claim that is a string, or "".
func (t *Token) Text(claim string) string {
	text, _ := t.claims[claim].(string)
	return text
}

// Integer returns a claim that is an integer; ok is false for any other.
func (t *Token) Integer(claim string) (n int64, ok bool) {
	number, ok := t.claims[claim].(json.Number)
	if !ok {
		return 0, false
	}
	return integer(number)
}

// Sign makes a token. It returns only tokens that [Parse] takes, so claims that
// are too large or malformed are an error here.
func Sign(key ed25519.PrivateKey, keyID, typ string, claims any) (string, error) {
	header, err := json.Marshal(map[string]string{"alg": Algorithm, "kid": keyID, "typ": typ})
	if err != nil {
		return "", err
	}
	payload, err := json.Marshal(claims)
	if err != nil {
		return "", err
	}
	signer, err := jws.NewSigner(jwa.EdDSA)
	if err != nil {
		return "", err
	}
	input := encoding.EncodeToString(header) + "." + encoding.EncodeToString(payload)
	signature, err := signer.Sign([]byte(input), key)
	if err != nil {
		return "", err
	}
	token := input + "." + encoding.EncodeToString(signature)
	if _, err := Parse(token); err != nil {
		return "", fmt.Errorf("jose: unusable claims: %w", err)
	}
	return token, nil
}
