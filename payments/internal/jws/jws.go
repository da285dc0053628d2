// Package jws verifies and makes the compact JWS (RFC 7515) of app stores:
// ES256 with certificates in the header, RS256 with a key id. The algorithm is
// the caller's, never the header's.
package jws

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"math/big"
	"strings"

	"github.com/kitbackend/kit/internal/strictjson"
)

// The algorithms.
const (
	ES256 = "ES256"
	RS256 = "RS256"
)

const (
	// MaxSize bounds a token, in bytes as they come.
	MaxSize = 128 << 10
	// MaxHeader bounds its header.
	MaxHeader = 24 << 10
	// coordinate is the size of half an ES256 signature.
	coordinate = 32
)

var (
	// ErrMalformed reports text that is not a token of the algorithm.
	ErrMalformed = errors.New("jws: malformed token")
	// ErrSignature reports a signature that does not verify.
	ErrSignature = errors.New("jws: the signature does not verify")
)

// Header holds the members of a token's header that are read.
type Header struct {
	Algorithm string `json:"alg"`
	KeyID     string `json:"kid"`
	// Certificates are DER in base64, the leaf first.
	Certificates []string        `json:"x5c"`
	Critical     json.RawMessage `json:"crit"`
}

// Token is a parsed token. Nothing in it can be trusted before it is verified.
type Token struct {
	Header    Header
	Payload   []byte
	signed    []byte
	signature []byte
}

var encoding = base64.RawURLEncoding.Strict()

// Parse reads a token of one algorithm, without verifying it.
func Parse(raw, algorithm string) (Token, error) {
	if len(raw) > MaxSize || strings.Count(raw, ".") != 2 || strings.ContainsAny(raw, "\r\n") {
		return Token{}, ErrMalformed
	}
	header, rest, _ := strings.Cut(raw, ".")
	payload, signature, _ := strings.Cut(rest, ".")
	if len(header) > MaxHeader {
		return Token{}, ErrMalformed
	}
	t := Token{signed: []byte(raw[:len(header)+1+len(payload)])}
	if err := decode(header, &t.Header); err != nil || t.Header.Algorithm != algorithm || t.Header.Critical != nil {
		return Token{}, ErrMalformed
	}
	var err error
	if t.Payload, err = encoding.DecodeString(payload); err != nil || len(t.Payload) == 0 {
		return Token{}, ErrMalformed
	}
	if t.signature, err = encoding.DecodeString(signature); err != nil || len(t.signature) == 0 {
		return Token{}, ErrMalformed
	}
	return t, nil
}

func decode(part string, into any) error {
	text, err := encoding.DecodeString(part)
	if err != nil {
		return err
	}
	if err := strictjson.Valid(text); err != nil {
		return err
	}
	return json.Unmarshal(text, into)
}

// VerifyES256 checks the signature with a key on P-256.
func (t Token) VerifyES256(key *ecdsa.PublicKey) error {
	if t.Header.Algorithm != ES256 || key == nil || key.Curve != elliptic.P256() || len(t.signature) != 2*coordinate {
		return ErrSignature
	}
	digest := sha256.Sum256(t.signed)
	r, s := new(big.Int).SetBytes(t.signature[:coordinate]), new(big.Int).SetBytes(t.signature[coordinate:])
	if !ecdsa.Verify(key, digest[:], r, s) {
		return ErrSignature
	}
	return nil
}

// VerifyRS256 checks the signature with an RSA key of at least 2048 bits.
func (t Token) VerifyRS256(key *rsa.PublicKey) error {
	if t.Header.Algorithm != RS256 || key == nil || key.N.BitLen() < 2048 {
		return ErrSignature
	}
	digest := sha256.Sum256(t.signed)
	if rsa.VerifyPKCS1v15(key, crypto.SHA256, digest[:], t.signature) != nil {
		return ErrSignature
	}
	return nil
}

// Sign makes a token with an *ecdsa.PrivateKey on P-256 or an *rsa.PrivateKey;
// members are added to the header.
func Sign(key crypto.Signer, members map[string]any, claims any) (string, error) {
	header := map[string]any{}
	switch key.(type) {
	case *ecdsa.PrivateKey:
		header["alg"] = ES256
	case *rsa.PrivateKey:
		header["alg"] = RS256
	default:
		return "", errors.New("jws: a key of another kind")
	}
	for name, value := range members {
		header[name] = value
	}
	head, err := json.Marshal(header)
	if err != nil {
		return "", err
	}
	payload, err := json.Marshal(claims)
	if err != nil {
		return "", err
	}
	input := encoding.EncodeToString(head) + "." + encoding.EncodeToString(payload)
	digest := sha256.Sum256([]byte(input))
	var signature []byte
	switch key := key.(type) {
	case *ecdsa.PrivateKey:
		r, s, err := ecdsa.Sign(rand.Reader, key, digest[:])
		if err != nil {
			return "", err
		}
		signature = make([]byte, 2*coordinate)
		r.FillBytes(signature[:coordinate])
		s.FillBytes(signature[coordinate:])
	case *rsa.PrivateKey:
		if signature, err = rsa.SignPKCS1v15(rand.Reader, key, crypto.SHA256, digest[:]); err != nil {
			return "", err
		}
	}
	return input + "." + encoding.EncodeToString(signature), nil
}

// ErrKey reports a private key that cannot be used.
var ErrKey = errors.New("jws: not a private key in PEM and PKCS #8")

// ECKey reads a private key on P-256 from PEM.
func ECKey(text string) (*ecdsa.PrivateKey, error) {
	key, err := private(text)
	if err != nil {
		return nil, err
	}
	if key, ok := key.(*ecdsa.PrivateKey); ok && key.Curve == elliptic.P256() {
		return key, nil
	}
	return nil, errors.New("jws: not a private key on P-256")
}

// RSAKey reads an RSA private key of at least 2048 bits from PEM.
func RSAKey(text string) (*rsa.PrivateKey, error) {
	key, err := private(text)
	if err != nil {
		return nil, err
	}
	if key, ok := key.(*rsa.PrivateKey); ok && key.N.BitLen() >= 2048 {
		return key, nil
	}
	return nil, errors.New("jws: not an RSA private key of at least 2048 bits")
}

func private(text string) (any, error) {
	block, _ := pem.Decode([]byte(text))
	if block == nil {
		return nil, ErrKey
	}
	key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, ErrKey
	}
	return key, nil
}
