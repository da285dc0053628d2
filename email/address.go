package email

import "github.com/kitbackend/kit/internal/mailbox"

// address is a parsed mailbox.
type address struct {
	name string
	// spec is the address for SMTP and headers: the local part as written, the domain in ASCII.
	spec string
	// key is the form that suppressions and limits compare.
	key string
}

// Canonical returns the form of an address that suppressions compare: Unicode normalized, lower
// case, the domain in its ASCII form. It keeps plus tags and dots, which may name different
// mailboxes. Refuses with email/invalid_address.
func Canonical(text string) (string, error) {
	a, err := parseAddress(text)
	return a.key, err
}

// parseAddress reads "ada@example.com" or "Ada <ada@example.com>".
func parseAddress(text string) (address, error) {
	a, err := mailbox.Parse(text)
	if err != nil {
		return address{}, ErrInvalidAddress.Because(err)
	}
	return address{name: a.Name, spec: a.Spec, key: a.Key}, nil
}

func (a address) domain() string { return mailbox.Address{Spec: a.spec}.Domain() }

// plain reports whether text is valid in a header.
func plain(text string) bool { return mailbox.Plain(text) }
