package signin

import (
	"maps"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/kitbackend/kit/capability"
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

var (
	providerID = regexp.MustCompile(`^[a-z][a-z0-9-]{0,31}$`)
	tenantID   = regexp.MustCompile(`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)
)

// reservedParameters belong to the flow: Parameters and clients cannot set them.
var reservedParameters = []string{
	"client_id", "client_secret", "redirect_uri", "response_type", "response_mode", "scope", "state", "nonce",
	"code_challenge", "code_challenge_method", "request", "request_uri",
}

func (p Provider) withDefaults() Provider {
	if p.Fields.Subject == "" {
		p.Fields.Subject = "sub"
	}
	if p.Fields.Email == "" {
		p.Fields.Email = "email"
	}
	if p.Fields.EmailVerified == "" {
		p.Fields.EmailVerified = "email_verified"
	}
	if p.Fields.Name == "" {
		p.Fields.Name = "name"
	}
	if p.Fields.Image == "" {
		p.Fields.Image = "picture"
	}
	return p
}

// addresses are the URLs the application has set.
func (p Provider) addresses() []string {
	set := []string{strings.ReplaceAll(p.Issuer, tenantPart, "tenant"), p.AuthorizeURL, p.TokenURL, p.KeysURL, p.UserInfoURL}
	return slices.DeleteFunc(set, func(address string) bool { return address == "" })
}

// discovers reports whether an endpoint has to be found by discovery.
func (p Provider) discovers() bool {
	return p.Issuer != "" && (p.AuthorizeURL == "" || p.TokenURL == "" || p.KeysURL == "")
}

// wantsIDToken reports whether the response to a code must hold an ID token.
func (p Provider) wantsIDToken() bool { return p.Issuer != "" && slices.Contains(p.Scopes, "openid") }

// validateProviders checks the providers of a configuration.
func validateProviders(faults *capability.Faults, providers []Provider) {
	seen := map[string]bool{}
	for _, p := range providers {
		key := "providers[" + p.ID + "]"
		switch {
		case !providerID.MatchString(p.ID):
			faults.Add("providers.id", p.ID, "is not 1 to 32 lower-case letters, digits and hyphens", "choose a short name such as google")
		case p.ID == "credential":
			faults.Add(key, nil, "has the name of the sign-in by password", "choose another id")
		case seen[p.ID]:
			faults.Add(key, nil, "is given twice", "give each provider an id of its own")
		}
		seen[p.ID] = true
		if p.ClientID == "" {
			faults.Add(key+".clientId", nil, "is missing", "register the application at the provider")
		}
		p.validateEndpoints(faults, key)
		for _, name := range slices.Sorted(maps.Keys(p.Parameters)) {
			if slices.Contains(reservedParameters, name) {
				faults.Add(key+".parameters", name, "belongs to the flow itself", "leave it out")
			}
		}
		if p.secret != nil {
			if _, err := p.secret(time.Unix(0, 0)); err != nil {
				faults.Add(key+".key", nil, err.Error(), "give the key as downloaded, PEM of PKCS #8")
			}
		}
	}
}

func (p Provider) validateEndpoints(faults *capability.Faults, key string) {
	if p.Issuer == "" && (p.AuthorizeURL == "" || p.TokenURL == "" || p.UserInfoURL == "" && p.complete == nil) {
		faults.Add(key, nil, "has neither an issuer nor the URLs to authorize, for tokens and for user info", "set Issuer, or AuthorizeURL, TokenURL and UserInfoURL")
	}
	if strings.Contains(p.Issuer, tenantPart) && p.discovers() {
		faults.Add(key, nil, "has an issuer of many tenants, which cannot be discovered", "set AuthorizeURL, TokenURL and KeysURL")
	}
	if p.Issuer != "" && !p.wantsIDToken() && p.UserInfoURL == "" && p.complete == nil {
		faults.Add(key+".scopes", p.Scopes, "ask for no ID token", "add openid")
	}
	for _, address := range p.addresses() {
		if !endpoint(address, true) {
			faults.Add(key, address, "is not an https URL", "use https; plain http is for loopback addresses")
		}
	}
}

// tenantPart stands in an Issuer for the tenant a token names.
const tenantPart = "{tenantid}"

// endpoint reports whether an address may be asked: https, or http on this
// machine where that is allowed.
func endpoint(address string, local bool) bool {
	u, err := url.Parse(address)
	if err != nil || u.Host == "" || u.User != nil || u.Fragment != "" {
		return false
	}
	return u.Scheme == "https" || u.Scheme == "http" && local && loopback(u.Hostname())
}

func loopback(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.IsLoopback()
}
