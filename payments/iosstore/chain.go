package iosstore

import (
	"crypto/ecdsa"
	"crypto/sha256"
	"crypto/x509"
	_ "embed"
	"encoding/asn1"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/kitbackend/kit/internal/proof"
	"github.com/kitbackend/kit/payments/internal/jws"
)

//go:embed AppleRootCA-G3.cer
var rootDER []byte

// RootSHA256 is what the pinned root, Apple Root CA - G3, hashes to.
const RootSHA256 = "63343abfb89a6a03ebb57e9b3f5fa7be7c4f5c756f3017b3a8c488c3653e9179"

// AppleRoot is Apple Root CA - G3, the root that the App Store's signatures
// chain to. It panics when the embedded certificate is not the pinned one.
var AppleRoot = sync.OnceValue(func() *x509.Certificate {
	if sum := sha256.Sum256(rootDER); hex.EncodeToString(sum[:]) != RootSHA256 {
		panic("iosstore: the embedded root is not Apple Root CA - G3")
	}
	root, err := x509.ParseCertificate(rootDER)
	if err != nil {
		panic(err)
	}
	return root
})

// The extensions that make a chain one for App Store receipts. Without them any
// certificate that Apple issued to a developer would pass.
var (
	leafOID         = asn1.ObjectIdentifier{1, 2, 840, 113635, 100, 6, 11, 1}
	intermediateOID = asn1.ObjectIdentifier{1, 2, 840, 113635, 100, 6, 2, 1}
)

const (
	// certificates in the header of a signature: leaf, intermediate, root.
	certificates = 3
	// maxCertificate bounds one of them, in base64.
	maxCertificate = 6 << 10
	// clockSkew is how far the clocks of Apple and of the host may differ.
	clockSkew = time.Minute
	// maxChains bounds how many verified chains are remembered.
	maxChains = 64
)

// errChain is for certificates that do not lead from the root to the signature.
var errChain = errors.New("iosstore: the certificates do not chain to the pinned root")

// verifier checks signatures of the App Store against pinned roots. The few
// chains in use at a time are remembered once they have verified.
type verifier struct {
	roots []*x509.Certificate

	mu    sync.Mutex
	known map[[sha256.Size]byte]chain
}

// chain is a leaf that verified, and when all of its certificates are valid.
type chain struct {
	key                 *ecdsa.PublicKey
	notBefore, notAfter time.Time
}

func newVerifier(roots []*x509.Certificate) *verifier {
	return &verifier{roots: roots, known: make(map[[sha256.Size]byte]chain)}
}

// payload verifies a signature and returns what it signs. The certificates must
// be valid now.
func (v *verifier) payload(raw string, now time.Time) ([]byte, error) {
	token, err := jws.Parse(raw, jws.ES256)
	if err != nil {
		return nil, err
	}
	c, err := v.chain(token.Header.Certificates, now)
	if err != nil {
		return nil, err
	}
	if err := token.VerifyES256(c.key); err != nil {
		return nil, err
	}
	return token.Payload, nil
}

func (v *verifier) chain(x5c []string, now time.Time) (chain, error) {
	if len(x5c) != certificates {
		return chain{}, fmt.Errorf("%w: there are %d of them, not %d", errChain, len(x5c), certificates)
	}
	hash := sha256.New()
	for _, text := range x5c {
		if len(text) > maxCertificate {
			return chain{}, fmt.Errorf("%w: one is too large", errChain)
		}
		hash.Write([]byte(text))
		hash.Write([]byte{0})
	}
	var name [sha256.Size]byte
	hash.Sum(name[:0])
	v.mu.Lock()
	c, ok := v.known[name]
	v.mu.Unlock()
	if !ok {
		var err error
		if c, err = v.verify(x5c); err != nil {
			return chain{}, err
		}
		v.remember(name, c)
	}
	if now.Add(clockSkew).Before(c.notBefore) || now.Add(-clockSkew).After(c.notAfter) {
		return chain{}, fmt.Errorf("%w: they are valid from %s to %s, and the time here is %s", errChain,
			proof.Time(c.notBefore), proof.Time(c.notAfter), proof.Time(now))
	}
	return c, nil
}

func (v *verifier) remember(name [sha256.Size]byte, c chain) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if len(v.known) >= maxChains {
		clear(v.known)
	}
	v.known[name] = c
}

// verify checks the certificates but for their dates. The third one is not
// looked at: the root is the pinned one, whatever the header brings.
func (v *verifier) verify(x5c []string) (chain, error) {
	leaf, err := parse(x5c[0])
	if err != nil {
		return chain{}, err
	}
	intermediate, err := parse(x5c[1])
	if err != nil {
		return chain{}, err
	}
	key, ok := leaf.PublicKey.(*ecdsa.PublicKey)
	if !ok || !has(leaf, leafOID) || !has(intermediate, intermediateOID) || !intermediate.IsCA || leaf.IsCA {
		return chain{}, fmt.Errorf("%w: they are not those of receipts", errChain)
	}
	if leaf.CheckSignatureFrom(intermediate) != nil || string(leaf.RawIssuer) != string(intermediate.RawSubject) {
		return chain{}, fmt.Errorf("%w: the second does not sign the first", errChain)
	}
	for _, root := range v.roots {
		if string(intermediate.RawIssuer) != string(root.RawSubject) || intermediate.CheckSignatureFrom(root) != nil {
			continue
		}
		c := chain{key: key, notBefore: leaf.NotBefore, notAfter: leaf.NotAfter}
		for _, above := range []*x509.Certificate{intermediate, root} {
			if above.NotBefore.After(c.notBefore) {
				c.notBefore = above.NotBefore
			}
			if above.NotAfter.Before(c.notAfter) {
				c.notAfter = above.NotAfter
			}
		}
		if c.notAfter.Before(c.notBefore) {
			return chain{}, fmt.Errorf("%w: they are never valid together", errChain)
		}
		return c, nil
	}
	return chain{}, fmt.Errorf("%w: no pinned root signs the second", errChain)
}

func parse(text string) (*x509.Certificate, error) {
	der, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		return nil, fmt.Errorf("%w: one is not in base64", errChain)
	}
	certificate, err := x509.ParseCertificate(der)
	if err != nil || len(certificate.UnhandledCriticalExtensions) > 0 {
		return nil, fmt.Errorf("%w: one cannot be read", errChain)
	}
	return certificate, nil
}

func has(c *x509.Certificate, id asn1.ObjectIdentifier) bool {
	for _, extension := range c.Extensions {
		if extension.Id.Equal(id) {
			return true
		}
	}
	return false
}
