package factor

import (
	"encoding/base32"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"
)

// RFC 4226, appendix D.
func TestHOTPVectors(t *testing.T) {
	secret := []byte("12345678901234567890")
	for counter, want := range []uint32{1284755224, 1094287082, 137359152, 1726969429, 1640338314, 868254676, 1918287922, 82162583, 673399871, 645520489} {
		if got := truncated(secret, uint64(counter)); got != want {
			t.Errorf("%d: %d, want %d", counter, got, want)
		}
	}
	for counter, want := range strings.Fields("755224 287082 359152 969429 338314 254676 287922 162583 399871 520489") {
		if got := totpCode(secret, int64(counter)); got != want {
			t.Errorf("%d: %s, want %s", counter, got, want)
		}
	}
}

// RFC 6238, appendix B: eight digits, SHA-1.
func TestTOTPVectors(t *testing.T) {
	secret := []byte("12345678901234567890")
	for second, want := range map[int64]string{
		59: "94287082", 1111111109: "07081804", 1111111111: "14050471", 1234567890: "89005924", 2000000000: "69279037", 20000000000: "65353130",
	} {
		if got := fmt.Sprintf("%08d", truncated(secret, uint64(second/30))%100_000_000); got != want {
			t.Errorf("%d: %s, want %s", second, got, want)
		}
		if step, ok := matchTOTP(secret, want[2:], time.Unix(second, 0), 0); !ok || step != second/30 {
			t.Errorf("%d: step %d, %v", second, step, ok)
		}
	}
}

func TestWindowAndSpentSteps(t *testing.T) {
	secret, now := newTOTPSecret(), time.Unix(3000, 0)
	const current = 100
	for offset, want := range map[int64]bool{-2: false, -1: true, 0: true, 1: true, 2: false} {
		if step, ok := matchTOTP(secret, totpCode(secret, current+offset), now, 0); ok != want || ok && step != current+offset {
			t.Errorf("%+d steps: %d, %v", offset, step, ok)
		}
	}
	for used, want := range map[int64]bool{current - 1: true, current: false, current + 1: false} {
		if _, ok := matchTOTP(secret, totpCode(secret, current), now, used); ok != want {
			t.Errorf("with step %d spent: %v", used, ok)
		}
	}
	code := totpCode(secret, current)
	for _, wrong := range []string{"", code[:5], code + "0", " " + code, "00000" + code} {
		if _, ok := matchTOTP(secret, wrong, now, 0); ok {
			t.Errorf("%q matches", wrong)
		}
	}
}

func TestURI(t *testing.T) {
	secret := newTOTPSecret()
	text := URI("My App: 1", "ada+x@example.org", secret)
	uri, err := url.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	decoded, err := base32.StdEncoding.WithPadding(base32.NoPadding).DecodeString(uri.Query().Get("secret"))
	if err != nil || string(decoded) != string(secret) {
		t.Errorf("secret: %v", err)
	}
	if !strings.HasPrefix(text, "otpauth://totp/My%20App%3A%201:ada%2Bx%40example.org?") || uri.Query().Get("issuer") != "My App: 1" {
		t.Error(text)
	}
}
