package database

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// Conditions collects the conditions of a list, so that its statement has only those that apply and
// can seek in an index. The zero value has none.
type Conditions struct {
	texts []string
	args  []any
}

// Add adds a condition that has $%d for the argument.
func (c *Conditions) Add(text string, arg any) {
	c.args = append(c.args, arg)
	c.texts = append(c.texts, fmt.Sprintf(text, len(c.args)))
}

// Equal adds the condition that a column equals a value, unless the value is empty. It also says
// that the column is not empty, so that both databases can use a partial index.
func (c *Conditions) Equal(column, value string) {
	if value != "" {
		c.Add(column+" = $%d AND "+column+" <> ''", value)
	}
}

// Begins adds the condition that a column begins with a prefix, unless the prefix is empty; an
// index serves it as a range.
func (c *Conditions) Begins(column, prefix string) {
	if prefix == "" {
		return
	}
	c.Add(column+" >= $%d", prefix)
	if end := afterPrefix(prefix); end != "" {
		c.Add(column+" < $%d", end)
	}
}

// Text returns the conditions, joined by AND; TRUE for none.
func (c *Conditions) Text() string {
	if len(c.texts) == 0 {
		return "TRUE"
	}
	return strings.Join(c.texts, " AND ")
}

// Args returns the arguments of the conditions, followed by further ones, which are numbered from
// Next.
func (c *Conditions) Args(further ...any) []any {
	return append(c.args[:len(c.args):len(c.args)], further...)
}

// Next returns the number of the first argument after those of the conditions.
func (c *Conditions) Next() int { return len(c.args) + 1 }

// Len returns how many conditions there are.
func (c *Conditions) Len() int { return len(c.texts) }

// afterPrefix returns the first text after all that begin with a prefix, in the order of bytes, "" for none.
func afterPrefix(prefix string) string {
	runes := []rune(prefix)
	for i := len(runes) - 1; i >= 0; i-- {
		switch next := runes[i] + 1; {
		case next == 0xD800: // where the surrogates are
			return string(append(runes[:i], 0xE000))
		case next <= utf8.MaxRune:
			return string(append(runes[:i], next))
		}
	}
	return ""
}
