package flat

import (
	"math/bits"
	"slices"
)

// Kind is the JSON type of a value.
type Kind uint8

// The kinds. Values other than text, numbers and booleans are Other: they exist, but equal nothing.
const (
	Absent Kind = iota
	Text
	Number
	Bool
	Other
)

// Value is a value by which rows are filtered.
type Value struct {
	Kind   Kind
	Text   string
	Number float64 // 0 or 1 for a Bool
}

// dictionary numbers the distinct values of a key. Values are only appended, so that a View can
// keep them.
type dictionary struct {
	values  []Value
	numbers map[Value]uint32
	parent  *dictionary // set in a clone
}

func newDictionaries(keys int) []*dictionary {
	list := make([]*dictionary, keys)
	for i := range list {
		list[i] = &dictionary{numbers: make(map[Value]uint32)}
	}
	return list
}

// clone returns a dictionary that can grow without changing the original; the original must not
// change while the clone is in use.
func (d *dictionary) clone() *dictionary {
	return &dictionary{values: d.values[:len(d.values):len(d.values)], numbers: make(map[Value]uint32), parent: d}
}

func (d *dictionary) number(v Value) uint32 {
	if d.parent != nil {
		if n, ok := d.parent.numbers[v]; ok {
			return n
		}
	}
	n, ok := d.numbers[v]
	if !ok {
		n = uint32(len(d.values))
		d.values = append(d.values, v)
		d.numbers[v] = n
	}
	return n
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

// All returns the live rows.
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

// Where returns the rows whose value of a key matches. The function is called once for each
// distinct value.
func (v *View) Where(key int, match func(Value) bool) Bitmap {
	matches := make([]uint64, len(v.values[key]))
	for i, value := range v.values[key] {
		if match(value) {
			matches[i] = 1
		}
	}
	out := make(Bitmap, (v.n+63)/64)
	for number, b := range v.blocks {
		column := b.columns[key]
		for w := 0; w*64 < len(column); w++ {
			var word uint64
			for i, c := range column[w*64 : min(w*64+64, len(column))] {
				word |= matches[c] << i
			}
			out[number*blockRows/64+w] = word
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

// Keep returns the IDs that are in the bitmap.
func (v *View) Keep(ids []string, among Bitmap) []string {
	kept := make([]string, 0, len(ids))
	for i, at := range v.find(ids) {
		if at >= 0 && among[at/64]>>(at%64)&1 == 1 {
			kept = append(kept, ids[i])
		}
	}
	return kept
}
