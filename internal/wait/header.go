package wait

import (
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/kitbackend/kit/capability"
)

const header = "Retry-After"

// Seconds returns d as a value of Retry-After (RFC 9110, section 10.2.3): in whole seconds, rounded
// up, at least 1.
func Seconds(d time.Duration) int64 { return int64((max(d, 1)-1)/time.Second) + 1 }

// Tell sets Retry-After to d.
func Tell(h http.Header, d time.Duration) { h.Set(header, strconv.FormatInt(Seconds(d), 10)) }

// Of returns how long the details or the cause of a refusal say to wait, or 0.
func Of(refusal *capability.Error) time.Duration {
	if waiting, ok := refusal.Details.(capability.Waiting); ok && waiting.Wait() > 0 {
		return waiting.Wait()
	}
	if waiting := capability.Waiting(nil); errors.As(refusal, &waiting) {
		return waiting.Wait()
	}
	return 0
}

// Told returns the wait that Retry-After gives, in seconds or as a date, at most the given time,
// and 0 without the header.
func Told(h http.Header, now time.Time, most time.Duration) time.Duration {
	text := h.Get(header)
	if seconds, err := strconv.ParseUint(text, 10, 31); err == nil {
		return min(time.Duration(seconds)*time.Second, most)
	}
	if at, err := http.ParseTime(text); err == nil {
		return min(max(at.Sub(now), 0), most)
	}
	return 0
}
