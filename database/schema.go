package database

import (
	"strings"
	"unicode/utf8"
)

// adapt returns a migration in a dialect. It touches the types of columns in CREATE TABLE and ALTER
// TABLE ADD, the lists of checks and the end of CREATE TABLE; all other text stays as it is.
func adapt(dialect Dialect, text string) string {
	if dialect == PostgreSQL {
		text = Expand(text)
	}
	tokens := tokenize(text)
	for rest := tokens; len(rest) > 0; {
		end := statementEnd(rest)
		adaptStatement(dialect, significant(rest[:end]))
		rest = rest[end:]
	}
	var b strings.Builder
	for _, t := range tokens {
		b.WriteString(t.text)
	}
	return b.String()
}

// token is a piece of SQL. Adapting changes text, never word.
type token struct {
	text string
	word string // upper case, for an unquoted word; the character, for punctuation; else empty
	skip bool   // space or comment
}

func tokenize(text string) []*token {
	var tokens []*token
	for len(text) > 0 {
		n, t := nextToken(text)
		t.text, text = text[:n], text[n:]
		tokens = append(tokens, t)
	}
	return tokens
}

// nextToken returns the length of the first token of a text that is not empty.
func nextToken(text string) (n int, t *token) {
	t = &token{}
	switch c := text[0]; {
	case isSpace(c):
		n, t.skip = runOf(text, isSpace), true
	case strings.HasPrefix(text, "--"):
		n, t.skip = through(text, 2, "\n"), true
	case strings.HasPrefix(text, "/*"):
		n, t.skip = through(text, 2, "*/"), true
	case c == '\'' || c == '"':
		n = quoted(text)
	case c == '$':
		n = dollarQuoted(text)
	case isLetter(c):
		n = runOf(text, isLetterOrDigit)
	default:
		_, n = utf8.DecodeRuneInString(text)
	}
	if !t.skip && (isLetter(text[0]) || n == 1) {
		t.word = strings.ToUpper(text[:n])
	}
	return n, t
}

func isSpace(c byte) bool { return c == ' ' || '\t' <= c && c <= '\r' }

func isLetter(c byte) bool { return c == '_' || 'a' <= c|0x20 && c|0x20 <= 'z' }

func isLetterOrDigit(c byte) bool { return isLetter(c) || '0' <= c && c <= '9' }

// runOf returns the length of the longest prefix of text whose bytes are all in the set.
func runOf(text string, in func(byte) bool) int {
	n := 0
	for n < len(text) && in(text[n]) {
		n++
	}
	return n
}

// through returns the length of text up to and including the first end mark at or after from, or of
// all of text if there is none.
func through(text string, from int, end string) int {
	if n := strings.Index(text[from:], end); n >= 0 {
		return from + n + len(end)
	}
	return len(text)
}

// quoted returns the length of a string or quoted name, in which two quotes stand for one.
func quoted(text string) int {
	n := through(text, 1, text[:1])
	for n < len(text) && text[n] == text[0] {
		n = through(text, n+1, text[:1])
	}
	return n
}

// dollarQuoted returns the length of a string of PostgreSQL, $tag$ … $tag$, and 1 for any other dollar.
func dollarQuoted(text string) int {
	tag := 1 + runOf(text[1:], isLetterOrDigit) + 1
	if tag > len(text) || text[tag-1] != '$' || tag > 2 && !isLetter(text[1]) {
		return 1
	}
	return through(text, tag, text[:tag])
}

// statementEnd returns the number of tokens of the first statement, its semicolon included. The body of a SQLite
// trigger has semicolons of its own, between BEGIN and END.
func statementEnd(tokens []*token) int {
	var head []string
	trigger, depth := false, 0
	for i, t := range tokens {
		if t.skip {
			continue
		}
		if len(head) < 3 {
			head = append(head, t.word)
			trigger = trigger || head[0] == "CREATE" && t.word == "TRIGGER"
		}
		switch {
		case trigger && (t.word == "BEGIN" || depth > 0 && t.word == "CASE"):
			depth++
		case depth > 0 && t.word == "END":
			depth--
		case depth == 0 && t.word == ";":
			return i + 1
		}
	}
	return len(tokens)
}

func significant(tokens []*token) []*token {
	var list []*token
	for _, t := range tokens {
		if !t.skip && t.word != ";" {
			list = append(list, t)
		}
	}
	return list
}

