// Package optional converts between the "" and 0 by which rows store an absent value and the null
// of JSON.
package optional

import "github.com/kitbackend/kit/capability"

// Text returns a text, or nil for "".
func Text(text string) *string {
	if text == "" {
		return nil
	}
	return &text
}

// TextOf is the inverse of [Text]: it returns "" for nil.
func TextOf(text *string) string {
	if text == nil {
		return ""
	}
	return *text
}

// Time returns the instant of milliseconds since 1970, or nil for 0.
func Time[T ~int64](ms T) *capability.Time {
	if ms == 0 {
		return nil
	}
	t := capability.Millis(int64(ms))
	return &t
}
