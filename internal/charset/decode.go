package charset

import (
	"encoding/binary"
	"sort"
	"unicode/utf16"
	"unicode/utf8"
)

// decoder converts a text to UTF-8.
type decoder func(text []byte) []byte

// next reads the first character of a text and returns it with its length in bytes, at least 1. A
// composed character is negative.
type next func(text []byte) (rune, int)

// nothing is what next returns for an escape sequence.
const nothing = rune(-1)

// decode reads a text to its end.
func decode(text []byte, read next) []byte {
	decoded := make([]byte, 0, len(text)+len(text)/2)
	for len(text) > 0 {
		r, size := read(text)
		switch {
		case r == nothing:
		case r < 0:
			decoded = utf8.AppendRune(decoded, -r>>8&0xff)
			decoded = utf8.AppendRune(decoded, -r&0xff+firstMark)
		default:
			decoded = utf8.AppendRune(decoded, r)
		}
		text = text[size:]
	}
	return decoded
}

// bytewise decodes a set in which every byte is a character.
func bytewise(name string) decoder {
	return func(text []byte) []byte {
		table := tables()[name]
		return decode(text, func(text []byte) (rune, int) { return table[text[0]], 1 })
	}
}

// pairs decodes ASCII and pairs of bytes.
func pairs(name string) decoder {
	return func(text []byte) []byte { return decode(text, pairsOf(name)) }
}

func pairsOf(name string) next {
	single, double := tables()[name+" 1"], tables()[name+" 2"]
	return func(text []byte) (rune, int) {
		if r := single[text[0]]; r != noRune {
			return r, 1
		}
		if len(text) > 1 {
			switch r := pair(double, text[0], text[1]); {
			case r >= composed:
				return -r, 2
			case r != noRune:
				return r, 2
			}
		}
		return utf8.RuneError, 1
	}
}

// gb18030 decodes pairs as GBK has them, and four bytes for all other characters.
func gb18030(text []byte) []byte {
	read, ranges := pairsOf("gbk"), tables()["gb18030"]
	return decode(text, func(text []byte) (rune, int) {
		if len(text) < 4 || text[0] < 0x81 || text[0] > 0xfe || text[1] < '0' || text[1] > '?' ||
			text[2] < 0x81 || text[2] > 0xfe || text[3] < '0' || text[3] > '9' {
			return read(text)
		}
		n := ((rune(text[0]-0x81)*10+rune(text[1]-'0'))*126+rune(text[2]-0x81))*10 + rune(text[3]-'0')
		if n < endOfRanges {
			i := sort.Search(len(ranges)/2, func(i int) bool { return ranges[2*i] > n }) - 1
			return ranges[2*i+1] + n - ranges[2*i], 4
		}
		if n -= firstBeyond; n >= 0 && n <= utf8.MaxRune-0x10000 {
			return n + 0x10000, 4
		}
		return utf8.RuneError, 1
	})
}

// The numbers of four bytes in GB18030: those below endOfRanges are in ranges, those from
// firstBeyond are U+10000 and on.
const (
	endOfRanges = 39420
	firstBeyond = 189000
)

// hz decodes 7-bit text in which ~{ and ~} enclose pairs of GBK without their high bits.
func hz(text []byte) []byte {
	table, inPairs := tables()["gbk 2"], false
	return decode(text, func(text []byte) (rune, int) {
		switch {
		case text[0] >= utf8.RuneSelf:
			return utf8.RuneError, 1
		case text[0] != '~' && !inPairs:
			return rune(text[0]), 1
		case len(text) == 1:
			return utf8.RuneError, 1
		case text[0] == '~':
			switch text[1] {
			case '{', '}':
				inPairs = text[1] == '{'
				return nothing, 2
			case '~':
				return '~', 2
			case '\n':
				return nothing, 2
			}
			return utf8.RuneError, 2
		case text[1] > utf8.RuneSelf:
			return utf8.RuneError, 1
		}
		return sevenBits(table, text[0], text[1]), 2
	})
}

// eucJP decodes pairs, and JIS X 0212 in three bytes.
func eucJP(text []byte) []byte {
	const three = 0x8f
	read, table := pairsOf("euc-jp"), tables()["jis0212 2"]
	return decode(text, func(text []byte) (rune, int) {
		if text[0] != three || len(text) == 1 || text[1] < 0xa1 || text[1] == 0xff {
			return read(text)
		}
		if len(text) > 2 {
			if r := pair(table, text[1], text[2]); r != noRune {
				return r, 3
			}
		}
		return utf8.RuneError, 2
	})
}

// iso2022JP decodes 7-bit text in which escape sequences change between sets.
func iso2022JP(text []byte) []byte {
	const firstKana = 0xff61
	var table []rune // of pairs
	kana := false
	return decode(text, func(text []byte) (rune, int) {
		if sequence := escape(text); sequence != "" {
			kana, table = sequence == "\x1b(I", nil
			switch sequence {
			case "\x1b$@", "\x1b$B":
				table = tables()["euc-jp 2"]
			case "\x1b$(D":
				table = tables()["jis0212 2"]
			}
			return nothing, len(sequence)
		}
		switch first := text[0]; {
		case first >= utf8.RuneSelf || first == 0x1b:
			return utf8.RuneError, 1
		case kana && (first < 0x21 || first >= 0x60):
			return utf8.RuneError, 1
		case kana:
			return rune(first) - 0x21 + firstKana, 1
		case table != nil && first == '\n':
			table = nil
		case table != nil && len(text) == 1:
			return utf8.RuneError, 1
		case table != nil:
			return sevenBits(table, first, text[1]), 2
		}
		return rune(text[0]), 1
	})
}

// escape returns the escape sequence that a text begins with, or "".
func escape(text []byte) string {
	for _, sequence := range []string{"\x1b$@", "\x1b$B", "\x1b$(D", "\x1b(B", "\x1b(J", "\x1b(I"} {
		if len(text) >= len(sequence) && string(text[:len(sequence)]) == sequence {
			return sequence
		}
	}
	return ""
}

func fromUTF8(text []byte) []byte { return []byte(string([]rune(string(text)))) }

// fromUTF16 is big-endian unless a byte order mark says otherwise.
func fromUTF16(text []byte) []byte {
	if len(text) >= 2 {
		switch binary.BigEndian.Uint16(text) {
		case 0xfffe:
			return fromUTF16LE(text[2:])
		case 0xfeff:
			return fromUTF16BE(text[2:])
		}
	}
	return fromUTF16BE(text)
}

func fromUTF16BE(text []byte) []byte { return from16(text, binary.BigEndian) }

func fromUTF16LE(text []byte) []byte { return from16(text, binary.LittleEndian) }

func from16(text []byte, order binary.ByteOrder) []byte {
	units := make([]uint16, 0, len(text)/2+1)
	for ; len(text) >= 2; text = text[2:] {
		units = append(units, order.Uint16(text))
	}
	if len(text) == 1 {
		units = append(units, utf8.RuneError)
	}
	return []byte(string(utf16.Decode(units)))
}

// replaced decodes the sets that the WHATWG has replaced, as they hide text from filters.
func replaced([]byte) []byte { return []byte("\ufffd") }
