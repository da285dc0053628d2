package oauth

import (
	"net/http"
	"net/http/httptest"
	"net/netip"
	"testing"

	"github.com/kitbackend/kit/internal/outbound"
)

// TestPrivateAddressesAreNotAsked: what a provider's configuration names may not
// be a door into the network the kit runs in.
func TestPrivateAddressesAreNotAsked(t *testing.T) {
	secret := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("a private address was asked") }))
	t.Cleanup(secret.Close)
	client := newFetcher([]string{"https://accounts.example"}, Network{})
	if response, err := client.Get(secret.URL); err == nil {
		_ = response.Body.Close()
		t.Error("the private address was dialed")
	}
	open := newFetcher([]string{secret.URL}, Network{})
	secret.Config.Handler = http.NotFoundHandler()
	response, err := open.Get(secret.URL)
	if err != nil {
		t.Fatal(err)
	}
	_ = response.Body.Close()

	for text, want := range map[string]bool{
		"8.8.8.8": true, "2606:4700::1111": true, "172.15.0.1": true,
		"127.0.0.1": false, "::1": false, "10.0.0.1": false, "172.16.0.1": false, "192.168.1.1": false, "169.254.169.254": false,
		"100.64.0.1": false, "0.0.0.0": false, "::": false, "255.255.255.255": false, "224.0.0.1": false, "198.18.0.1": false,
		"::ffff:127.0.0.1": false, "::ffff:10.0.0.1": false, "fe80::1": false, "fc00::1": false, "fd00:ec2::254": false,
		"ff02::1": false, "64:ff9b::7f00:1": false, "2002:7f00:1::": false, "192.0.0.192": false,
	} {
		if outbound.Public(netip.MustParseAddr(text)) != want {
			t.Errorf("%s: got %v", text, !want)
		}
	}
}
