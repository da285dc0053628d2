package vector

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

const (
	maxWord       = 64 // bytes; longer words are truncated
	maxQueryWords = 32
)

// wordsOf splits a text into lower case words of letters and digits. Each character of a script
// that does not separate words is a word.
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

// textQuery is a full-text query: distinct words, of which the last is a prefix, unless the text
// continues after it.
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

// fts5 returns the query for SQLite. Words only contain letters, digits and marks, so they need no
// escaping inside the quotes.
func (q textQuery) fts5(partition string) string {
	return `scope : "` + partition + `" AND words : (` + q.join(`"`, `" OR "`, `"`, ` *`) + `)`
}

// tsquery returns the query for PostgreSQL.
func (q textQuery) tsquery() string { return q.join(`'`, `' | '`, `'`, `:*`) }

func (q textQuery) join(before, between, after, prefix string) string {
	text := before + strings.Join(q.words, between) + after
	if q.open {
		text += prefix
	}
	return text
}
