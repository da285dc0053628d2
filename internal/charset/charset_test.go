package charset

import (
	"bytes"
	"compress/gzip"
	"flag"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"golang.org/x/text/encoding"
	"golang.org/x/text/encoding/charmap"
	"golang.org/x/text/encoding/htmlindex"
	"golang.org/x/text/encoding/ianaindex"
	"golang.org/x/text/encoding/japanese"
	"golang.org/x/text/encoding/simplifiedchinese"
	"golang.org/x/text/encoding/unicode"
)

var update = flag.Bool("update", false, "write tables.gz anew")

// The tables of single bytes, of ASCII with pairs, and of all of those.
var (
	bytewiseSets = strings.Fields(`ibm00858 ibm01140 ibm037 ibm1047 ibm437 ibm850 ibm852 ibm855 ibm860 ibm862 ibm863
		ibm865 ibm866 iso-8859-1 iso-8859-10 iso-8859-13 iso-8859-14 iso-8859-15 iso-8859-16 iso-8859-2 iso-8859-3
		iso-8859-4 iso-8859-5 iso-8859-6 iso-8859-7 iso-8859-8 iso-8859-9 koi8-r koi8-u macintosh windows-1250
		windows-1251 windows-1252 windows-1253 windows-1254 windows-1255 windows-1256 windows-1257 windows-1258
		windows-874 x-mac-cyrillic x-user-defined`)
	pairSets = []string{"big5", "euc-jp", "euc-kr", "gbk", "shift_jis"}
)

// TestTablesAreThoseOfXText packs the tables; with -update it writes them.
func TestTablesAreThoseOfXText(t *testing.T) {
	want := pack()
	if *update {
		var file bytes.Buffer
		w, err := gzip.NewWriterLevel(&file, gzip.BestCompression)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, want); err != nil {
			t.Fatal(err)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		packed = file.String()
		if err := os.WriteFile("tables.gz", file.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	r, err := gzip.NewReader(strings.NewReader(packed))
	if err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(r); err != nil || string(got) != want {
		t.Errorf("tables.gz is not what golang.org/x/text has, %v; write it with go test ./internal/charset -update", err)
	}
}

func pack() string {
	var all strings.Builder
	add := func(name string, cells []rune) { all.WriteString(name + "\n" + string(cells) + string(endOfTable)) }
	for _, name := range bytewiseSets {
		add(name, singles(index(name)))
	}
	for _, name := range pairSets {
		set := index(name)
		cells := singles(set)
		for lead := firstLead; lead < 0xff; lead++ {
			if cells[lead] == utf8.RuneError || lead == 0x8e && set == japanese.EUCJP {
				cells[lead] = noRune
			}
		}
		add(name+" 1", cells)
		add(name+" 2", doubles(set, ""))
	}
	add("jis0212 2", doubles(japanese.EUCJP, "\x8f"))
	add("gb18030", ranges())
	return all.String()
}

// singles returns the character of every byte.
func singles(set encoding.Encoding) (cells []rune) {
	for b := range 256 {
		cells = append(cells, []rune(decodedBy(set, string([]byte{byte(b)})))...)
	}
	return cells
}

// doubles returns the character of every pair behind a prefix.
func doubles(set encoding.Encoding, prefix string) (cells []rune) {
	for lead := firstLead; lead < firstLead+leads; lead++ {
		for trail := firstTrail; trail < firstTrail+trails; trail++ {
			runes := []rune(decodedBy(set, prefix+string([]byte{byte(lead), byte(trail)})+"\n"))
			runes = runes[:len(runes)-1]
			switch {
			case len(runes) == 2 && runes[1]&^0x7f == firstMark:
				cells = append(cells, composed|runes[0]<<8|(runes[1]-firstMark))
			case len(runes) == 1:
				cells = append(cells, runes[0])
			default:
				cells = append(cells, noRune)
			}
		}
	}
	return cells
}

// ranges returns where the numbers of four bytes in GB18030 and the characters stop counting alike,
// each as the number and the character.
func ranges() (cells []rune) {
	last := rune(-1)
	for n := range rune(endOfRanges) {
		r, _ := utf8.DecodeRuneInString(decodedBy(simplifiedchinese.GB18030, string(fourBytes(n))))
		if r-n != last {
			cells, last = append(cells, n, r), r-n
		}
	}
	return cells
}

func fourBytes(n rune) []byte {
	return []byte{byte(n/12600) + 0x81, byte(n/1260%10) + '0', byte(n/10%126) + 0x81, byte(n%10) + '0'}
}

func decodedBy(set encoding.Encoding, text string) string {
	decoded, err := set.NewDecoder().String(text)
	if err != nil {
		panic(err)
	}
	return decoded
}

// TestDecodesAsXText compares every name that the indexes of golang.org/x/text know, with all pairs
// of bytes. The indexes do not list their names, so the test reads them from the source.
func TestDecodesAsXText(t *testing.T) {
	ascii, err := ianaindex.MIME.Encoding("us-ascii")
	if err != nil {
		t.Fatal(err)
	}
	var pairs, some []byte
	for lead := range 256 {
		for trail := range 256 {
			pairs = append(pairs, byte(lead), byte(trail), '\n', '\n', '\n', '\n')
		}
		some = append(some, byte(lead), byte(lead|0x80), '\n', '\n')
	}
	compared := map[encoding.Encoding]bool{unicode.UTF8: true} // counts malformed bytes otherwise
	known := 0
	for _, name := range append(indexed(t), "x-utf_8j", "utf-16") {
		set := index(name)
		if set == ascii {
			set = charmap.Windows1252
		}
		text := some
		if set == unicode.UTF8 {
			text = []byte("zażółć 🐍\x80")
		} else if !compared[set] {
			text, compared[set] = pairs, true
		}
		got, ok := Decode(name, text)
		if ok != (set != nil) {
			t.Errorf("%s is known: %v", name, ok)
		}
		if set == nil {
			continue
		}
		known++
		if want := decodedBy(set, string(text)); string(got) != want {
			t.Errorf("%s is not decoded as by %v: %s", name, set, difference(string(got), want))
		}
	}
	if known < 300 {
		t.Errorf("the indexes know %d names only: they are not written as this test reads them", known)
	}
}

// TestDecodesLongSequencesAsXText compares three and four bytes, and what follows an escape sequence.
func TestDecodesLongSequencesAsXText(t *testing.T) {
	var three, four, japanese7, chinese7 []byte
	for lead := 0x80; lead <= 0xff; lead++ {
		for trail := range 256 {
			three = append(three, 0x8f, byte(lead), byte(trail), '\n')
		}
	}
	for n := range rune(126 * 1260 * 10) {
		four = append(four, fourBytes(n)...)
	}
	for lead := byte(0x21); lead < 0x7f; lead++ {
		for trail := byte(0x21); trail < 0x7f; trail++ {
			for _, escape := range []string{"\x1b$@", "\x1b$B", "\x1b$(D", "\x1b(B", "\x1b(J", "\x1b(I", "\x1b"} {
				japanese7 = append(append(japanese7, escape...), lead, trail, '\n')
			}
			chinese7 = append(chinese7, '~', '{', lead, trail, '~', '}', lead, '~', '~', '~', '\n')
		}
	}
	for name, text := range map[string][]byte{"euc-jp": three, "gb18030": four, "iso-2022-jp": japanese7, "hz-gb-2312": chinese7} {
		got, _ := Decode(name, text)
		if want := decodedBy(index(name), string(text)); string(got) != want {
			t.Errorf("%s: %s", name, difference(string(got), want))
		}
	}
}

// difference shows where two texts begin to differ.
func difference(got, want string) string {
	at := 0
	for at < min(len(got), len(want)) && got[at] == want[at] {
		at++
	}
	cut := func(text string) string { return text[min(max(at-8, 0), len(text)):min(at+16, len(text))] }
	return strings.ToValidUTF8(cut(got), "?") + " instead of " + strings.ToValidUTF8(cut(want), "?")
}

// indexed lists the names in the tables of golang.org/x/text in lower case, and without the cs that
// IANA puts before some.
func indexed(t *testing.T) (names []string) {
	t.Helper()
	dir, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "golang.org/x/text").Output()
	if err != nil {
		t.Fatal(err)
	}
	key := regexp.MustCompile(`(?m)^\t"(.+)":\s`)
	seen := map[string]bool{}
	for _, table := range []string{"ianaindex", "htmlindex"} {
		source, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(dir)), "encoding", table, "tables.go"))
		if err != nil {
			t.Fatal(err)
		}
		for _, found := range key.FindAllStringSubmatch(string(source), -1) {
			for _, name := range []string{strings.ToLower(found[1]), strings.TrimPrefix(strings.ToLower(found[1]), "cs")} {
				if !seen[name] {
					seen[name], names = true, append(names, name)
				}
			}
		}
	}
	return names
}

