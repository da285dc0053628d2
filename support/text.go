package support

import (
	"strings"
	"unicode/utf8"
)

// clean reports whether text is valid UTF-8 without control characters, line separators and
// characters that reorder displayed text.
func clean(text string) bool { return utf8.ValidString(text) && !strings.ContainsFunc(text, unfit) }

func unfit(r rune) bool {
	switch {
	case r < ' ', r >= 0x7f && r <= 0x9f:
	case r == 0x2028, r == 0x2029, r >= 0x202a && r <= 0x202e, r >= 0x2066 && r <= 0x2069:
	default:
		return false
	}
	return true
}

// line converts untrusted text to one line of at most most bytes.
func line(text string, most int) string {
	text = strings.ToValidUTF8(text, "\ufffd")
	text = strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\r' || r == '\t':
			return ' '
		case unfit(r):
			return -1
		}
		return r
	}, text)
	return clip(strings.Join(strings.Fields(text), " "), most)
}

// storable converts untrusted text to what a TEXT column accepts, with line breaks normalized.
func storable(text string) string {
	text = strings.ToValidUTF8(text, "\ufffd")
	text = strings.ReplaceAll(strings.ReplaceAll(text, "\r\n", "\n"), "\r", "\n")
	return strings.Map(func(r rune) rune {
		if r == '\n' || r == '\t' {
			return r
		}
		if unfit(r) {
			return -1
		}
		return r
	}, text)
}

// clip truncates text to at most most bytes, at a character boundary.
func clip(text string, most int) string {
	if len(text) <= most {
		return text
	}
	for most > 0 && !utf8.RuneStart(text[most]) {
		most--
	}
	return text[:most]
}