// follows reports whether tokens begin with words, of which one ending in "?" may be missing, and returns the rest.
func follows(tokens []*token, words ...string) ([]*token, bool) {
	for _, word := range words {
		word, optional := strings.CutSuffix(word, "?")
		switch {
		case len(tokens) > 0 && tokens[0].word == word:
			tokens = tokens[1:]
		case !optional:
			return nil, false
		}
	}
	return tokens, true
}

// afterName returns what follows a name, which may have a schema.
func afterName(tokens []*token) []*token {
	if len(tokens) > 2 && tokens[1].word == "." {
		return tokens[3:]
	}
	return tokens[min(1, len(tokens)):]
}

func adaptStatement(dialect Dialect, tokens []*token) {
	if rest, ok := follows(tokens, "ALTER", "TABLE", "IF?", "EXISTS?"); ok {
		if column, ok := follows(afterName(rest), "ADD", "COLUMN?", "IF?", "NOT?", "EXISTS?"); ok {
			adaptColumn(dialect, column)
		}
		return
	}
	rest, ok := follows(tokens, "CREATE", "TEMP?", "TEMPORARY?", "TABLE", "IF?", "NOT?", "EXISTS?")
	if !ok {
		return
	}
	rest, ok = follows(afterName(rest), "(")
	if !ok {
		return // CREATE TABLE … AS SELECT
	}
	depth, column := 1, 0
	for i, t := range rest {
		switch t.word {
		case "(":
			depth++
		case ")":
			depth--
		}
		if depth == 1 && t.word == "," || depth == 0 {
			adaptColumn(dialect, rest[column:i])
			column = i + 1
		}
		if depth == 0 {
			if dialect == SQLite {
				spellLists(rest[:i])
				makeStrict(rest[i:])
			}
			return
		}
	}
}

// constraints are the words a table constraint begins with, where a column would begin with its name.
var constraints = map[string]bool{"CONSTRAINT": true, "PRIMARY": true, "UNIQUE": true, "CHECK": true, "FOREIGN": true,
	"EXCLUDE": true, "LIKE": true}

var sqliteTypes = map[string]string{"BIGINT": "INTEGER", "SMALLINT": "INTEGER", "BOOLEAN": "INTEGER", "BYTEA": "BLOB"}

func adaptColumn(dialect Dialect, tokens []*token) {
	if len(tokens) < 2 || constraints[tokens[0].word] {
		return
	}
	kind, rest := tokens[1], tokens[2:]
	switch {
	case dialect == PostgreSQL:
		_, collated := follows(rest, "COLLATE")
		_, array := follows(rest, "[")
		if kind.word == "TEXT" && !collated && !array {
			kind.text += ` COLLATE "C"`
		}
	case sqliteTypes[kind.word] != "":
		kind.text = sqliteTypes[kind.word]
	case kind.word == "DOUBLE":
		if _, ok := follows(rest, "PRECISION"); ok {
			kind.text, rest[0].text = "REAL", ""
		}
	}
}

// spellLists writes CHECK (a IN ('x', 'y', 'z')) with OR. Of a list of three or more SQLite makes a table, anew for every
// row that is written.
func spellLists(tokens []*token) {
	for i := range tokens {
		check, ok := follows(tokens[i:], "CHECK", "(")
		if !ok || len(check) < 3 {
			continue
		}
		column := check[0].text
		list, ok := follows(check[1:], "IN", "(")
		if end := listEnd(list); ok && end >= 5 {
			check[1].text, check[2].text, list[end].text = "", "", ""
			for j, t := range list[:end] {
				if t.word == "," {
					t.text = " OR"
				} else {
					list[j].text = column + " = " + t.text
				}
			}
			check[0].text = ""
		}
	}
}

// listEnd returns where a list of strings is closed, or 0.
func listEnd(tokens []*token) int {
	for i, t := range tokens {
		switch {
		case t.word == ")" && i%2 == 1:
			return i
		case i%2 == 0 && !strings.HasPrefix(t.text, "'"), i%2 == 1 && t.word != ",":
			return 0
		}
	}
	return 0
}

// makeStrict adds STRICT to the options of a table, after its closing parenthesis.
func makeStrict(tokens []*token) {
	for _, t := range tokens {
		if t.word == "STRICT" {
			return
		}
	}
	last := tokens[len(tokens)-1]
	if len(tokens) > 1 {
		last.text += ","
	}
	last.text += " STRICT"
}
