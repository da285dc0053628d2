package database

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// Conditions collects what narrows a list, so that its statement names only that and seeks in an index. The zero value
// narrows nothing.
type Conditions struct {
	texts []string
	args  []any
}

// Add adds a condition that has $%d for the argument.
func (c *Conditions) Add(text string, arg any) {
	c.args = append(c.args, arg)
	c.texts = append(c.texts, fmt.Sprintf(text, len(c.args)))
}

// Equal adds that a column has a value, unless that is empty. Saying that the column is not empty either lets both
// databases use a partial index.
func (c *Conditions) Equal(column, value string) {
	if value != "" {
		c.Add(column+" = $%d AND "+column+" <> ''", value)
	}
}

// Begins adds that a text begins with a prefix, unless that is empty, as a range of an index.
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

// Args returns the arguments of the conditions and further ones, which Next has numbered.
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
