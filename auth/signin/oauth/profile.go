package oauth

import (
	"context"
	"encoding/base64"
	"fmt"
	"maps"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/kitbackend/kit/internal/mailbox"
	"github.com/kitbackend/kit/internal/text"
)

// Bounds of what a provider says about a user, in bytes.
const (
	maxName  = 256
	maxImage = 2048
)

// Identify returns whose tokens these are: by the ID token with the nonce of
// the request where there has to be one, else by the user info. Its error is
// [ErrUnreachable], [ErrRefused] or [ErrIDToken].
func (c *Client) Identify(ctx context.Context, t Tokens, nonce string) (Profile, error) {
	if !c.wantsIDToken() {
		known, err := c.userInfo(ctx, t.Access)
		if err != nil {
			return Profile{}, err
		}
		return c.profile(known)
	}
	if t.ID == "" || nonce == "" {
		return Profile{}, fmt.Errorf("%w: there is none", ErrIDToken)
	}
	known, err := c.issuer.verify(ctx, idProof{idToken: t.ID, nonce: nonce, accessToken: t.Access})
	if err != nil {
		return Profile{}, err
	}
	return c.enriched(ctx, known, t.Access)
}

// enriched adds the user info of the same subject to an ID token that names no
// address: providers may tell it there alone (OpenID Connect Core, 5.3).
func (c *Client) enriched(ctx context.Context, known claims, accessToken string) (Profile, error) {
	m, err := c.issuer.endpoints(ctx)
	if err != nil {
		return Profile{}, err
	}
	if known.at(c.Fields.Email) == nil && m.userInfo != "" && accessToken != "" {
		more, err := c.userInfo(ctx, accessToken)
		if err != nil {
			return Profile{}, err
		}
		if more.text("sub") != known.text("sub") {
			return Profile{}, fmt.Errorf("%w: the user info is about another subject", ErrIDToken)
		}
		delete(known, c.Fields.EmailVerified) // it is about no address
		for name, value := range more {
			if _, given := known[name]; !given {
				known[name] = value
			}
		}
	}
	return c.profile(known)
}

func (c *Client) userInfo(ctx context.Context, accessToken string) (claims, error) {
	m, err := c.issuer.endpoints(ctx)
	if err != nil {
		return nil, err
	}
	known := claims{}
	if err := fetchJSON(ctx, c.http, m.userInfo, accessToken, &known); err != nil {
		return nil, err
	}
	if c.complete != nil {
		get := func(address string, into any) error { return fetchJSON(ctx, c.http, address, accessToken, into) }
		if err := c.complete(known, get); err != nil {
			return nil, err
		}
	}
	return known, nil
}

// Describe returns what the provider says about a user whose tokens were
// checked when they came. Its errors are those of [Client.Identify].
func (c *Client) Describe(ctx context.Context, t Tokens) (Profile, error) {
	m, err := c.issuer.endpoints(ctx)
	if err != nil {
		return Profile{}, err
	}
	known := claims{}
	if parts := strings.Split(t.ID, "."); len(parts) == 3 {
		payload, err := base64.RawURLEncoding.DecodeString(parts[1])
		if err != nil || decodeJSON(payload, &known) != nil {
			return Profile{}, ErrIDToken
		}
	}
	if m.userInfo != "" {
		more, err := c.userInfo(ctx, t.Access)
		if err != nil {
			return Profile{}, err
		}
		maps.Copy(known, more)
	}
	return c.profile(known)
}

// Native returns whom an ID token is about that a client brought, with the nonce
// that the client says it asked for, or "". The provider is one with an Issuer. The
// same token is good again: the caller takes each once, for [NativeLife]. Its
// errors are those of [Client.Identify].
func (c *Client) Native(ctx context.Context, idToken, nonce string) (Profile, error) {
	known, err := c.issuer.verify(ctx, idProof{idToken: idToken, nonce: nonce, native: true})
	if err != nil {
		return Profile{}, err
	}
	return c.profile(known)
}

// profile reads the facts of a user by the provider's names.
func (c *Client) profile(known claims) (Profile, error) {
	p := Profile{
		Subject: known.text(c.Fields.Subject), Email: known.text(c.Fields.Email),
		Name: known.text(c.Fields.Name), Image: known.text(c.Fields.Image), Claims: known,
	}
	if c.subject != nil {
		p.Subject = c.subject(known)
	}
	if canonical, err := mailbox.Canonical(p.Email); err == nil {
		p.Email = canonical
	} else {
		p.Email = ""
	}
	if p.Subject == "" || len(p.Subject) > maxSubject {
		return Profile{}, fmt.Errorf("%w: it names no subject of at most %d bytes", ErrRefused, maxSubject)
	}
	for name, value := range c.Require {
		if known.text(name) != value {
			return Profile{}, fmt.Errorf("%w: its %s is %.200q", ErrRefused, name, known.text(name))
		}
	}
	switch c.EmailTrust {
	case EmailAlwaysVerified:
		p.EmailVerified = p.Email != ""
	case EmailAsClaimed:
		p.EmailVerified = p.Email != "" && known.is(c.Fields.EmailVerified)
	case EmailNeverVerified:
	}
	p.Name = displayName(p.Name)
	if !isImage(p.Image) {
		p.Image = ""
	}
	return p, nil
}

func isImage(address string) bool {
	return strings.HasPrefix(address, "https://") && len(address) <= maxImage && utf8.ValidString(address) &&
		!strings.ContainsFunc(address, unicode.IsControl)
}

// IssuerOf names who vouches for the subject of a profile.
func (c *Client) IssuerOf(p Profile) string {
	if c.Issuer == "" {
		return "oauth:" + c.ID
	}
	return strings.ReplaceAll(c.Issuer, tenantPart, claims(p.Claims).text("tid"))
}

// DisplayName returns the name of a user, bounded as that of a [Profile]; of nil
// it is "".
func (u *PostedUser) DisplayName() string {
	if u == nil {
		return ""
	}
	return displayName(u.Name.FirstName + " " + u.Name.LastName)
}

// displayName makes a name of what a provider wrote: of bounded length, in one
// line.
func displayName(written string) string {
	name := strings.Map(func(r rune) rune {
		if text.Misleads(r) {
			return -1
		}
		return r
	}, written)
	if len(name) > maxName {
		name = name[:maxName]
	}
	return strings.TrimSpace(strings.ToValidUTF8(name, ""))
}
