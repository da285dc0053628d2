package email

import (
	"crypto"
	"crypto/ed25519"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"

	"github.com/emersion/go-msgauth/dkim"
)

// DKIM configures one signature (RFC 6376, RFC 8463).
type DKIM struct {
	// Domain is the signing domain, which should be that of From.
	Domain   string
	Selector string
	// Key is an *rsa.PrivateKey of 2048 bits or more, or an ed25519.PrivateKey. Sign with both:
	// some receivers do not support Ed25519.
	Key crypto.Signer
}

// signedHeaders occur at most once, and are listed twice in a signature, so that another one cannot
// be added. RFC 8058 requires the List-Unsubscribe pair.
var signedHeaders = []string{
	"From", "To", "Subject", "Date", "Message-ID", "Reply-To", "In-Reply-To", "References",
	"MIME-Version", "Content-Type", "Content-Transfer-Encoding", "Auto-Submitted", "Feedback-ID",
	"List-Id", "List-Unsubscribe", "List-Unsubscribe-Post",
}

const minRSABits = 2048

func (d DKIM) validate() error {
	if d.Domain == "" || d.Selector == "" {
		return errors.New("has no domain or selector")
	}
	if d.Key == nil {
		return errors.New("has no key")
	}
	switch public := d.Key.Public().(type) {
	case ed25519.PublicKey:
	case *rsa.PublicKey:
		if public.N.BitLen() < minRSABits {
			return fmt.Errorf("has an RSA key of %d bits", public.N.BitLen())
		}
	default:
		return fmt.Errorf("has a key of type %T", public)
	}
	return nil
}

// Record returns the name and the text of the TXT record to publish.
func (d DKIM) Record() (name, text string) {
	name = d.Selector + "._domainkey." + d.Domain
	switch public := d.Key.Public().(type) {
	case ed25519.PublicKey:
		return name, "v=DKIM1; k=ed25519; p=" + base64.StdEncoding.EncodeToString(public)
	case *rsa.PublicKey:
		der, err := x509.MarshalPKIXPublicKey(public)
		if err != nil {
			panic(err) // every RSA key can be encoded
		}
		return name, "v=DKIM1; k=rsa; p=" + base64.StdEncoding.EncodeToString(der)
	default:
		return name, ""
	}
}

// sign prepends the signatures to a message.
func sign(signatures []DKIM, message []byte) ([]byte, error) {
	var head []byte
	for _, d := range signatures {
		signer, err := dkim.NewSigner(&dkim.SignOptions{
			Domain: d.Domain, Selector: d.Selector, Signer: d.Key,
			HeaderCanonicalization: dkim.CanonicalizationRelaxed,
			BodyCanonicalization:   dkim.CanonicalizationRelaxed,
			HeaderKeys:             slices.Concat(signedHeaders, signedHeaders),
		})
		if err != nil {
			return nil, err
		}
		_, err = signer.Write(message)
		if err := errors.Join(err, signer.Close()); err != nil {
			return nil, err
		}
		head = append(head, signer.Signature()...)
	}
	return append(head, message...), nil
}
