package passkey

import (
	"errors"
	"testing"

	"github.com/go-webauthn/webauthn/protocol"
)

// Passkeys are used in pages of origins that the site trusts, and of a host name.
func TestRelyingParty(t *testing.T) {
	site := Site{Host: "kit.example", Origin: "https://kit.example", Name: "Kit", Trusts: func(origin string) bool {
		return origin == "https://kit.example" || origin == "https://app.kit.example"
	}}
	for origin, trusted := range map[string]bool{
		"https://kit.example": true, "https://app.kit.example": true, "https://kit.example.evil.example": false, "null": false, "": false,
	} {
		party, err := New(nil, site).relyingParty(origin)
		if trusted != (err == nil) {
			t.Errorf("a page of %q: %v", origin, err)
		}
		if trusted && (party.Config.RPID != "kit.example" || len(party.Config.RPOrigins) != 1 || party.Config.RPOrigins[0] != origin) {
			t.Errorf("a page of %q is asked as %+v", origin, party.Config)
		}
	}
	site.Host = "http://127.0.0.1"
	if _, err := New(nil, site).relyingParty(site.Origin); !errors.Is(err, ErrNotAvailable) {
		t.Errorf("at no host name: got %v, want ErrNotAvailable", err)
	}
}

// What an authenticator says of its transports is bounded, and read back as it was.
func TestTransports(t *testing.T) {
	said := []protocol.AuthenticatorTransport{"internal", "Not A Transport", "hybrid", "a,b", ""}
	if got := transportText(said); got != "internal,hybrid" {
		t.Errorf("kept %q", got)
	}
	if got := transportList("internal,hybrid"); len(got) != 2 || got[0] != protocol.Internal || got[1] != protocol.Hybrid {
		t.Errorf("read %v", got)
	}
	if got := transportList(""); len(got) != 0 {
		t.Errorf("read %v of none", got)
	}
	many := make([]protocol.AuthenticatorTransport, 100)
	for i := range many {
		many[i] = "usb"
	}
	if got := len(transportList(transportText(many))); got != maxTransports {
		t.Errorf("kept %d, want %d", got, maxTransports)
	}
}
