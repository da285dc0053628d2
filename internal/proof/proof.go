// Package proof reads what the proofs of webhooks have in common. Its errors are the causes of
// refusals, which are logged for operators and not sent: they name headers and times, and quote no
// secret, signature or token.
package proof

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"
)

// maxHeader bounds a header that is read, in bytes.
const maxHeader = 4 << 10

var (
	// ErrUnmatched reports signatures of which none verifies.
	ErrUnmatched = errors.New("no signature is by a key that is configured here")
	// ErrNoEvent reports a delivery whose proof verifies and which could not be recorded.
	ErrNoEvent = errors.New("the proof verifies, but there is no event that can be recorded")
)

// Header returns a header that has to be present once.
func Header(h http.Header, name string) (string, error) {
	values := h.Values(name)
	switch {
	case len(values) == 0 || values[0] == "":
		return "", fmt.Errorf("the header %s is missing", name)
	case len(values) > 1:
		return "", fmt.Errorf("the header %s is present %d times", name, len(values))
	case len(values[0]) > maxHeader:
		return "", fmt.Errorf("the header %s has more than %d bytes", name, maxHeader)
	}
	return values[0], nil
}

// Standard returns the three headers of Standard Webhooks, whose names begin with a prefix.
func Standard(h http.Header, prefix string) (id, stamp, signatures string, err error) {
	var read [3]string
	for i, name := range []string{"-Id", "-Timestamp", "-Signature"} {
		if read[i], err = Header(h, prefix+name); err != nil {
			return "", "", "", err
		}
	}
	return read[0], read[1], read[2], nil
}

// Fresh returns an error unless a timestamp, in Unix seconds, is at most tolerance before or after
// now.
func Fresh(stamp string, now time.Time, tolerance time.Duration) error {
	seconds, err := strconv.ParseInt(stamp, 10, 64)
	if err != nil || seconds < 0 || len(stamp) > 12 || strconv.FormatInt(seconds, 10) != stamp {
		return errors.New("the timestamp is missing or is no number of Unix seconds")
	}
	age := now.Unix() - seconds
	limit := int64(tolerance / time.Second)
	if age < -limit || age > limit {
		return fmt.Errorf("the timestamp %s is more than %s from the time here, %s", Time(time.Unix(seconds, 0)), tolerance, Time(now))
	}
	return nil
}

// Time formats a time for an error.
func Time(t time.Time) string { return t.UTC().Format(time.RFC3339) }
