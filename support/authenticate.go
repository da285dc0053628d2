package support

import (
	"bytes"
	"strings"

	"github.com/emersion/go-msgauth/dkim"
	"golang.org/x/net/publicsuffix"
)

// authenticity is whether a mail is proved, or disproved, to be from the domain of its From field.
type authenticity struct{ aligned, failed bool }

// maxSignatures bounds the DKIM signatures that are verified.
const maxSignatures = 3

// authenticate decides by the results of the operator's own mail server, or else by the signatures.
func (s *Support) authenticate(raw []byte, h header, from sender, fromKey string) (a authenticity) {
	_, domain, ok := strings.Cut(fromKey, "@")
	if !ok || !from.single {
		return a
	}
	cfg := s.cfg.Authentication
	if cfg.ServerID != "" {
		for _, f := range h {
			if f.name != "authentication-results" {
				continue
			}
			if results, ours := authResults(f.value, cfg.ServerID); ours {
				a = judge(results, domain)
				break // later ones may be forged
			}
		}
	}
	if cfg.DKIM && !a.aligned && !a.failed {
		a.aligned = s.signed(raw, h, domain)
	}
	return a
}

// signed verifies the DKIM signatures. One that covers only a part of the body proves nothing about
// the rest.
func (s *Support) signed(raw []byte, h header, domain string) bool {
	for _, f := range h {
		if f.name == "dkim-signature" && partial(f.value) {
			return false
		}
	}
	if !h.has("dkim-signature") {
		return false
	}
	verifications, _ := dkim.VerifyWithOptions(bytes.NewReader(crlf(raw)), &dkim.VerifyOptions{
		LookupTXT: s.cfg.Authentication.LookupTXT, MaxVerifications: maxSignatures,
	})
	for _, v := range verifications {
		if v != nil && v.Err == nil && aligned(v.Domain, domain) {
			return true
		}
	}
	return false
}

// partial reports whether a signature has the tag l.
func partial(signature string) bool {
	for tag := range strings.SplitSeq(signature, ";") {
		name, _, _ := strings.Cut(tag, "=")
		if strings.TrimSpace(name) == "l" {
			return true
		}
	}
	return false
}

// crlf ends every line with CRLF, as the signer saw it.
func crlf(raw []byte) []byte {
	if !bytes.Contains(raw, []byte("\n")) || bytes.Contains(raw, []byte("\r\n")) {
		return raw
	}
	return bytes.ReplaceAll(raw, []byte("\n"), []byte("\r\n"))
}

// aligned compares organizational domains (RFC 7489, section 3.1).
func aligned(proved, from string) bool {
	proved, from = strings.ToLower(strings.Trim(proved, ".")), strings.ToLower(from)
	if proved == from {
		return proved != ""
	}
	a, err := publicsuffix.EffectiveTLDPlusOne(proved)
	if err != nil {
		return false
	}
	b, err := publicsuffix.EffectiveTLDPlusOne(from)
	return err == nil && a == b
}

// authResult is one method of an Authentication-Results field.
type authResult struct {
	method, value string
	properties    map[string]string
}

// authResults reads a field of RFC 8601; ours is false if another server wrote it. Comments are
// removed first, because they may contain anything. A field with a quoted string or a backslash is
// ours but has no results, because a sender can choose the quoted text.
func authResults(value, serverID string) (results []authResult, ours bool) {
	text, ok := withoutComments(value)
	parts := strings.Split(text, ";")
	head := strings.Fields(parts[0])
	if len(head) == 0 || !strings.EqualFold(head[0], serverID) {
		return nil, false
	}
	if !ok || strings.ContainsAny(text, `"\`) {
		return nil, true
	}
	for _, part := range parts[1:] {
		words := strings.Fields(strings.ReplaceAll(strings.ReplaceAll(part, " =", "="), "= ", "="))
		if len(words) == 0 {
			continue
		}
		method, result, _ := strings.Cut(strings.ToLower(words[0]), "=")
		r := authResult{method: method, value: result, properties: make(map[string]string)}
		for _, word := range words[1:] {
			if name, value, ok := strings.Cut(word, "="); ok {
				r.properties[strings.ToLower(name)] = strings.ToLower(value)
			}
		}
		results = append(results, r)
	}
	return results, true
}

// withoutComments removes parenthesized text; ok is false if the parentheses do not match.
func withoutComments(value string) (text string, ok bool) {
	var out strings.Builder
	depth := 0
	for _, c := range value {
		switch {
		case c == '(':
			depth++
		case c == ')':
			if depth--; depth < 0 {
				return out.String(), false
			}
			out.WriteByte(' ')
		case depth == 0:
			out.WriteRune(c)
		}
	}
	return out.String(), depth == 0
}

// judge compares the domains that passed with the domain of From. A failed DMARC overrides all
// others.
func judge(results []authResult, domain string) (a authenticity) {
	for _, r := range results {
		proved := ""
		switch r.method {
		case "dmarc":
			if r.value == "fail" {
				return authenticity{failed: true}
			}
			proved = r.properties["header.from"]
		case "dkim":
			proved = r.properties["header.d"]
			if proved == "" {
				proved = afterAt(r.properties["header.i"])
			}
		case "spf":
			proved = afterAt(r.properties["smtp.mailfrom"])
		}
		if r.value == "pass" && aligned(proved, domain) {
			a.aligned = true
		}
	}
	return a
}

func afterAt(address string) string { return address[strings.LastIndexByte(address, '@')+1:] }
