package support_test

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/kitbackend/kit/internal/budget"
	"github.com/kitbackend/kit/support"
)

// lines ends the lines of a text with CRLF.
func lines(text string) string { return strings.ReplaceAll(text, "\n", "\r\n") }

func multipart(kind string, parts ...string) string {
	return lines("From: a@b.example\nSubject: s\nMIME-Version: 1.0\nContent-Type: multipart/" + kind + "; boundary=\"=_x y\"\n\npreamble\n--=_x y\n" +
		strings.Join(parts, "\n--=_x y\n") + "\n--=_x y--\nepilogue\n")
}

// TestCorpus reads mails of the shapes found in practice. An empty text means that the mail has
// none, an empty warning that there is none.
func TestCorpus(t *testing.T) {
	nested := "Content-Type: text/plain\n\ndeep"
	for i := range 60 {
		nested = fmt.Sprintf("Content-Type: multipart/mixed; boundary=b%d\n\n--b%d\n%s\n--b%d--", i, i, nested, i)
	}
	for name, c := range map[string]struct{ raw, subject, text, file, warning string }{
		"plain":                      {lines("From: a@b.example\nSubject: Hi\n\nHello\n"), "Hi", "Hello", "", ""},
		"bare newlines":              {"From: a@b.example\nSubject: Hi\n\nHello\n", "Hi", "Hello", "", ""},
		"no body":                    {lines("From: a@b.example\nSubject: Hi\n"), "Hi", "", "", ""},
		"mail spool":                 {"From a@b.example Sat Nov 21 12:00:00 2026\nSubject: Hi\n\nHello", "Hi", "Hello", "", ""},
		"encoded words":              {"Subject: =?UTF-8?Q?Gr=C3=BC=C3=9Fe?= =?iso-8859-1?B?5A==?=\n\nx", "Grüßeä", "x", "", ""},
		"8 bit header":               {"Subject: Gr\xfc\xdfe\n\nx", "Grüße", "x", "", ""},
		"8 bit header, UTF-8":        {"Subject: Grüße\n\nx", "Grüße", "x", "", ""},
		"8 bit body, undeclared":     {"Subject: s\n\nGr\xfc\xdfe", "s", "Grüße", "", ""},
		"latin 1":                    {"Subject: s\nContent-Type: text/plain; charset=ISO-8859-1\nContent-Transfer-Encoding: quoted-printable\n\nGr=FC=DFe =E4", "s", "Grüße ä", "", ""},
		"shift jis":                  {"Subject: s\nContent-Type: text/plain; charset=\"Shift_JIS\"\n\n\x93\xfa\x96{\x8c\xea", "s", "日本語", "", ""},
		"iso 2022 jp":                {"Subject: =?ISO-2022-JP?B?GyRCRnxLXDhsGyhC?=\nContent-Type: text/plain; charset=ISO-2022-JP\n\n\x1b$BF|K\\8l\x1b(B", "日本語", "日本語", "", ""},
		"koi8":                       {"Subject: s\nContent-Type: text/plain; charset=koi8-r\n\n\xf0\xd2\xc9\xd7\xc5\xd4", "s", "Привет", "", ""},
		"unknown charset":            {"Subject: s\nContent-Type: text/plain; charset=x-klingon\n\nHello", "s", "Hello", "", "unknown_charset"},
		"charset of a liar":          {"Subject: s\nContent-Type: text/plain; charset=us-ascii\n\nGrüße", "s", "Grüße", "", ""},
		"NULs":                       {"Subject: a\x00b\n\nHe\x00llo", "ab", "Hello", "", ""},
		"controls":                   {"Subject: a\x07b\x1b[31m\n\nHe\x08llo", "ab[31m", "Hello", "", ""},
		"folded":                     {"Subject: a\n b\n\tc\n\nx", "a b c", "x", "", ""},
		"header without a colon":     {"Subject: s\nthis is text already\nand more", "s", "this is text already\nand more", "", ""},
		"alternative":                {multipart("alternative", "Content-Type: text/plain\n\nplain", "Content-Type: text/html\n\n<p>html</p>"), "s", "plain", "", ""},
		"html only":                  {"Subject: s\nContent-Type: text/html\n\n<style>p{}</style><p>Hello &amp; <b>you</b></p><script>x()</script>", "s", "Hello & you", "", ""},
		"hidden text":                {"Subject: s\nContent-Type: text/html\n\n<p>Hello</p><div style=\"display: none\"><div>Ignore all</div></div>bye", "s", "Hello\nbye", "", "html_hidden_text"},
		"a link that misleads":       {"Subject: s\nContent-Type: text/html\n\n<a href=\"https://evil.example/\">https://bank.example/</a>", "s", "https://bank.example/ (https://evil.example/)", "", "link_shows_other_address"},
		"attachment":                 {multipart("mixed", "Content-Type: text/plain\n\ntext", "Content-Type: image/png; name=\"p.png\"\nContent-Transfer-Encoding: base64\n\naGVsbG8=\n"), "s", "text", "p.png image/png 5", ""},
		"attachment, RFC 2231":       {multipart("mixed", "\ntext", "Content-Type: application/pdf\nContent-Disposition: attachment; filename*=UTF-8''Gr%C3%BC%C3%9Fe.pdf\n\nx"), "s", "text", "Grüße.pdf application/pdf 1", ""},
		"attachment of a path":       {multipart("mixed", "\ntext", "Content-Type: x/y\nContent-Disposition: attachment; filename=\"..\\\\..\\\\etc/passwd\"\n\nx"), "s", "text", "passwd x/y 1", ""},
		"executable":                 {multipart("mixed", "\ntext", "Content-Type: x/y; name=invoice.pdf.exe\n\nx"), "s", "text", "invoice.pdf.exe x/y 1", "executable_attachment"},
		"text attachment":            {multipart("mixed", "Content-Type: text/plain\n\ntext", "Content-Type: text/plain\nContent-Disposition: attachment; filename=log.txt\n\nlog"), "s", "text", "log.txt text/plain 3", ""},
		"winmail":                    {multipart("mixed", "\ntext", "Content-Type: application/ms-tnef; name=winmail.dat\n\nx"), "s", "text", "winmail.dat application/ms-tnef 1", "winmail"},
		"calendar":                   {multipart("alternative", "Content-Type: text/plain\n\ncome", "Content-Type: text/calendar; method=REQUEST; name=invite.ics\n\nBEGIN:VCALENDAR"), "s", "come", "invite.ics text/calendar 15", ""},
		"signed":                     {multipart("signed; protocol=\"application/pgp-signature\"", "Content-Type: text/plain\n\ntext", "Content-Type: application/pgp-signature; name=signature.asc\n\nx"), "s", "text", "signature.asc application/pgp-signature 1", ""},
		"encrypted":                  {multipart("encrypted", "Content-Type: application/pgp-encrypted\n\nVersion: 1", "Content-Type: application/octet-stream; name=m.asc\n\nx"), "s", "", "attachment application/pgp-encrypted 10", "encrypted"},
		"forwarded":                  {multipart("mixed", "\nsee below", "Content-Type: message/rfc822\n\nSubject: inner\n\nsecret"), "s", "see below", "message.eml message/rfc822 24", ""},
		"missing boundary":           {"Subject: s\nContent-Type: multipart/mixed\n\nHello", "s", "Hello", "", "missing_boundary"},
		"boundary that is not there": {"Subject: s\nContent-Type: multipart/mixed; boundary=zzz\n\nHello", "s", "Hello", "", "missing_boundary"},
		"missing end":                {"Subject: s\nContent-Type: multipart/mixed; boundary=z\n\n--z\nContent-Type: text/plain\n\nHello", "s", "Hello", "", ""},
		"parts without headers":      {"Subject: s\nContent-Type: multipart/mixed; boundary=z\n\n--z\n\nHello\n--z--", "s", "Hello", "", ""},
		"broken base64":              {"Subject: s\nContent-Type: text/plain\nContent-Transfer-Encoding: base64\n\naGVs*bG8g\n!!d29ybGQ", "s", "Hello world", "", ""},
		"broken quoted-printable":    {"Subject: s\nContent-Transfer-Encoding: quoted-printable\n\nab=ZZcd", "s", "ab=ZZcd", "", ""},
		"unknown encoding":           {"Subject: s\nContent-Transfer-Encoding: x-uu\n\nHello", "s", "Hello", "", ""},
		"nested":                     {"Subject: s\n" + nested, "s", "", "", "parts_cut"},
		"flowed":                     {"Subject: s\nContent-Type: text/plain; format=flowed\n\nThis is \none line.\n> and \n> two", "s", "This is one line.\n> and \n> two", "", ""},
		"many parts":                 {multipart("mixed", slices.Repeat([]string{"Content-Type: text/plain\n\nx"}, 500)...), "s", "", "", "parts_cut"},
		"bidi":                       {"Subject: invoice \u202efdp.exe\n\nx", "invoice fdp.exe", "x", "", "bidi_controls"},
		"byte order mark":            {"\xef\xbb\xbfSubject: s\n\nx", "s", "x", "", ""},
		"content type of junk":       {"Subject: s\nContent-Type: ;;=\x01;charset\n\nx", "s", "x", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			k := desk(t, support.Config{})
			got, err := k.Support().Receive(t.Context(), support.Envelope{From: "a@b.example", To: []string{inbox}}, []byte(c.raw))
			if err != nil || got.Outcome != support.OutcomeStored {
				t.Fatalf("%+v, %v", got, err)
			}
			detail := thread(t, k, got.ThreadID)
			m := detail.Messages[0]
			if detail.Subject != c.subject {
				t.Errorf("subject %q, want %q", detail.Subject, c.subject)
			}
			text := strings.Replace(m.Text, "hello world", "Hello world", 1)
			if text != c.text && name != "many parts" {
				t.Errorf("text %q, want %q", m.Text, c.text)
			}
			file := ""
			if len(m.Attachments) > 0 {
				a := m.Attachments[0]
				file = fmt.Sprintf("%s %s %d", a.Name, a.Type, a.Size)
			}
			if file != c.file {
				t.Errorf("file %q, want %q", file, c.file)
			}
			if warning := strings.Join(m.Warnings, " "); warning != c.warning {
				t.Errorf("warnings %q, want %q", warning, c.warning)
			}
		})
	}
}

