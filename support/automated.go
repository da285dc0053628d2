package support

import (
	"regexp"
	"strings"
)

// machines matches the local parts of mailboxes that no person reads.
var machines = regexp.MustCompile(`^(mailer-daemon|postmaster|no-?_?\.?reply|do-?not-?reply|bounces?|listserv|majordomo)([+._-].*)?$`)

// automated reports whether a mail was sent by a program. It reads the values of header fields,
// because presence alone proves nothing: "Auto-Submitted: no" marks a mail of a person.
func (p *parsed) automated(envelopeFrom, fromKey string, own map[string]bool) bool {
	h := p.header
	word := func(name string) string {
		text, _, _ := strings.Cut(strings.ToLower(h.get(name)), ";")
		text, _, _ = strings.Cut(text, "(")
		return strings.TrimSpace(text)
	}
	if auto := word("auto-submitted"); auto != "" && auto != "no" {
		return true
	}
	switch word("precedence") {
	case "bulk", "junk", "list", "auto_reply":
		return true
	}
	for _, name := range []string{"list-id", "x-autoreply", "x-autorespond", "x-autoresponder", "x-auto-response-from", "x-failed-recipients"} {
		if h.has(name) {
			return true
		}
	}
	// Replies of support carry X-Auto-Response-Suppress too, although a person writes them.
	if h.has("x-auto-response-suppress") && word("auto-submitted") != "no" {
		return true
	}
	local, _, _ := strings.Cut(fromKey, "@")
	return p.report || envelopeFrom == "" || own[fromKey] || machines.MatchString(local)
}

// fromMachine reports whether a mail server sent the mail.
func (p *parsed) fromMachine() bool {
	local, _, _ := strings.Cut(strings.ToLower(p.header.from().address), "@")
	return local == "" || local == "mailer-daemon" || local == "postmaster"
}
