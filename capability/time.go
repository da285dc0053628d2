package capability

import "time"

// Time is an instant as the wire shows it: RFC 3339, UTC, milliseconds.
type Time struct{ time.Time }

const timeLayout = "2006-01-02T15:04:05.000Z"

// Millis is the instant a stored column holds: milliseconds since 1970, UTC.
func Millis(ms int64) Time { return Time{time.UnixMilli(ms).UTC()} }

// MarshalJSON writes the instant with exactly three digits of a second.
func (t Time) MarshalJSON() ([]byte, error) {
	b := make([]byte, 0, len(timeLayout)+2)
	b = append(b, '"')
	b = t.UTC().AppendFormat(b, timeLayout)
	return append(b, '"'), nil
}
