package support

import (
	"bytes"
	"mime"
	"net/mail"
	"strings"
	"unicode/utf8"

	"github.com/kitbackend/kit/internal/charset"
)

// The bounds of a mail's header.
const (
	maxHeaderBlock = 256 << 10
	maxHeaderField = 64 << 10
	maxFields      = 1000
	// maxDecodedField is how much of a field is interpreted.
	maxDecodedField = 4000
)

// field is one unfolded line of a header, its bytes as received.
type field struct{ name, value string }

// header is the header of a mail, in its order.
type header []field

// readHeader splits a header from its body. A line that is not a field ends a header that has
// fields, because broken mails begin their text there. ok is false if there is no field, or the end
// of the header is not within bounds.
func readHeader(raw []byte) (h header, body []byte, ok bool) {
	rest, read := bytes.TrimPrefix(raw, []byte("\xef\xbb\xbf")), 0
	var name string
	var value []byte
	end := func() {
		if name != "" {
			h = append(h, field{name, string(value)})
		}
		name = ""
	}
	for len(rest) > 0 {
		text, after := cutLine(rest)
		if len(text) == 0 {
			rest = after
			break
		}
		if read += len(text); read > maxHeaderBlock || len(h) >= maxFields {
			return nil, nil, false
		}
		before, behind, isField := bytes.Cut(text, []byte(":"))
		before = bytes.TrimRight(before, " \t")
		switch {
		case (text[0] == ' ' || text[0] == '\t') && name != "":
			if len(value)+len(text) <= maxHeaderField {
				value = append(append(value, ' '), bytes.TrimSpace(text)...)
			}
		case isField && fieldName(before):
			end()
			name = strings.ToLower(string(before))
			value = append([]byte{}, bytes.TrimSpace(behind[:min(len(behind), maxHeaderField)])...)
		case name == "" && bytes.HasPrefix(text, []byte("From ")): // the first line in a mail spool
		default:
			end()
			return h, rest, len(h) > 0
		}
		rest = after
	}
	end()
	return h, rest, len(h) > 0
}

func cutLine(raw []byte) (text, rest []byte) {
	end := bytes.IndexByte(raw, '\n')
	if end < 0 {
		return bytes.TrimSuffix(raw, []byte("\r")), nil
	}
	return bytes.TrimSuffix(raw[:end], []byte("\r")), raw[end+1:]
}

// fieldName reports whether a name consists of the characters of RFC 5322.
func fieldName(name []byte) bool {
	if len(name) == 0 || len(name) > 100 {
		return false
	}
	for _, c := range name {
		if c <= ' ' || c >= 0x7f {
			return false
		}
	}
	return true
}

// get returns the first field of a lower case name, or "".
func (h header) get(name string) string {
	for _, f := range h {
		if f.name == name {
			return f.value
		}
	}
	return ""
}

func (h header) has(name string) bool { return h.count(name) > 0 }

func (h header) count(name string) (n int) {
	for _, f := range h {
		if f.name == name {
			n++
		}
	}
	return n
}

// text returns the decoded value of a field.
func (h header) text(name string) string { return decodeWords(h.get(name)) }

var words = mime.WordDecoder{CharsetReader: charset.Reader}

// decodeWords decodes encoded words and bytes without a declared charset.
func decodeWords(value string) string {
	value = clip(value, maxDecodedField)
	if !utf8.ValidString(value) {
		value = latin(value)
	}
	if decoded, err := words.DecodeHeader(value); err == nil {
		return decoded
	}
	return value
}

// latin decodes text as Windows-1252, which has a character for nearly all bytes.
func latin(text string) string {
	decoded, _ := charset.Decode("windows-1252", []byte(text))
	return string(decoded)
}

// param returns a parameter of Content-Type or Content-Disposition, also from malformed values.
func param(value, name string) string {
	value = clip(value, maxDecodedField)
	if _, params, err := mime.ParseMediaType(value); err == nil || len(params) > 0 {
		if params[name] != "" {
			return decodeWords(params[name])
		}
	}
	lower := strings.ToLower(value)
	at := strings.Index(lower, name+"=")
	if at < 0 || len(lower) != len(value) {
		return ""
	}
	rest := value[at+len(name)+1:]
	if text, ok := strings.CutPrefix(rest, `"`); ok {
		text, _, _ = strings.Cut(text, `"`)
		return decodeWords(text)
	}
	if end := strings.IndexAny(rest, "; \t"); end >= 0 {
		rest = rest[:end]
	}
	return decodeWords(rest)
}

// sender is the author of a mail by its header.
type sender struct {
	name, address string
	// single is false if a mail names several authors, or none.
	single bool
}

// from reads the From field. A mail with two From fields, or with several authors, is never
// attributed to anyone.
func (h header) from() sender {
	value := h.get("from")
	if value == "" {
		value = h.get("sender")
	}
	if !utf8.ValidString(value) {
		value = latin(value)
	}
	parser := mail.AddressParser{WordDecoder: &words}
	list, err := parser.ParseList(clip(value, maxDecodedField))
	if err != nil || len(list) == 0 {
		return sender{address: bareAddress(value)}
	}
	return sender{name: line(list[0].Name, 200), address: list[0].Address, single: len(list) == 1 && h.count("from") == 1}
}

// bareAddress finds the likely address in a malformed field.
func bareAddress(value string) string {
	if open := strings.LastIndexByte(value, '<'); open >= 0 {
		if inner, _, ok := strings.Cut(value[open+1:], ">"); ok {
			return strings.TrimSpace(inner)
		}
	}
	for word := range strings.FieldsSeq(value) {
		if strings.Count(word, "@") == 1 {
			return strings.Trim(word, `<>,;"'()`)
		}
	}
	return ""
}
