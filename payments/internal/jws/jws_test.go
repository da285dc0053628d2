package jws_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"strings"
	"testing"

	"github.com/kitbackend/kit/payments/internal/jws"
)

func ecKey(t testing.TB, curve elliptic.Curve) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(curve, rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func TestSignAndVerify(t *testing.T) {
	key, other := ecKey(t, elliptic.P256()), ecKey(t, elliptic.P256())
	raw, err := jws.Sign(key, map[string]any{"kid": "k"}, map[string]string{"a": "b"})
	if err != nil {
		t.Fatal(err)
	}
	token, err := jws.Parse(raw, jws.ES256)
	if err != nil {
		t.Fatal(err)
	}
	if token.VerifyES256(&key.PublicKey) != nil || token.Header.KeyID != "k" || string(token.Payload) != `{"a":"b"}` {
		t.Errorf("%+v", token)
	}
	if token.VerifyES256(&other.PublicKey) == nil || token.VerifyES256(&ecKey(t, elliptic.P384()).PublicKey) == nil || token.VerifyES256(nil) == nil || token.VerifyRS256(nil) == nil {
		t.Error("another key verifies")
	}
	if _, err := jws.Parse(raw, jws.RS256); err == nil {
		t.Error("the algorithm is the header's")
	}
	// The signature in DER, as ecdsa has it elsewhere, is none here.
	parts := strings.Split(raw, ".")
	if token, err := jws.Parse(parts[0]+"."+parts[1]+"."+"MEUCIQDx", jws.ES256); err == nil && token.VerifyES256(&key.PublicKey) == nil {
		t.Error("a signature in DER verifies")
	}
}

func TestKeysThatAreNone(t *testing.T) {
	for _, text := range []string{"", "x", "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"} {
		if _, err := jws.ECKey(text); err == nil {
			t.Errorf("%q is a key on P-256", text)
		}
		if _, err := jws.RSAKey(text); err == nil {
			t.Errorf("%q is an RSA key", text)
		}
	}
}

func FuzzParse(f *testing.F) {
	key := ecKey(f, elliptic.P256())
	raw, err := jws.Sign(key, nil, map[string]string{"a": "b"})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(raw)
	f.Add("..")
	f.Add("eyJhbGciOiJub25lIn0.e30.")
	f.Fuzz(func(t *testing.T, text string) {
		token, err := jws.Parse(text, jws.ES256)
		if err != nil {
			return
		}
		if token.Header.Algorithm != jws.ES256 || len(token.Payload) == 0 || len(text) > jws.MaxSize {
			t.Fatalf("%+v", token)
		}
		if text != raw && token.VerifyES256(&key.PublicKey) == nil && !strings.HasPrefix(text, raw[:strings.LastIndexByte(raw, '.')]) {
			t.Fatalf("a forgery: %q", text)
		}
	})
}
