package charset

import (
	"compress/gzip"
	_ "embed"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/kitbackend/kit/internal/lazy"
)

// packed holds the tables of golang.org/x/text, which the test TestTablesAreThoseOfXText packs: per
// table a line with its name and a character for each cell, ended by endOfTable.
//
//go:embed tables.gz
var packed string

var unpacked lazy.Value[map[string][]rune]

// tables returns the tables by name. One of single bytes has 256 cells; one of pairs has rows
// for first bytes from firstLead to 0xfe, of cells for second bytes from firstTrail to 0xff.
func tables() map[string][]rune { return unpacked.Get(unpack) }

const (
	firstLead, leads   = 0x81, 0x7e
	firstTrail, trails = 0x40, 0xc0
)

// Cells that are no character.
const (
	noRune     = '\uffff' // the byte begins a pair, or the bytes are no pair
	endOfTable = '\U0010ffff'
	// composed and above are a letter below U+0100 and a mark of the block at firstMark, one byte
	// for each.
	composed  = '\U00100000'
	firstMark = '\u0300'
)

func unpack() map[string][]rune {
	r, err := gzip.NewReader(strings.NewReader(packed))
	if err != nil {
		panic(err) // the file is part of the program
	}
	text, err := io.ReadAll(r)
	if err != nil {
		panic(err)
	}
	tables := map[string][]rune{}
	for table := range strings.SplitSeq(strings.TrimSuffix(string(text), string(endOfTable)), string(endOfTable)) {
		name, cells, _ := strings.Cut(table, "\n")
		tables[name] = []rune(cells)
	}
	return tables
}

// pair returns the character of two bytes, or noRune.
func pair(table []rune, lead, trail byte) rune {
	if lead < firstLead || lead > 0xfe || trail < firstTrail {
		return noRune
	}
	return table[int(lead-firstLead)*trails+int(trail-firstTrail)]
}

// sevenBits returns the character of two bytes without their high bits.
func sevenBits(table []rune, lead, trail byte) rune {
	if lead > 0x20 && lead < 0x7f && trail > 0x20 && trail < 0x7f {
		if r := pair(table, lead|0x80, trail|0x80); r != noRune {
			return r
		}
	}
	return utf8.RuneError
}
