package capability

import "time"

// Time is an instant that encodes to JSON in RFC 3339, UTC, with milliseconds.
type Time struct{ time.Time }

const timeLayout = "2006-01-02T15:04:05.000Z"

// Millis returns the instant ms milliseconds after 1970-01-01 UTC, as a column stores it.
func Millis(ms int64) Time { return Time{time.UnixMilli(ms).UTC()} }

// MarshalJSON writes the instant with exactly three digits of a second.
func (t Time) MarshalJSON() ([]byte, error) {
	b := make([]byte, 0, len(timeLayout)+2)
	b = append(b, '"')
	b = t.UTC().AppendFormat(b, timeLayout)
	return append(b, '"'), nil
}
