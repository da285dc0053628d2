package vector

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

const (
	maxWord       = 64 // bytes; longer words are cut
	maxQueryWords = 32
)

// wordsOf splits a text into lower case words of letters and digits. A
// character of a script that does not part words is one by itself.
func wordsOf(text string) []string {
	var words []string
	start := -1
	lower := strings.ToLower(text)
	end := func(at int) {
		if start >= 0 {
			words = append(words, cutWord(lower[start:at]))
			start = -1
		}
	}
	for at, r := range lower {
		switch {
		case unicode.In(r, unicode.Han, unicode.Hiragana, unicode.Katakana):
			end(at)
			words = append(words, string(r))
		case unicode.IsLetter(r) || unicode.IsDigit(r) || unicode.Is(unicode.Mn, r) && start >= 0:
			if start < 0 {
				start = at
			}
		default:
			end(at)
		}
	}
	end(len(lower))
	return words
}

func cutWord(word string) string {
	if len(word) <= maxWord {
		return word
	}
	at := maxWord
	for !utf8.RuneStart(word[at]) {
		at--
	}
	return word[:at]
}

// textQuery is what is looked up in the full-text index: different words, of
// which the last is a beginning, unless the text goes on after it.
type textQuery struct {
	words []string
	open  bool
}

func parseText(text string) textQuery {
	var q textQuery
	seen := make(map[string]bool)
	for _, word := range wordsOf(text) {
		if !seen[word] && len(q.words) < maxQueryWords {
			seen[word] = true
			q.words = append(q.words, word)
		}
	}
	last, _ := utf8.DecodeLastRuneInString(text)
	q.open = unicode.IsLetter(last) || unicode.IsDigit(last)
	return q
}

// fts5 writes the query for SQLite. Words have nothing but letters, digits and
// marks, so the quotes cannot be left.
func (q textQuery) fts5(partition string) string {
	return `scope : "` + partition + `" AND words : (` + q.join(`"`, `" OR "`, `"`, ` *`) + `)`
}

// tsquery writes the query for PostgreSQL.
func (q textQuery) tsquery() string { return q.join(`'`, `' | '`, `'`, `:*`) }

func (q textQuery) join(before, between, after, prefix string) string {
	text := before + strings.Join(q.words, between) + after
	if q.open {
		text += prefix
	}
	return text
}
