package oauth

import (
	"net/http"
	"time"

	"github.com/kitbackend/kit/secrets"
)

// Provider is an OAuth 2.0 or OpenID Connect provider that users may sign in
// with, as data. [Google], [Apple], [GitHub], [Microsoft], [Discord] and
// [Facebook] make the known ones, [OpenID] any that publishes its
// configuration; whatever they set may be changed after.
//
// At the provider the redirect address to register is
// {base URL}/auth/callback/{ID}.
type Provider struct {
	// ID names the provider in paths, bodies and rows: 1 to 32 lower-case
	// letters, digits and hyphens, a letter first. It must stay what it is.
	ID string
	// ClientID and ClientSecret are what the provider knows this application by.
	ClientID     string
	ClientSecret secrets.Value
	// SecretInHeader sends the secret as HTTP Basic (RFC 6749, 2.3.1) where the
	// provider publishes no preference; by default it is sent in the form.
	SecretInHeader bool

	// Issuer makes it an OpenID Connect provider: its ID tokens are trusted when
	// they name exactly this issuer. The part {tenantid} stands for the token's
	// own claim tid.
	Issuer string
	// AuthorizeURL, TokenURL, KeysURL and UserInfoURL are the endpoints. With an
	// Issuer those left empty are found by discovery.
	AuthorizeURL, TokenURL, KeysURL, UserInfoURL string
	// Scopes are asked for at every sign-in. With "openid" among them the response
	// to a code must hold an ID token, else UserInfoURL says who it is.
	Scopes []string
	// Parameters are added to the authorization request, such as prompt.
	Parameters map[string]string
	// FormPost has the provider respond with a form instead of a redirect.
	FormPost bool
	// Audiences are further client ids, those of the application's native apps,
	// whose ID tokens POST /sign-in/social takes.
	Audiences []string
	// Require lists members that an ID token or the user info must have with
	// exactly this value, such as hd, the organisation of a Google account.
	Require map[string]string

	// Fields says where the provider writes the facts of a user.
	Fields Fields
	// EmailTrust says when the address of a user counts as verified.
	EmailTrust EmailTrust
	// NoSignUp keeps users out who have not signed up another way.
	NoSignUp bool
	// ExplicitSignUp creates users only for requests with requestSignUp.
	ExplicitSignUp bool

	// secret makes the client secret anew for every request.
	secret func(now time.Time) (string, error)
	// complete adds to what the user info says, with get asking the provider for
	// further JSON in the name of the user.
	complete func(known claims, get func(address string, into any) error) error
	// check refuses ID tokens for reasons of the provider's own.
	check func(claims) error
	// subject returns who the claims are about, where that is not one member.
	subject func(claims) string
	// hashedNonce takes a native nonce that was hashed by the app before it
	// reached the provider.
	hashedNonce bool
}

// Fields names the members of an ID token or of the user info that hold the
// facts of a user; a dot goes one object deeper. Empty ones are those of OpenID
// Connect: sub, email, email_verified, name, picture.
type Fields struct{ Subject, Email, EmailVerified, Name, Image string }

// EmailTrust says when an address that a provider tells counts as verified.
// Only a verified address links an account to a user who is there already.
type EmailTrust int

const (
	// EmailAsClaimed is the default: when the provider says so.
	EmailAsClaimed EmailTrust = iota
	// EmailNeverVerified is for providers whose users choose any address.
	EmailNeverVerified
	// EmailAlwaysVerified is for providers that hold only addresses they have
	// verified and do not say so, such as a company's own.
	EmailAlwaysVerified
)

// Network is how a client reaches its provider.
type Network struct {
	// Transport sends the requests; nil dials, private addresses only for hosts
	// that the application has named itself.
	Transport http.RoundTripper
	// Timeout bounds a request; 0 is 10 seconds.
	Timeout time.Duration
}

// Authorization is what one request to sign in asks of the provider.
type Authorization struct {
	// State and Nonce come back with the user, Verifier is told with the code
	// (PKCE), Redirect is where the browser comes back to.
	State, Nonce, Verifier, Redirect string
	// Scopes are asked for in addition to those of the provider.
	Scopes []string
	// Parameters are added to those of the provider; none of them is [Reserved].
	Parameters map[string]string
	LoginHint  string
}

// Tokens are what a provider gave for a user. Their JSON is what is kept, sealed.
type Tokens struct {
	Access  string `json:"access,omitempty"`
	Refresh string `json:"refresh,omitempty"`
	ID      string `json:"id,omitempty"`
	// ExpiresAt is when the access token ends; zero: it does not say.
	ExpiresAt time.Time `json:"expiresAt,omitzero"`
	Scopes    []string  `json:"scopes,omitempty"`
}

// Profile is what a provider says about a user: a subject of at most 255 bytes, a
// canonical address or none, a name in one line of at most 256 bytes, an https
// URL of at most 2048 bytes or none.
type Profile struct {
	Subject       string
	Email         string
	EmailVerified bool
	Name, Image   string
	// Claims are the members as the provider wrote them.
	Claims map[string]any
}

// PostedUser is how Apple writes a user, once.
type PostedUser struct {
	Name struct {
		FirstName string `json:"firstName"`
		LastName  string `json:"lastName"`
	} `json:"name"`
}
