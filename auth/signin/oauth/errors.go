package oauth

import "errors"

// The errors of a sign-in at a provider.
var (
	// ErrUnreachable reports a provider that is down, slow or overloaded: a retry may succeed.
	ErrUnreachable = errors.New("oauth: the provider cannot be reached")
	// ErrRefused reports a provider that refused, or whose response is not valid.
	ErrRefused = errors.New("oauth: the provider refused")
	// ErrIDToken reports an ID token that does not verify, for any reason.
	ErrIDToken = errors.New("oauth: the ID token does not verify")
	// ErrIssuerMissing and ErrIssuerMismatch report an authorization response that names no issuer
	// although the provider always does, or that names another one (RFC 9207).
	ErrIssuerMissing  = errors.New("oauth: the response names no issuer")
	ErrIssuerMismatch = errors.New("oauth: the response names another issuer")
)
