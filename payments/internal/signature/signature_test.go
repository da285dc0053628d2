package signature_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/kitbackend/kit/payments/internal/signature"
)

var (
	form = signature.Header{Name: "X-Signature", Separator: ",", Time: "t", Signature: "v1", Joint: "."}
	now  = time.Unix(1_772_000_000, 0)
	body = []byte(`{"a":1}`)
	key  = []byte("secret")
)

func TestHeaderIsStrict(t *testing.T) {
	good := form.Sign(key, body, now)
	stamp, sum, _ := strings.Cut(good, ",")
	many := strings.Repeat(",v1="+strings.Repeat("0", 64), 15)
	for header, ok := range map[string]bool{
		good:                                    true,
		good + ",v0=" + strings.Repeat("0", 64): true, // of another version
		sum + "," + stamp:                       true,
		stamp + ", " + sum:                      true,
		good + many:                             true,
		good + many + many:                      false,
		stamp + "," + stamp + "," + sum:         false, // two times
		sum:                                     false,
		stamp:                                   false,
		"t=01772000000," + sum:                  false, // not canonical
		"t=+1772000000," + sum:                  false,
		"t=1772000000.0," + sum:                 false,
		"t=-1," + sum:                           false,
		"t=9223372036854775807," + sum:          false,
		stamp + ",v1=" + strings.ToUpper(sum[3:]): true,
		stamp + "," + sum[:len(sum)-2]:            false,
		stamp + "," + sum + "00":                  false,
		stamp + ",v1=" + strings.Repeat("00", 32): false,
		stamp + ";" + sum:                         false,
		good + strings.Repeat(",x=y", 2000):       false, // too long
		"":                                        false,
	} {
		h := http.Header{"X-Signature": {header}}
		if err := form.Verify(h, body, [][]byte{key}, now, 300*time.Second); (err == nil) != ok {
			t.Errorf("%.100s: %v, accepted should be %v", header, err, ok)
		}
	}
}

func TestStandardIsStrict(t *testing.T) {
	signed := func(change func(http.Header)) http.Header {
		h := http.Header{}
		signature.SignStandard(h, key, "msg_1", body, now)
		change(h)
		return h
	}
	for name, c := range map[string]struct {
		h  http.Header
		ok bool
	}{
		"good":                 {signed(func(http.Header) {}), true},
		"another id":           {signed(func(h http.Header) { h.Set(signature.StandardID, "msg_2") }), false},
		"an id with a dot":     {signed(func(h http.Header) { h.Set(signature.StandardID, "msg_1.1772000000") }), false},
		"no id":                {signed(func(h http.Header) { h.Del(signature.StandardID) }), false},
		"two ids":              {signed(func(h http.Header) { h.Add(signature.StandardID, "msg_1") }), false},
		"no time":              {signed(func(h http.Header) { h.Del(signature.StandardTimestamp) }), false},
		"another time":         {signed(func(h http.Header) { h.Set(signature.StandardTimestamp, "1772000001") }), false},
		"no signature":         {signed(func(h http.Header) { h.Del(signature.StandardSignature) }), false},
		"signature without v1": {signed(func(h http.Header) { h.Set(signature.StandardSignature, h.Get(signature.StandardSignature)[3:]) }), false},
		"an empty signature":   {signed(func(h http.Header) { h.Set(signature.StandardSignature, "v1,") }), false},
	} {
		if _, err := signature.Standard(c.h, body, [][]byte{nil, key}, now, 300*time.Second); (err == nil) != c.ok {
			t.Errorf("%s: %v, accepted should be %v", name, err, c.ok)
		}
	}
}

func FuzzHeader(f *testing.F) {
	f.Add(form.Sign(key, body, now), body)
	f.Add("t=1,v1=00", []byte("x"))
	f.Fuzz(func(t *testing.T, header string, text []byte) {
		h := http.Header{"X-Signature": {header}}
		if form.Verify(h, text, [][]byte{nil, {}}, now, time.Hour) == nil {
			t.Fatal("no key proves something")
		}
		if form.Verify(h, text, [][]byte{key}, now, time.Hour) == nil && string(text) != string(body) {
			t.Fatalf("a proof of %q over %q", header, text)
		}
	})
}
