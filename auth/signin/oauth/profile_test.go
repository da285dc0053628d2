package oauth

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/kitbackend/kit/secrets"
)

func TestProfileIsBounded(t *testing.T) {
	c := NewClient(OpenID("acme", "https://accounts.example", "kit", secrets.NewValue("s")), Network{}, time.Now)
	for name, facts := range map[string]struct{ wrote, image, want, wantImage string }{
		"plain":        {" Ada\nLovelace ", "https://pictures.example/a.png", "AdaLovelace", "https://pictures.example/a.png"},
		"turned round": {"Ada\u202e ecalevoL", "http://pictures.example/a.png", "Ada ecalevoL", ""},
		"long":         {strings.Repeat("é", 200), "https://pictures.example/" + strings.Repeat("x", 2048), strings.Repeat("é", 128), ""},
		"cut":          {"x" + strings.Repeat("é", 200), "https://pictures.example/\x00", "x" + strings.Repeat("é", 127), ""},
	} {
		p, err := c.profile(claims{"sub": "1", "name": facts.wrote, "picture": facts.image})
		if err != nil || p.Name != facts.want || p.Image != facts.wantImage {
			t.Errorf("%s: got %q, %q, %v", name, p.Name, p.Image, err)
		}
	}
	for name, subject := range map[string]any{"none": nil, "a list": []any{"1"}, "too long": strings.Repeat("x", 256)} {
		if _, err := c.profile(claims{"sub": subject}); !errors.Is(err, ErrRefused) {
			t.Errorf("a subject that is %s: got %v, want ErrRefused", name, err)
		}
	}
}

func TestEmailTrust(t *testing.T) {
	for trust, want := range map[EmailTrust][2]bool{ // of an address said to be verified, and of one not
		EmailAsClaimed: {true, false}, EmailNeverVerified: {false, false}, EmailAlwaysVerified: {true, true},
	} {
		provider := OpenID("acme", "https://accounts.example", "kit", secrets.NewValue("s"))
		provider.EmailTrust = trust
		c := NewClient(provider, Network{}, time.Now)
		for i, said := range []bool{true, false} {
			p, err := c.profile(claims{"sub": "1", "email": "Ada@Example.com", "email_verified": said})
			if err != nil || p.EmailVerified != want[i] || p.Email != "ada@example.com" {
				t.Errorf("trust %d, said %v: got %v of %q, %v", trust, said, p.EmailVerified, p.Email, err)
			}
			if p, _ := c.profile(claims{"sub": "1", "email": "no address", "email_verified": true}); p.EmailVerified || p.Email != "" {
				t.Errorf("trust %d: what is no address is verified", trust)
			}
		}
	}
}

func TestIssuerOf(t *testing.T) {
	tenant := NewClient(Microsoft("common", "kit", secrets.NewValue("s")), Network{}, time.Now)
	if got := tenant.IssuerOf(Profile{Claims: map[string]any{"tid": "t"}}); got != "https://login.microsoftonline.com/t/v2.0" {
		t.Errorf("a tenant's is %q", got)
	}
	plain := NewClient(GitHub("kit", secrets.NewValue("s")), Network{}, time.Now)
	if got := plain.IssuerOf(Profile{}); got != "oauth:github" {
		t.Errorf("that of OAuth alone is %q", got)
	}
}

// TestCheckIssuer: a response is taken from the provider that was asked (RFC 9207).
func TestCheckIssuer(t *testing.T) {
	c := NewClient(Google("kit", secrets.NewValue("s")), Network{}, time.Now)
	for given, want := range map[string]error{"": nil, "https://accounts.google.com": nil, "https://evil.example": ErrIssuerMismatch} {
		if err := c.CheckIssuer(t.Context(), given); !errors.Is(err, want) {
			t.Errorf("%q: got %v, want %v", given, err, want)
		}
	}
}
