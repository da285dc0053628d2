package email

import (
	"strings"
	"unicode/utf8"
)

func storableText(text string) bool {
	return utf8.ValidString(text) && !strings.ContainsRune(text, 0)
}
