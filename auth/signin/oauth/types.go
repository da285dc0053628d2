package oauth

import (
	"net/http"
	"time"

	"github.com/kitbackend/kit/secrets"
)

// Provider is an OAuth 2.0 or OpenID Connect provider that users may sign in
// with, as data. [Google], [Apple], [GitHub], [Microsoft], [Discord] and
// [Facebook] make the known ones, [OpenID] any that publishes its configuration; the fields they
// set may be changed.
//
// At the provider the redirect address to register is
// {base URL}/auth/callback/{ID}.
type Provider struct {
	// ID names the provider in paths, bodies and rows: 1 to 32 lower-case
	// letters, digits and hyphens, a letter first. It must never change.
	ID string
	// ClientID and ClientSecret are the application's credentials at the provider.
	ClientID     string
	ClientSecret secrets.Value
	// SecretInHeader sends the secret as HTTP Basic (RFC 6749, 2.3.1) where the
	// provider publishes no preference; by default it is sent in the form.
	SecretInHeader bool

	// Issuer makes it an OpenID Connect provider: its ID tokens are accepted if they name exactly
	// this issuer. The part {tenantid} is replaced by the token's own claim tid.
	Issuer string
	// AuthorizeURL, TokenURL, KeysURL and UserInfoURL are the endpoints. With an
	// Issuer those left empty are found by discovery.
	AuthorizeURL, TokenURL, KeysURL, UserInfoURL string
	// Scopes are requested at every sign-in. With "openid" among them the response to a code must
	// hold an ID token; without it the user is read from UserInfoURL.
	Scopes []string
	// Parameters are added to the authorization request, such as prompt.
	Parameters map[string]string
	// FormPost makes the provider respond with a posted form instead of a redirect.
	FormPost bool
	// Audiences are further client ids, those of the application's native apps,
	// whose ID tokens POST /sign-in/social takes.
	Audiences []string
	// Require lists members that an ID token or the user info must have with
	// exactly this value, such as hd, the organization of a Google account.
	Require map[string]string

	// Fields names the members that hold the facts of a user.
	Fields Fields
	// EmailTrust says when the address of a user counts as verified.
	EmailTrust EmailTrust
	// NoSignUp refuses users who have not signed up another way.
	NoSignUp bool
	// ExplicitSignUp creates users only for requests with requestSignUp.
	ExplicitSignUp bool

	// secret makes a new client secret for every request.
	secret func(now time.Time) (string, error)
	// complete adds claims to the user info; get fetches further JSON from the provider with the
	// user's access token.
	complete func(known claims, get func(address string, into any) error) error
	// check refuses ID tokens by rules of the provider.
	check func(claims) error
	// subject returns the subject of the claims if it is not one member.
	subject func(claims) string
	// hashedNonce accepts a native nonce that the app hashed before it sent it to the provider.
	hashedNonce bool
}

// Fields names the members of an ID token or of the user info that hold the facts of a user; a dot
// descends into an object. The defaults are those of OpenID Connect: sub, email, email_verified,
// name, picture.
type Fields struct{ Subject, Email, EmailVerified, Name, Image string }

// EmailTrust says when an address from a provider counts as verified. Only a verified address links
// an account to an existing user.
type EmailTrust int

const (
	// EmailAsClaimed trusts the claim of the provider; it is the default.
	EmailAsClaimed EmailTrust = iota
	// EmailNeverVerified is for providers whose users choose any address.
	EmailNeverVerified
	// EmailAlwaysVerified is for providers that have only verified addresses and do not say so,
	// such as a company's own.
	EmailAlwaysVerified
)

// Network configures how a client reaches its provider.
type Network struct {
	// Transport sends the requests; nil dials, private addresses only for hosts
	// that the application has named itself.
	Transport http.RoundTripper
	// Timeout bounds a request; 0 is 10 seconds.
	Timeout time.Duration
}

// Authorization holds the parameters of one authorization request.
type Authorization struct {
	// State and Nonce are returned with the user, Verifier is sent with the code (PKCE), Redirect
	// is the address to which the browser returns.
	State, Nonce, Verifier, Redirect string
	// Scopes are requested in addition to those of the provider.
	Scopes []string
	// Parameters are added to those of the provider; none of them is [Reserved].
	Parameters map[string]string
	LoginHint  string
}

// Tokens are the tokens of a user from a provider. Their JSON is stored sealed.
type Tokens struct {
	Access  string `json:"access,omitempty"`
	Refresh string `json:"refresh,omitempty"`
	ID      string `json:"id,omitempty"`
	// ExpiresAt is when the access token expires; zero if the provider does not say.
	ExpiresAt time.Time `json:"expiresAt,omitzero"`
	Scopes    []string  `json:"scopes,omitempty"`
}

// Profile holds the facts of a user from a provider: a subject of at most 255 bytes, a canonical
// address or none, a name in one line of at most 256 bytes, an https URL of at most 2048 bytes or
// none.
type Profile struct {
	Subject       string
	Email         string
	EmailVerified bool
	Name, Image   string
	// Claims are the members as the provider sent them.
	Claims map[string]any
}

// PostedUser is the user in the form that Apple posts at the first sign-in.
type PostedUser struct {
	Name struct {
		FirstName string `json:"firstName"`
		LastName  string `json:"lastName"`
	} `json:"name"`
}
