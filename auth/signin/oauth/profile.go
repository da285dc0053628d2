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

// Bounds of the facts of a user, in bytes.
const (
	maxName  = 256
	maxImage = 2048
)

// Identify returns the profile of the user to whom tokens belong: by the ID token, which must have
// the nonce of the request, if the provider has to send one, else by the user info. Its error is
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

// enriched adds the user info of the same subject to an ID token without an address, which
// providers may include there alone (OpenID Connect Core, 5.3).
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

// Describe returns the current profile of a user whose tokens were checked when they were received.
// Its errors are those of [Client.Identify].
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

// Native returns the profile in an ID token that a client brought, with the nonce that the client
// claims to have requested, or "". The provider has an Issuer. Native accepts the same token again:
// the caller must accept each once, for [NativeLife]. Its errors are those of [Client.Identify].
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

// IssuerOf returns the issuer that vouches for the subject of a profile.
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

// displayName returns a name from a provider in one line of bounded length.
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
