// Package sign makes the proofs of the five rails with keys of its own: chains
// of certificates shaped like Apple's, tokens shaped like Google's, and the HMAC
// signatures of the others. It is for tests and scripted stores; verifiers with the real roots
// refuse its proofs.
package sign

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/base64"
	"encoding/pem"
	"math/big"
	"time"

	"github.com/kitbackend/kit/payments/internal/jws"
)

// Apple signs as the App Store does: ES256 with a leaf, an intermediate and a
// root in the header, of which leaf and intermediate carry Apple's extensions.
type Apple struct {
	// Root is what a verifier has to trust.
	Root *x509.Certificate

	leaf *ecdsa.PrivateKey
	x5c  []string
}

// AppleOptions are ways in which a chain can differ from a good one.
type AppleOptions struct {
	// NoLeafOID and NoIntermediateOID leave out an extension.
	NoLeafOID, NoIntermediateOID bool
	// NotBefore and NotAfter are those of the leaf; zero means a year before and
	// two years after the time that the chain is made for.
	NotBefore, NotAfter time.Time
	// IntermediateNotCA makes the intermediate a certificate that may not sign.
	IntermediateNotCA bool
}

// NewApple makes a chain that is valid around now.
func NewApple(now time.Time) *Apple { return NewAppleWith(now, AppleOptions{}) }

// NewAppleWith makes a chain under a root of its own.
func NewAppleWith(now time.Time, o AppleOptions) *Apple {
	rootKey, root := authority(now)
	return chainUnder(rootKey, root, now, o)
}

// Variant makes a chain under a root that it shares with others.
type Variant func(AppleOptions) *Apple

// NewAppleVariants makes a root and returns what makes chains under it.
func NewAppleVariants(now time.Time) (*x509.Certificate, Variant) {
	key, root := authority(now)
	return root, func(o AppleOptions) *Apple { return chainUnder(key, root, now, o) }
}

func authority(now time.Time) (*ecdsa.PrivateKey, *x509.Certificate) {
	key := must(ecdsa.GenerateKey(elliptic.P384(), rand.Reader))
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "Test Root CA - G3"},
		NotBefore: now.AddDate(-10, 0, 0), NotAfter: now.AddDate(20, 0, 0),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	return key, create(template, template, &key.PublicKey, key)
}

func chainUnder(rootKey *ecdsa.PrivateKey, root *x509.Certificate, now time.Time, o AppleOptions) *Apple {
	middleKey := must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
	middle := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "Test Intermediate CA"},
		NotBefore: now.AddDate(-5, 0, 0), NotAfter: now.AddDate(10, 0, 0),
		IsCA: !o.IntermediateNotCA, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	if !o.NoIntermediateOID {
		middle.ExtraExtensions = []pkix.Extension{{Id: asn1.ObjectIdentifier{1, 2, 840, 113635, 100, 6, 2, 1}, Value: asn1.NullBytes}}
	}
	middleCertificate := create(middle, root, &middleKey.PublicKey, rootKey)
	leafKey := must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
	leaf := &x509.Certificate{
		SerialNumber: big.NewInt(3), Subject: pkix.Name{CommonName: "Test Receipt Signing"},
		NotBefore: now.AddDate(-1, 0, 0), NotAfter: now.AddDate(2, 0, 0),
		BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature,
	}
	if !o.NotBefore.IsZero() {
		leaf.NotBefore = o.NotBefore
	}
	if !o.NotAfter.IsZero() {
		leaf.NotAfter = o.NotAfter
	}
	if !o.NoLeafOID {
		leaf.ExtraExtensions = []pkix.Extension{{Id: asn1.ObjectIdentifier{1, 2, 840, 113635, 100, 6, 11, 1}, Value: asn1.NullBytes}}
	}
	leafCertificate := create(leaf, middleCertificate, &leafKey.PublicKey, middleKey)
	a := &Apple{Root: root, leaf: leafKey}
	for _, c := range []*x509.Certificate{leafCertificate, middleCertificate, root} {
		a.x5c = append(a.x5c, base64.StdEncoding.EncodeToString(c.Raw))
	}
	return a
}

func create(template, parent *x509.Certificate, public crypto.PublicKey, signer crypto.Signer) *x509.Certificate {
	return must(x509.ParseCertificate(must(x509.CreateCertificate(rand.Reader, template, parent, public, signer))))
}

// Certificates are the chain in the header, the leaf first, in base64.
func (a *Apple) Certificates() []string { return append([]string(nil), a.x5c...) }

// Sign makes a JWS over claims.
func (a *Apple) Sign(claims any) string { return a.SignWith(map[string]any{"x5c": a.x5c}, claims) }

// SignWith makes a JWS with other members in its header.
func (a *Apple) SignWith(header map[string]any, claims any) string {
	return must(jws.Sign(a.leaf, header, claims))
}

// ECKey makes a private key on P-256 in PEM, such as the key of an API.
func ECKey() string {
	return pemOf(must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader)))
}

func pemOf(key any) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: must(x509.MarshalPKCS8PrivateKey(key))}))
}

// must is for what fails on a broken machine only.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
