package email

import (
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

// localForm is the dot-string of RFC 5321: no quoted local parts.
var localForm = regexp.MustCompile("^[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+(\\.[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+)*$")

// address is a parsed mailbox.
type address struct {
	name string
	// spec is what goes on the wire: the local part as written, the domain in ASCII.
	spec string
	// key is what suppressions and limits compare.
	key string
}

// Canonical returns the form of an address that suppressions compare: Unicode
// normalised, lower case, the domain in its ASCII form. It keeps plus tags and
// dots, which name other mailboxes. Refuses with email/invalid_address.
func Canonical(text string) (string, error) {
	a, err := parseAddress(text)
	return a.key, err
}

// parseAddress reads "ada@example.com" or "Ada <ada@example.com>".
func parseAddress(text string) (address, error) {
	if len(text) > 2*maxAddress || !plain(text) {
		return address{}, ErrInvalidAddress
	}
	parsed, err := mail.ParseAddress(norm.NFC.String(strings.TrimSpace(text)))
	if err != nil {
		return address{}, ErrInvalidAddress.Because(err)
	}
	at := strings.LastIndexByte(parsed.Address, '@')
	local, domain := parsed.Address[:at], parsed.Address[at+1:]
	if len(local) > maxLocal || !localForm.MatchString(local) || !plain(parsed.Name) {
		return address{}, ErrInvalidAddress
	}
	domain, err = idna.Lookup.ToASCII(domain)
	if err != nil || domain == "" || strings.HasSuffix(domain, ".") || strings.ContainsAny(domain, "[]:") {
		return address{}, ErrInvalidAddress.Because(err)
	}
	domain = strings.ToLower(domain)
	spec := local + "@" + domain
	if len(spec) > maxAddress {
		return address{}, ErrInvalidAddress
	}
	return address{name: parsed.Name, spec: spec, key: strings.ToLower(local) + "@" + domain}, nil
}

func (a address) domain() string { return a.spec[strings.LastIndexByte(a.spec, '@')+1:] }

// plain reports whether text may stand in a header: valid UTF-8 without
// controls, line separators, or characters that reorder what people read.
func plain(text string) bool {
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
