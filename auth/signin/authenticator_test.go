package signin_test

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"testing"
)

// Flags of authenticator data (WebAuthn, section 6.1).
const (
	userPresent    = 1 << 0
	userVerified   = 1 << 2
	backupEligible = 1 << 3
	backedUp       = 1 << 4
	attested       = 1 << 6
)

// softKey is an authenticator in software that holds one passkey, and whatever
// page it believes to be in.
type softKey struct {
	t       testing.TB
	origin  string
	rpID    string
	flags   byte
	counter uint32
	id      []byte
	user    []byte
	key     crypto.Signer
	cross   bool
}

var urlText = base64.RawURLEncoding

func newES256(t testing.TB) *softKey {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	return newSoftKey(t, key)
}

func newEd25519(t testing.TB) *softKey {
	_, key, err := ed25519.GenerateKey(rand.Reader)
	must(t, err)
	return newSoftKey(t, key)
}

func newSoftKey(t testing.TB, key crypto.Signer) *softKey {
	id := make([]byte, 32)
	_, _ = rand.Read(id)
	return &softKey{t: t, origin: baseURL, rpID: "kit.example", flags: userPresent | userVerified, id: id, key: key}
}

// options are what the site asks an authenticator for.
type options struct {
	Challenge string
	User      struct{ ID, Name, DisplayName string }
}

// clientData is what a browser has signed along.
func (k *softKey) clientData(kind, challenge string) []byte {
	raw, err := json.Marshal(object{"type": "webauthn." + kind, "challenge": challenge, "origin": k.origin, "crossOrigin": k.cross})
	must(k.t, err)
	return raw
}

func (k *softKey) authData(flags byte) []byte {
	rp := sha256.Sum256([]byte(k.rpID))
	return binary.BigEndian.AppendUint32(append(rp[:], flags), k.counter)
}

// create returns a registration in the form of @simplewebauthn/browser, without
// attestation.
func (k *softKey) create(o options) object {
	user, err := urlText.DecodeString(o.User.ID)
	must(k.t, err)
	k.user = user
	data := k.authData(k.flags | attested)
	data = append(data, make([]byte, 16)...) // no AAGUID
	data = binary.BigEndian.AppendUint16(data, uint16(len(k.id)))
	data = append(append(data, k.id...), k.cose()...)
	attestation := append([]byte("\xa3\x63fmt\x64none\x67attStmt\xa0\x68authData\x59"), byte(len(data)>>8), byte(len(data)))
	return k.response(object{
		"clientDataJSON":    urlText.EncodeToString(k.clientData("create", o.Challenge)),
		"attestationObject": urlText.EncodeToString(append(attestation, data...)),
		"transports":        []string{"internal", "hybrid", "Not A Transport"},
	})
}

// get returns a sign-in.
func (k *softKey) get(o options) object {
	data, client := k.authData(k.flags), k.clientData("get", o.Challenge)
	hash := sha256.Sum256(client)
	message := append(data[:len(data):len(data)], hash[:]...)
	opts := crypto.Hash(0)
	if _, ok := k.key.(*ecdsa.PrivateKey); ok {
		digest := sha256.Sum256(message)
		message, opts = digest[:], crypto.SHA256
	}
	signature, err := k.key.Sign(rand.Reader, message, opts)
	must(k.t, err)
	return k.response(object{
		"clientDataJSON":    urlText.EncodeToString(client),
		"authenticatorData": urlText.EncodeToString(data),
		"signature":         urlText.EncodeToString(signature),
		"userHandle":        urlText.EncodeToString(k.user),
	})
}

func (k *softKey) response(response object) object {
	return object{"response": object{
		"id": urlText.EncodeToString(k.id), "rawId": urlText.EncodeToString(k.id), "type": "public-key",
		"authenticatorAttachment": "platform", "response": response,
	}}
}

// cose is the public key as CBOR (RFC 9053).
func (k *softKey) cose() []byte {
	switch public := k.key.Public().(type) {
	case ed25519.PublicKey:
		return append([]byte{0xa4, 1, 1, 3, 0x27, 0x20, 6, 0x21, 0x58, 32}, public...)
	case *ecdsa.PublicKey:
		point, err := public.Bytes()
		must(k.t, err)
		out := append([]byte{0xa5, 1, 2, 3, 0x26, 0x20, 1, 0x21, 0x58, 32}, point[1:33]...)
		return append(append(out, 0x22, 0x58, 32), point[33:]...)
	}
	k.t.Fatal("no such key")
	return nil
}

// ownPage is a browser in a page of the kit's own origin, where the passkeys are.
func (b *browser) ownPage() *browser {
	return b.with("Origin", baseURL).with("Sec-Fetch-Site", "same-origin")
}

func (b *browser) registerOptions() options {
	b.a.t.Helper()
	return decoded[options](b.get("/passkey/generate-register-options").ok())
}

func (b *browser) signInOptions() options {
	b.a.t.Helper()
	return decoded[options](b.get("/passkey/generate-authenticate-options").ok())
}

// register gives the signed-in user a passkey and returns its id.
func (b *browser) register(k *softKey) string {
	b.a.t.Helper()
	return b.post("/passkey/verify-registration", k.create(b.registerOptions())).ok().field("id").(string)
}