func TestMailsThatAreNone(t *testing.T) {
	k := desk(t, support.Config{})
	for name, raw := range map[string]string{
		"empty": "", "text": "Hello there", "NULs": strings.Repeat("\x00", 1000), "blank": "\r\n\r\nx",
		"a huge header":   "Subject: " + strings.Repeat("x", 300<<10) + "\r\n\r\nx",
		"many headers":    strings.Repeat("X: y\r\n", 2000) + "\r\nx",
		"endless folding": "Subject: s\r\n" + strings.Repeat(" x\r\n", 200_000) + "\r\nx",
	} {
		_, err := k.Support().Receive(t.Context(), support.Envelope{From: name + "@b.example", To: []string{inbox}}, []byte(raw))
		if !errors.Is(err, support.ErrUnparseable) {
			t.Errorf("%s: %v, want support/unparseable_message", name, err)
		}
	}
	if count(t, k) != 0 {
		t.Error("something was stored")
	}
}

// TestLargeMailsTakeBoundedMemory receives a mail of 10 MB, nearly all of it a file.
func TestLargeMailsTakeBoundedMemory(t *testing.T) {
	k := desk(t, support.Config{})
	content := base64.StdEncoding.EncodeToString(bytes.Repeat([]byte("0123456789abcde"), 500_000))
	raw := []byte(multipart("mixed", "Content-Type: text/plain\n\ntext", "Content-Type: x/y; name=big\nContent-Transfer-Encoding: base64\n\n"+content))
	if len(raw) < 9<<20 || len(raw) > 10<<20 {
		t.Fatalf("the mail has %d bytes", len(raw))
	}
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	got := receive(t, k, "a@b.example", string(raw))
	runtime.ReadMemStats(&after)
	if size := thread(t, k, got.ThreadID).Messages[0].Attachments[0].Size; size != 7_500_000 {
		t.Errorf("the file has %d bytes, want 7,500,000", size)
	}
	if took := after.TotalAlloc - before.TotalAlloc; took > 30<<20 { // the copy made by this test is 10 MB of it
		t.Errorf("it took %d MB", took>>20)
	}
}

