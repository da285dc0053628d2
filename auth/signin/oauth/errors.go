package oauth

import "errors"

// The reasons why a provider vouches for nobody.
var (
	// ErrUnreachable is a provider that is down, slow or overloaded: trying again
	// may help.
	ErrUnreachable = errors.New("oauth: the provider cannot be reached")
	// ErrRefused is a provider that says no, or something that it must not say.
	ErrRefused = errors.New("oauth: the provider refused")
	// ErrIDToken covers every reason not to believe an ID token.
	ErrIDToken = errors.New("oauth: the ID token does not verify")
	// ErrIssuerMissing and ErrIssuerMismatch are those of an authorization response
	// that names no issuer where the provider always does, or another one (RFC 9207).
	ErrIssuerMissing  = errors.New("oauth: the response names no issuer")
	ErrIssuerMismatch = errors.New("oauth: the response names another issuer")
)
