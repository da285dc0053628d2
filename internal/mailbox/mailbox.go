// Package mailbox reads e-mail addresses. It is separate from package email, so that a program that
// only compares addresses does not link a mail client.
package mailbox

import (
	"errors"
	"net/mail"
	"regexp"
	"strings"
	"unicode/utf8"

	"golang.org/x/net/idna"
	"golang.org/x/text/unicode/norm"
)

// Bounds of an address in bytes (RFC 5321, section 4.5.3.1).
const (
	maxAddress = 254
	maxLocal   = 64
)

// ErrInvalid is returned for text that is not an address, or one of a form that the kit does not
// send mail to.
var ErrInvalid = errors.New("no e-mail address")

// localForm is the dot-string of RFC 5321: no quoted local parts.
var localForm = regexp.MustCompile("^[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+(\\.[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+)*$")

// Address is a parsed mailbox.
type Address struct {
	// Name is the display name, or "".
	Name string
	// Spec is the address as sent over SMTP: the local part as written, the domain in ASCII.
	Spec string
	// Key identifies the mailbox; see [Canonical].
	Key string
}

// Domain returns the part of Spec after the @.
func (a Address) Domain() string { return a.Spec[strings.LastIndexByte(a.Spec, '@')+1:] }

// Canonical returns the Key of an address: Unicode normalized, lower case, the domain in its ASCII
// form. It keeps plus tags and dots, which name other mailboxes. Its errors are those of [Parse].
func Canonical(text string) (string, error) {
	a, err := Parse(text)
	return a.Key, err
}

// Parse reads "ada@example.com" or "Ada <ada@example.com>". Its error is
// [ErrInvalid], or that of the parser that refused the text.
func Parse(text string) (Address, error) {
	if len(text) > 2*maxAddress || !Plain(text) {
		return Address{}, ErrInvalid
	}
	parsed, err := mail.ParseAddress(norm.NFC.String(strings.TrimSpace(text)))
	if err != nil {
		return Address{}, err
	}
	at := strings.LastIndexByte(parsed.Address, '@')
	local, domain := parsed.Address[:at], parsed.Address[at+1:]
	if len(local) > maxLocal || !localForm.MatchString(local) || !Plain(parsed.Name) {
		return Address{}, ErrInvalid
	}
	domain, err = idna.Lookup.ToASCII(domain)
	switch {
	case err != nil:
		return Address{}, err
	case domain == "" || strings.HasSuffix(domain, ".") || strings.ContainsAny(domain, "[]:"):
		return Address{}, ErrInvalid
	}
	domain = strings.ToLower(domain)
	spec := local + "@" + domain
	if len(spec) > maxAddress {
		return Address{}, ErrInvalid
	}
	return Address{Name: parsed.Name, Spec: spec, Key: strings.ToLower(local) + "@" + domain}, nil
}

// Plain reports whether text may stand in a header: valid UTF-8 without
// controls, line separators, or characters that reorder what people read.
func Plain(text string) bool {
	if !utf8.ValidString(text) {
		return false
	}
	return !strings.ContainsFunc(text, func(r rune) bool {
		switch {
		case r < ' ', r >= 0x7f && r <= 0x9f: // C0, DEL, C1
		case r == 0x2028, r == 0x2029, r >= 0x202a && r <= 0x202e, r >= 0x2066 && r <= 0x2069:
		default:
			return false
		}
		return true
	})
}
