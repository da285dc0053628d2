// Package text checks characters that change how text is displayed, and text that cannot be stored.
package text

import (
	"strings"
	"unicode"
)

// Misleads reports whether a character can make a name look like another: a control character, or
// one that changes the display order of the text after it (Unicode UAX 9).
func Misleads(r rune) bool { return unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) }

// Storable returns the text without what a database cannot store: NUL and invalid UTF-8.
func Storable(text string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(text, ""), "\x00", "")
}
