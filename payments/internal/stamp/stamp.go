// Package stamp reads times of rails in RFC 3339.
package stamp

import (
	"time"

	"github.com/kitbackend/kit/payments"
)

// Time is a time in RFC 3339; null, "" and invalid text are the zero time.
type Time struct{ time.Time }

// UnmarshalJSON never fails: a time that cannot be read becomes the zero time.
func (t *Time) UnmarshalJSON(raw []byte) error {
	t.Time = time.Time{}
	if len(raw) > 2 && raw[0] == '"' {
		if parsed, err := time.Parse(time.RFC3339Nano, string(raw[1:len(raw)-1])); err == nil && parsed.Unix() > 0 {
			t.Time = parsed
		}
	}
	return nil
}

// Instant returns the time in milliseconds.
func (t Time) Instant() payments.Instant { return payments.At(t.Time) }

// Version returns the first of the times that is not zero, in microseconds.
func Version(times ...Time) int64 {
	for _, t := range times {
		if !t.IsZero() {
			return t.UnixMicro()
		}
	}
	return 1
}
