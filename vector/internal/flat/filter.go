package flat

import (
	"math/bits"
	"slices"
)

// Kind is the JSON type of a value.
type Kind uint8

// The kinds. What is neither text, number nor boolean is Other: it exists, and
// equals nothing.
const (
	Absent Kind = iota
	Text
	Number
	Bool
	Other
)

// Value is a value that rows are filtered by.
type Value struct {
	Kind   Kind
	Text   string
	Number float64 // of a Bool 0 or 1
}

// cell is a value in a column; a text is its number in the dictionary.
type cell struct {
	kind   Kind
	number float64
}

// dictionary numbers texts. Its words are appended only, so a View keeps them.
type dictionary struct {
	words   []string
	numbers map[string]int
}

func newDictionary() *dictionary { return &dictionary{numbers: make(map[string]int)} }

func (d *dictionary) clone() *dictionary {
	c := newDictionary()
	for _, word := range d.words {
		c.number(word)
	}
	return c
}

func (d *dictionary) number(word string) int {
	n, ok := d.numbers[word]
	if !ok {
		n = len(d.words)
		d.words = append(d.words, word)
		d.numbers[word] = n
	}
	return n
}

func (d *dictionary) cell(v Value) cell {
	if v.Kind == Text {
		return cell{Text, float64(d.number(v.Text))}
	}
	return cell{v.Kind, v.Number}
}

// Bitmap is a set of rows of a View.
type Bitmap []uint64

// Count returns the number of rows.
func (b Bitmap) Count() (n int) {
	for _, word := range b {
		n += bits.OnesCount64(word)
	}
	return n
}

// All returns the living rows.
func (v *View) All() Bitmap {
	all := make(Bitmap, (v.n+63)/64)
	for w := range all {
		all[w] = ^v.dead[w]
	}
	if rest := v.n % 64; rest != 0 {
		all[len(all)-1] &= 1<<rest - 1
	}
	return all
}

// Where returns the rows whose value under a key matches. The function is
// called once for each different text, and for each other value.
func (v *View) Where(key int, match func(Value) bool) Bitmap {
	texts := make([]bool, len(v.words))
	for i, word := range v.words {
		texts[i] = match(Value{Kind: Text, Text: word})
	}
	out := make(Bitmap, (v.n+63)/64)
	last, matched := cell{}, match(Value{})
	for number, b := range v.blocks {
		for i, c := range b.columns[key] {
			var ok bool
			switch {
			case c.kind == Text:
				ok = texts[int(c.number)]
			case c == last:
				ok = matched
			default:
				last, matched = c, match(Value{Kind: c.kind, Number: c.number})
				ok = matched
			}
			if ok {
				at := number*blockRows + i
				out[at/64] |= 1 << (at % 64)
			}
		}
	}
	return out.and(v.All())
}

func (b Bitmap) and(other Bitmap) Bitmap {
	for w := range b {
		b[w] &= other[w]
	}
	return b
}

// And returns the rows in both.
func (b Bitmap) And(other Bitmap) Bitmap { return slices.Clone(b).and(other) }

// Or returns the rows in either.
func (b Bitmap) Or(other Bitmap) Bitmap {
	out := slices.Clone(b)
	for w := range out {
		out[w] |= other[w]
	}
	return out
}

// Without returns the rows that are not in other.
func (b Bitmap) Without(other Bitmap) Bitmap {
	out := slices.Clone(b)
	for w := range out {
		out[w] &^= other[w]
	}
	return out
}

// Keep returns which of the ids are in the bitmap.
func (v *View) Keep(ids []string, among Bitmap) []string {
	kept := make([]string, 0, len(ids))
	for _, id := range ids {
		if at, ok := v.find(id); ok && among[at/64]>>(at%64)&1 == 1 {
			kept = append(kept, id)
		}
	}
	return kept
}
