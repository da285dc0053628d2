package support

import (
	"strings"
	"testing"
	"unicode/utf8"
)

func TestQuotationsAreStripped(t *testing.T) {
	for name, c := range map[string][2]string{
		"nothing quoted": {"Hello\n\nthere", "Hello\n\nthere"},
		"gmail":          {"Yes.\n\nOn Sat, Nov 21, 2026 at 1:00 PM Acme Support <help@acme.example>\nwrote:\n\n> Is it?\n> Yes?\n", "Yes."},
		"gmail, german":  {"Ja.\n\nAm Sa., 21. Nov. 2026 um 13:00 Uhr schrieb Acme <help@acme.example>:\n\n> Ist es?", "Ja."},
		"gmail, french":  {"Oui.\n\nLe sam. 21 nov. 2026 à 13:00, Acme <help@acme.example> a écrit :\n\n> C'est ?", "Oui."},
		"gmail, spanish": {"Sí.\n\nEl sáb, 21 nov 2026 a las 13:00, Acme (<help@acme.example>) escribió:\n\n> ¿Sí?", "Sí."},
		"apple mail":     {"Yes.\n\nSent from my iPhone\n\n> On 21 Nov 2026, at 13:00, Acme <help@acme.example> wrote:\n> \n> Is it?", "Yes."},
		"outlook":        {"Yes.\n\nFrom: Acme <help@acme.example>\nSent: Saturday, November 21, 2026 1:00 PM\nTo: Ada <ada@home.example>\nSubject: Re: It\n\nIs it?", "Yes."},
		"outlook, line":  {"Yes.\n\n________________________________\nVon: Acme <help@acme.example>\nGesendet: Samstag\nAn: Ada\nBetreff: Es\n\nIst es?", "Yes."},
		"old outlook":    {"Yes.\n\n-----Original Message-----\nFrom: Acme\nIs it?", "Yes."},
		"in between":     {"> Is it blue?\nNo, red.\n> Is it large?\nYes.", "No, red.\nYes."},
		"below":          {"On Sat, Nov 21, 2026 Acme wrote:\n> Is it?\n\nYes, it is.", "Yes, it is."},
		"signature":      {"Yes.\n-- \nAda\nAnalyst", "Yes."},
		"all quoted":     {"> Only this", "> Only this"},
		"a colon":        {"On this we agree:\nit is red.", "On this we agree:\nit is red."},
		"from: in prose": {"From: the heart\nthank you", "From: the heart\nthank you"},
		"html quote":     {readHTML("<p>Yes.</p><div>On Sat, Nov 21, 2026 at 1:00 PM Acme &lt;h@a.example&gt; wrote:<br></div><blockquote>Is it?</blockquote>").text, "Yes."},
	} {
		if got := stripped(c[0]); got != c[1] {
			t.Errorf("%s: %q, want %q", name, got, c[1])
		}
	}
}

func FuzzStripped(f *testing.F) {
	f.Add("Yes.\n\nOn Sat, Nov 21, 2026 Acme wrote:\n> Is it?")
	f.Add("From: a\nSent: b\nTo: c\nSubject: d\n-- \n")
	f.Fuzz(func(t *testing.T, text string) {
		got := stripped(text)
		if len(got) > len(text) {
			t.Errorf("it grew from %d to %d bytes", len(text), len(got))
		}
		if strings.TrimSpace(text) != "" && got == "" {
			t.Errorf("nothing is left of %q", text)
		}
	})
}

func FuzzParse(f *testing.F) {
	f.Add([]byte("From: a@b\r\nSubject: =?utf-8?q?x?=\r\nContent-Type: multipart/mixed; boundary=z\r\n\r\n--z\r\nContent-Type: text/html; charset=koi8-r\r\n\r\n<p>x</p>\r\n--z\r\nContent-Transfer-Encoding: base64\r\nContent-Disposition: attachment; filename=x\r\n\r\naGk=\r\n--z--\r\n"))
	f.Add([]byte("Content-Type: text/plain; format=flowed; delsp=yes\nAuthentication-Results: x; dkim=pass\n\na \nb"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		p, ok := parse(raw)
		if !ok {
			return
		}
		if !utf8.ValidString(p.text) || strings.ContainsRune(p.text, 0) || len(p.text) > maxText {
			t.Errorf("text cannot be stored: %q", p.text)
		}
		for _, file := range p.files {
			if !clean(file.name) || file.name == "" || strings.ContainsAny(file.name, `/\`) || !clean(file.kind) || file.size < 0 {
				t.Errorf("file %q %q %d", file.name, file.kind, file.size)
			}
		}
		_ = p.automated("a@b", "a@b", nil)
		_ = p.header.from()
		_, _ = authResults(p.header.get("authentication-results"), "x")
	})
}

func FuzzReferences(f *testing.F) {
	f.Add("<a@b> <c@d>", "<e@f>")
	f.Fuzz(func(t *testing.T, references, inReplyTo string) {
		ids := referredTo(header{{"references", references}, {"in-reply-to", inReplyTo}})
		seen := map[string]bool{}
		for _, id := range ids {
			if seen[id] || !clean(id) || len(id) > 998 || id[0] != '<' || id[len(id)-1] != '>' {
				t.Errorf("id %q", id)
			}
			seen[id] = true
		}
		if len(ids) > maxMailIDs {
			t.Errorf("%d ids", len(ids))
		}
	})
}

func TestReferencesNewestFirst(t *testing.T) {
	got := referredTo(header{{"references", "<1@x> <2@x>\t<3@x>"}, {"in-reply-to", "<3@x> (his mail) <4@x>"}})
	if want := "<3@x> <4@x> <2@x> <1@x>"; strings.Join(got, " ") != want {
		t.Errorf("%v, want %s", got, want)
	}
}
