package signature_test

import (
	"fmt"
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
	at := func(s int64) string { return time.Unix(now.Unix()+s, 0).UTC().Format(time.RFC3339) }
	good := form.Sign(key, body, now)
	stamp, sum, _ := strings.Cut(good, ",")
	many := strings.Repeat(",v1="+strings.Repeat("0", 64), 15)
	const (
		missing    = "the header X-Signature is missing"
		timestamp  = "the timestamp is missing or is no number"
		unreadable = "there is no signature that can be read"
		unmatched  = "no signature is by a key"
	)
	for header, reason := range map[string]string{
		good:                                    "",
		good + ",v0=" + strings.Repeat("0", 64): "", // of another version
		sum + "," + stamp:                       "",
		stamp + ", " + sum:                      "",
		good + many:                             "",
		good + many + many:                      "there are more than 16 signatures",
		stamp + "," + stamp + "," + sum:         "the header X-Signature has two timestamps",
		sum:                                     timestamp,
		stamp:                                   unreadable,
		"t=01772000000," + sum:                  timestamp, // not canonical
		"t=+1772000000," + sum:                  timestamp,
		"t=1772000000.0," + sum:                 timestamp,
		"t=-1," + sum:                           timestamp,
		"t=9223372036854775807," + sum:          timestamp,
		stamp + ",v1=" + strings.ToUpper(sum[3:]): "",
		stamp + "," + sum[:len(sum)-2]:            unreadable,
		stamp + "," + sum + "00":                  unreadable,
		stamp + ",v1=" + strings.Repeat("00", 32): unmatched,
		"t=1771999699," + sum:                     "the timestamp " + at(-301) + " is more than 5m0s from the time here, " + at(0),
		"t=1772000301," + sum:                     "the timestamp " + at(301) + " is more than 5m0s from the time here, " + at(0),
		stamp + ";" + sum:                         timestamp,
		good + strings.Repeat(",x=y", 2000):       "the header X-Signature has more than 4096 bytes",
		"":                                        missing,
	} {
		h := http.Header{"X-Signature": {header}}
		err := form.Verify(h, body, [][]byte{key}, now, 300*time.Second)
		if said := fmt.Sprint(err); (err == nil) != (reason == "") || !strings.Contains(said, reason) || strings.Contains(said, sum[3:]) {
			t.Errorf("%.100s: %v, expected %q", header, err, reason)
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
	const unmatched = "no signature is by a key"
	for name, c := range map[string]struct {
		h      http.Header
		reason string
	}{
		"good":                 {signed(func(http.Header) {}), ""},
		"another id":           {signed(func(h http.Header) { h.Set(signature.StandardID, "msg_2") }), unmatched},
		"an id with a dot":     {signed(func(h http.Header) { h.Set(signature.StandardID, "msg_1.1772000000") }), "the header Webhook-Id has a dot"},
		"no id":                {signed(func(h http.Header) { h.Del(signature.StandardID) }), "the header Webhook-Id is missing"},
		"two ids":              {signed(func(h http.Header) { h.Add(signature.StandardID, "msg_1") }), "the header Webhook-Id is present 2 times"},
		"no time":              {signed(func(h http.Header) { h.Del(signature.StandardTimestamp) }), "the header Webhook-Timestamp is missing"},
		"another time":         {signed(func(h http.Header) { h.Set(signature.StandardTimestamp, "1772000001") }), unmatched},
		"no signature":         {signed(func(h http.Header) { h.Del(signature.StandardSignature) }), "the header Webhook-Signature is missing"},
		"signature without v1": {signed(func(h http.Header) { h.Set(signature.StandardSignature, h.Get(signature.StandardSignature)[3:]) }), "there is no signature that can be read"},
		"an empty signature":   {signed(func(h http.Header) { h.Set(signature.StandardSignature, "v1,") }), "there is no signature that can be read"},
	} {
		if _, err := signature.Standard(c.h, body, [][]byte{nil, key}, now, 300*time.Second); (err == nil) != (c.reason == "") || !strings.Contains(fmt.Sprint(err), c.reason) {
			t.Errorf("%s: %v, expected %q", name, err, c.reason)
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
