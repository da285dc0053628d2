package email

import (
	"strings"
	"unicode/utf8"
)

// storable makes text from outside what a TEXT column takes.
func storable(text string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(text, ""), "\x00", "")
}

func storableText(text string) bool {
	return utf8.ValidString(text) && !strings.ContainsRune(text, 0)
}
