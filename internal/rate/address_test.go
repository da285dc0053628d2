package rate_test

import (
	"testing"

	"github.com/kitbackend/kit/internal/rate"
)

func TestAddressKey(t *testing.T) {
	for ip, want := range map[string]string{
		"192.0.2.1": "192.0.2.1", "::ffff:192.0.2.1": "192.0.2.1",
		"2001:db8:1:2:3:4:5:6": "2001:db8:1:2::/64", "2001:db8:1:2::1": "2001:db8:1:2::/64", "2001:db8:1:3::1": "2001:db8:1:3::/64",
		"fe80::1%eth0": "fe80::/64", "": "", "@": "@",
	} {
		if got := rate.AddressKey(ip); got != want {
			t.Errorf("%s: %s, want %s", ip, got, want)
		}
	}
}
