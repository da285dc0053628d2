package support

import (
	"regexp"
	"strings"
)

// machines are the local parts of mailboxes that no person reads.
var machines = regexp.MustCompile(`^(mailer-daemon|postmaster|no-?_?\.?reply|do-?not-?reply|bounces?|listserv|majordomo)([+._-].*)?$`)

// automated reports whether a program sent a mail. It looks at values where
// their mere presence says nothing: "Auto-Submitted: no" is a person's.
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
	// Ours carry X-Auto-Response-Suppress too, and a person writes them.
	if h.has("x-auto-response-suppress") && word("auto-submitted") != "no" {
		return true
	}
	local, _, _ := strings.Cut(fromKey, "@")
	return p.report || envelopeFrom == "" || own[fromKey] || machines.MatchString(local)
}

// fromMachine reports whether the mailbox of a mail server wrote.
func (p *parsed) fromMachine() bool {
	local, _, _ := strings.Cut(strings.ToLower(p.header.from().address), "@")
	return local == "" || local == "mailer-daemon" || local == "postmaster"
}
