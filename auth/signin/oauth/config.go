package oauth

import (
	"cmp"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/internal/local"
)

var (
	providerID = regexp.MustCompile(`^[a-z][a-z0-9-]{0,31}$`)
	tenantID   = regexp.MustCompile(`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)
)

// reservedParameters belong to the flow.
var reservedParameters = []string{
	"client_id", "client_secret", "redirect_uri", "response_type", "response_mode", "scope", "state", "nonce",
	"code_challenge", "code_challenge_method", "request", "request_uri",
}

// Reserved reports whether a parameter of the authorization request belongs to the
// flow, so that neither Parameters nor clients may set it.
func Reserved(parameter string) bool { return slices.Contains(reservedParameters, parameter) }

func (p Provider) withDefaults() Provider {
	p.Fields = Fields{
		Subject: cmp.Or(p.Fields.Subject, "sub"), Email: cmp.Or(p.Fields.Email, "email"),
		EmailVerified: cmp.Or(p.Fields.EmailVerified, "email_verified"),
		Name:          cmp.Or(p.Fields.Name, "name"), Image: cmp.Or(p.Fields.Image, "picture"),
	}
	return p
}

// addresses returns the URLs that the application has set.
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

// Validate checks the providers of a configuration.
func Validate(faults *capability.Faults, providers []Provider) {
	seen := map[string]bool{}
	for _, p := range providers {
		key := "providers[" + p.ID + "]"
		switch {
		case !providerID.MatchString(p.ID):
			faults.Add("providers.id", p.ID, "is not 1 to 32 lower-case letters, digits and hyphens", "choose a short name such as google")
		case seen[p.ID]:
			faults.Add(key, nil, "is given twice", "give each provider an id of its own")
		}
		seen[p.ID] = true
		if p.ClientID == "" {
			faults.Add(key+".clientId", nil, "is missing", "register the application at the provider")
		}
		p.validateEndpoints(faults, key)
		for _, name := range slices.Sorted(maps.Keys(p.Parameters)) {
			if Reserved(name) {
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

// tenantPart is the placeholder in an Issuer for the tenant that a token names.
const tenantPart = "{tenantid}"

// endpoint reports whether an address may be called: https, or http on this machine if plain is
// true.
func endpoint(address string, plain bool) bool {
	u, err := url.Parse(address)
	if err != nil || u.Host == "" || u.User != nil || u.Fragment != "" {
		return false
	}
	return u.Scheme == "https" || u.Scheme == "http" && plain && local.Host(u.Hostname())
}