// index looks a name up as go-message's package charset does.
func index(name string) encoding.Encoding {
	switch name {
	case "ansi_x3.110-1983":
		return charmap.ISO8859_1
	case "x-utf_8j":
		return unicode.UTF8
	}
	for _, alias := range []string{name, "cs" + name} {
		if found, err := ianaindex.MIME.Encoding(alias); err == nil && found != nil {
			return found
		}
	}
	found, err := htmlindex.Get(name)
	if err != nil {
		return nil
	}
	return found
}

func TestReaderDecodes(t *testing.T) {
	for name, text := range map[string][2]string{
		"iso-8859-1":   {"caf\xe9", "café"},
		`"ISO-8859-1"`: {"caf\xe9", "café"},
		"ascii":        {"caf\xe9", "café"},
		"Windows-1250": {"\x8c\x9d", "Śť"},
		"koi8-r":       {"\xcd\xc9\xd2", "мир"},
		"gb2312":       {"\xb2\xe2\xca\xd4", "测试"},
		"Shift_JIS":    {"\x83\x65\x83\x58\x83\x67", "テスト"},
		"utf-16":       {"\xff\xfeh\x00i\x00", "hi"},
	} {
		r, err := Reader(name, strings.NewReader(text[0]))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if got, err := io.ReadAll(r); err != nil || string(got) != text[1] {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
	if _, err := Reader("klingon", strings.NewReader("")); err == nil {
		t.Error("an unknown name was accepted")
	}
}

func TestReadMailDecodes(t *testing.T) {
	mail, err := ReadMail(strings.NewReader("Subject: =?koi8-r?B?zcnS?=\r\nContent-Type: text/plain; charset=iso-8859-2\r\n\r\n\xb3\xf3d\xbc"))
	if err != nil {
		t.Fatal(err)
	}
	subject, err := mail.Header.Text("Subject")
	if err != nil || subject != "мир" {
		t.Errorf("subject %q, %v", subject, err)
	}
	if body, err := io.ReadAll(mail.Body); err != nil || string(body) != "łódź" {
		t.Errorf("body %q, %v", body, err)
	}
}
