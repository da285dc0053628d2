// Package text says what a character does to the text around it. Any package may
// call it.
package text

import "unicode"

// Misleads reports whether a character does not stand for itself in a name: it
// controls, or has what follows shown in another order (Unicode UAX 9).
func Misleads(r rune) bool { return unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) }