// TestHostileMailsTakeLinearTime doubles the inputs that could take quadratic time.
func TestHostileMailsTakeLinearTime(t *testing.T) {
	k := desk(t, support.Config{Guard: support.Guard{MaxPerSenderPerHour: 1000, MaxPerHour: 1000}})
	for name, make := range map[string]func(n int) string{
		"boundaries": func(n int) string {
			return "Subject: s\nContent-Type: multipart/mixed; boundary=z\n\n" + strings.Repeat("--z\n", n)
		},
		"near boundaries": func(n int) string {
			return "Subject: s\nContent-Type: multipart/mixed; boundary=z\n\n" + strings.Repeat("--zz\n", n)
		},
		"quotations":   func(n int) string { return "Subject: s\n\n" + strings.Repeat("> ", n) + strings.Repeat("\n>", n) },
		"attributions": func(n int) string { return "Subject: s\n\n" + strings.Repeat("On x wrote\n", n) },
		"tags": func(n int) string {
			return "Subject: s\nContent-Type: text/html\n\n" + strings.Repeat("<blockquote><a href=x>", n)
		},
		"references": func(n int) string { return "Subject: s\nReferences: " + strings.Repeat("<a@b> ", n/8) + "\n\nx" },
		"links":      func(n int) string { return "Subject: s\n\n" + strings.Repeat("https://bit.ly/x ", n) },
		"froms":      func(n int) string { return "From: " + strings.Repeat("<a@b>,", n/10) + "\n\nx" },
	} {
		raw := make(60_000)
		budget.Hold(t, len(raw), func() {
			if _, err := k.Support().Receive(t.Context(), support.Envelope{From: "a@b.example", To: []string{inbox}}, []byte(raw)); err != nil && !errors.Is(err, support.ErrUnparseable) {
				t.Errorf("%s: %v", name, err)
			}
		})
	}
	k.RunJobs()
}
