package outbound_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"testing"
	"time"

	"github.com/kitbackend/kit/internal/outbound"
)

func TestPublic(t *testing.T) {
	for text, want := range map[string]bool{
		"93.184.216.34": true, "2606:2800:220:1::1": true,
		"127.0.0.1": false, "10.1.2.3": false, "192.168.0.1": false, "169.254.169.254": false, "100.64.0.1": false,
		"0.0.0.0": false, "::1": false, "fe80::1": false, "fd00::1": false, "::ffff:10.0.0.1": false, "64:ff9b::a00:1": false, "64:ff9b:1::a00:1": false,
		"fec0::1": false, "::a00:1": false, "::ffff:0:10.0.0.1": false, "2001::a00:1": false, "2002:a00:1::1": false, "100::1": false, "5f00::1": false,
		"2001:db8::1": false, "3fff::1": false, "192.0.2.1": false, "192.88.99.1": false, "203.0.113.1": false, "2001:4860::8888": true,
	} {
		if got := outbound.Public(netip.MustParseAddr(text)); got != want {
			t.Errorf("%s: %v, want %v", text, got, want)
		}
	}
}

func TestClientConnectsToNoPrivateAddressAndFollowsNoRedirect(t *testing.T) {
	server := httptest.NewServer(http.RedirectHandler("http://127.0.0.1:1/", http.StatusFound))
	defer server.Close()
	get := func(private bool) (int, error) {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL, nil)
		if err != nil {
			t.Fatal(err)
		}
		response, err := outbound.NewClient(time.Second, private).Do(r)
		if err != nil {
			return 0, err
		}
		return response.StatusCode, response.Body.Close()
	}
	if _, err := get(false); !errors.Is(err, outbound.ErrNotPublic) {
		t.Errorf("got %v, want a refusal of the loopback address", err)
	}
	if status, err := get(true); err != nil || status != http.StatusFound {
		t.Errorf("got %d, %v, want the redirect itself", status, err)
	}
}
