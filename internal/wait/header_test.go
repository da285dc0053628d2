package wait

import (
	"math"
	"net/http"
	"testing"
	"time"
)

func TestWaitIsToldInWholeSeconds(t *testing.T) {
	for d, want := range map[time.Duration]string{
		-time.Hour: "1", 0: "1", 1: "1", time.Second: "1", time.Second + 1: "2", time.Hour: "3600", math.MaxInt64: "9223372037",
	} {
		h := http.Header{}
		if Tell(h, d); h.Get("Retry-After") != want {
			t.Errorf("%v is told as %q, expected %q", d, h.Get("Retry-After"), want)
		}
	}
}

func TestToldWaitIsBounded(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for text, want := range map[string]time.Duration{
		"": 0, "soon": 0, "-3": 0, "0": 0, "3": 3 * time.Second, "7200": time.Hour, "2147483647": time.Hour, "99999999999999999999": 0,
		"Fri, 02 Jan 2026 03:05:05 GMT": time.Minute, "Fri, 02 Jan 2026 03:03:05 GMT": 0, "Fri, 02 Jan 2099 03:05:05 GMT": time.Hour,
	} {
		if got := Told(http.Header{"Retry-After": {text}}, now, time.Hour); got != want {
			t.Errorf("%q says %v, expected %v", text, got, want)
		}
	}
}
