package oauth

import (
	"context"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"github.com/go-jose/go-jose/v4"

	"github.com/kitbackend/kit/internal/strictjson"
)

// Bounds of a provider's tokens and keys.
const (
	maxIDToken     = 16 << 10
	maxSubject     = 255 // OpenID Connect Core, 2
	maxIssuerKeys  = 100
	maxNativeAge   = time.Hour
	idTokenLeeway  = 5 * time.Minute // of a clock that runs fast there, or slow here
	discoveryPath  = "/.well-known/openid-configuration"
	defaultIDToken = oidc.RS256
)

// NativeLife is how long after its issue an ID token that a client brings is accepted.
const NativeLife = maxNativeAge + idTokenLeeway

// compactJWS is the one form an ID token has.
var compactJWS = regexp.MustCompile(`^[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+$`)

// signatures are the algorithms an ID token may be signed with where the
// provider says that it uses them: none with a shared secret.
var signatures = []jose.SignatureAlgorithm{
	jose.RS256, jose.RS384, jose.RS512, jose.PS256, jose.PS384, jose.PS512,
	jose.ES256, jose.ES384, jose.ES512, jose.EdDSA,
}

// metadata holds the endpoints, by discovery or as the application has set them.
type metadata struct {
	authorize, token, keys, userInfo string
	algorithms                       []string
	secretInHeader                   bool
	namesIssuer                      bool // in every response to an authorization request, RFC 9207
}

// issuer is the part of a provider that signs ID tokens.
type issuer struct {
	provider Provider
	http     *http.Client
	now      func() time.Time
	metadata *fetched[metadata]
	keys     *fetched[[]jose.JSONWebKey]
}

func newIssuer(p Provider, client *http.Client, now func() time.Time) *issuer {
	i := &issuer{provider: p, http: client, now: now}
	i.metadata = newFetched(now, i.discover)
	i.keys = newFetched(now, i.fetchKeys)
	return i
}

// endpoints returns the endpoints of the provider.
func (i *issuer) endpoints(ctx context.Context) (metadata, error) {
	if i.provider.discovers() {
		return i.metadata.get(ctx, func(metadata) bool { return true })
	}
	return i.configured(metadata{algorithms: []string{defaultIDToken}, secretInHeader: i.provider.SecretInHeader}), nil
}

// configured replaces discovered endpoints by those that the application has set.
func (i *issuer) configured(m metadata) metadata {
	for _, endpoint := range []struct {
		found *string
		set   string
	}{
		{&m.authorize, i.provider.AuthorizeURL}, {&m.token, i.provider.TokenURL},
		{&m.keys, i.provider.KeysURL}, {&m.userInfo, i.provider.UserInfoURL},
	} {
		if endpoint.set != "" {
			*endpoint.found = endpoint.set
		}
	}
	return m
}

// discover reads the provider's configuration (OpenID Connect Discovery 1.0, 4).
func (i *issuer) discover(ctx context.Context) (metadata, error) {
	var found claims
	if err := fetchJSON(ctx, i.http, strings.TrimSuffix(i.provider.Issuer, "/")+discoveryPath, "", &found); err != nil {
		return metadata{}, err
	}
	if found.text("issuer") != i.provider.Issuer {
		return metadata{}, fmt.Errorf("%w: its configuration is that of the issuer %.200q", ErrRefused, found.text("issuer"))
	}
	methods := found.texts("token_endpoint_auth_methods_supported")
	m := i.configured(metadata{
		authorize: found.text("authorization_endpoint"), token: found.text("token_endpoint"),
		keys: found.text("jwks_uri"), userInfo: found.text("userinfo_endpoint"),
		// Without the list the default is client_secret_basic.
		secretInHeader: i.provider.SecretInHeader || !slices.Contains(methods, "client_secret_post"),
		namesIssuer:    found.is("authorization_response_iss_parameter_supported"),
	})
	for _, algorithm := range found.texts("id_token_signing_alg_values_supported") {
		if slices.Contains(signatures, jose.SignatureAlgorithm(algorithm)) {
			m.algorithms = append(m.algorithms, algorithm)
		}
	}
	if len(m.algorithms) == 0 {
		m.algorithms = []string{defaultIDToken}
	}
	local := strings.HasPrefix(i.provider.Issuer, "http:")
	for _, address := range []string{m.authorize, m.token, m.keys} {
		if !endpoint(address, local) {
			return metadata{}, fmt.Errorf("%w: its configuration names the endpoint %.200q", ErrRefused, address)
		}
	}
	if m.userInfo != "" && !endpoint(m.userInfo, local) {
		return metadata{}, fmt.Errorf("%w: its configuration names the endpoint %.200q", ErrRefused, m.userInfo)
	}
	return m, nil
}

// fetchKeys reads the keys the provider signs with, those of other uses and of
// unknown kinds left out (RFC 7517, 5).
func (i *issuer) fetchKeys(ctx context.Context) ([]jose.JSONWebKey, error) {
	m, err := i.endpoints(ctx)
	if err != nil {
		return nil, err
	}
	var set struct{ Keys []json.RawMessage }
	if err := fetchJSON(ctx, i.http, m.keys, "", &set); err != nil {
		return nil, err
	}
	if len(set.Keys) > maxIssuerKeys {
		return nil, fmt.Errorf("%w: it publishes %d keys", ErrRefused, len(set.Keys))
	}
	var keys []jose.JSONWebKey
	for _, raw := range set.Keys {
		var key jose.JSONWebKey
		if err := json.Unmarshal(raw, &key); err == nil && signs(key) {
			keys = append(keys, key)
		}
	}
	return keys, nil
}

func signs(key jose.JSONWebKey) bool {
	if key.Use != "" && key.Use != "sig" {
		return false
	}
	switch k := key.Key.(type) {
	case *rsa.PublicKey:
		return k.N.BitLen() >= 2048
	case *ecdsa.PublicKey, ed25519.PublicKey:
		return true
	}
	return false
}

// keySet holds the issuer's keys for one verification. It keeps an error of fetching them, because
// go-oidc would pass on the text alone.
type keySet struct {
	*issuer
	down error // why the keys could not be had
}

// VerifySignature implements [oidc.KeySet]. For an unknown key id it fetches the keys again, at
// most as often as fetched allows.
func (i *keySet) VerifySignature(ctx context.Context, raw string) ([]byte, error) {
	token, err := jose.ParseSignedCompact(raw, signatures)
	if err != nil {
		return nil, err
	}
	header := token.Signatures[0].Header
	fits := func(key jose.JSONWebKey) bool {
		return (header.KeyID == "" || key.KeyID == header.KeyID) && (key.Algorithm == "" || key.Algorithm == header.Algorithm)
	}
	keys, err := i.keys.get(ctx, func(keys []jose.JSONWebKey) bool { return slices.ContainsFunc(keys, fits) })
	if err != nil {
		i.down = err
		return nil, err
	}
	for _, key := range keys {
		if !fits(key) {
			continue
		}
		if payload, err := token.Verify(key); err == nil {
			return payload, nil
		}
	}
	return nil, errors.New("no key of the issuer verifies it")
}

// idProof is an ID token with the values it has to match.
type idProof struct {
	idToken string
	// nonce is that of the request. A native app may have sent none.
	nonce string
	// native says that the token came from a client instead of the token endpoint.
	native bool
	// accessToken was issued together with it; empty if there is none.
	accessToken string
}

// verify returns the claims of an ID token (OpenID Connect Core, 3.1.3.7), or
// an error that is ErrIDToken or ErrUnreachable.
func (i *issuer) verify(ctx context.Context, p idProof) (claims, error) {
	if len(p.idToken) > maxIDToken || !compactJWS.MatchString(p.idToken) {
		return nil, fmt.Errorf("%w: it is no compact JWS of at most %d bytes", ErrIDToken, maxIDToken)
	}
	m, err := i.endpoints(ctx)
	if err != nil {
		return nil, err
	}
	keys := &keySet{issuer: i}
	verifier := oidc.NewVerifier(i.provider.Issuer, keys, &oidc.Config{
		SupportedSigningAlgs: m.algorithms, Now: i.now,
		SkipClientIDCheck: true, // checkAudience is stricter
		SkipIssuerCheck:   true, // checkIssuer knows tenants
	})
	token, err := verifier.Verify(ctx, p.idToken)
	switch {
	case keys.down != nil:
		return nil, fmt.Errorf("%w: its keys: %w", ErrUnreachable, keys.down)
	case err != nil:
		return nil, fmt.Errorf("%w: %w", ErrIDToken, err)
	}
	known, err := claimsOf(token)
	if err != nil {
		return nil, err
	}
	for _, check := range []error{
		i.checkIssuer(known), i.checkAudience(token, known, p.native), i.checkAge(token, p.native), i.checkNonce(known, p), i.checkOwn(known),
	} {
		if check != nil {
			return nil, check
		}
	}
	if p.accessToken != "" && token.AccessTokenHash != "" {
		if err := token.VerifyAccessToken(p.accessToken); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrIDToken, err)
		}
	}
	return known, nil
}

// claimsOf reads the claims by their exact names, each given once.
func claimsOf(token *oidc.IDToken) (claims, error) {
	var payload json.RawMessage
	var known claims
	if err := token.Claims(&payload); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrIDToken, err)
	}
	if err := strictjson.Valid(payload); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrIDToken, err)
	}
	if err := decodeJSON(payload, &known); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrIDToken, err)
	}
	for _, name := range []string{"exp", "iat", "nbf"} {
		if value, given := known[name]; given {
			if _, number := value.(json.Number); !number { // RFC 7519, 2
				return nil, fmt.Errorf("%w: its %s is no number", ErrIDToken, name)
			}
		}
	}
	if known.text("sub") != token.Subject || known.text("iss") != token.Issuer {
		return nil, fmt.Errorf("%w: it names a claim in two ways", ErrIDToken)
	}
	return known, nil
}

func (i *issuer) checkIssuer(known claims) error {
	expected := i.provider.Issuer
	if strings.Contains(expected, tenantPart) {
		tenant := known.text("tid")
		if !tenantID.MatchString(tenant) {
			return fmt.Errorf("%w: it names no tenant", ErrIDToken)
		}
		expected = strings.ReplaceAll(expected, tenantPart, tenant)
	}
	if known.text("iss") != expected {
		return fmt.Errorf("%w: its issuer is %.200q", ErrIDToken, known.text("iss"))
	}
	if subject := known.text("sub"); subject == "" || len(subject) > maxSubject {
		return fmt.Errorf("%w: it has no subject of at most %d bytes", ErrIDToken, maxSubject)
	}
	return nil
}

// checkAudience requires every audience to be this application, and that the token is issued to it
// if there are several.
func (i *issuer) checkAudience(token *oidc.IDToken, known claims, native bool) error {
	ours := []string{i.provider.ClientID}
	if native {
		ours = append(ours, i.provider.Audiences...)
	}
	if len(token.Audience) == 0 {
		return fmt.Errorf("%w: it has no audience", ErrIDToken)
	}
	for _, audience := range token.Audience {
		if !slices.Contains(ours, audience) {
			return fmt.Errorf("%w: its audience is %.200q", ErrIDToken, audience)
		}
	}
	if len(token.Audience) > 1 && !slices.Contains(ours, known.text("azp")) {
		return fmt.Errorf("%w: its authorized party is %.200q", ErrIDToken, known.text("azp"))
	}
	return nil
}

func (i *issuer) checkAge(token *oidc.IDToken, native bool) error {
	age := i.now().Sub(token.IssuedAt)
	if age < -idTokenLeeway || native && age > maxNativeAge {
		return fmt.Errorf("%w: it was issued at %s", ErrIDToken, token.IssuedAt.UTC().Format(time.RFC3339))
	}
	return nil
}

// checkNonce requires the nonce of the request. A native token without one is accepted if the app
// requested none.
func (i *issuer) checkNonce(known claims, p idProof) error {
	_, carries := known["nonce"]
	if p.native && p.nonce == "" && !carries {
		return nil
	}
	same := func(nonce string) bool {
		return subtle.ConstantTimeCompare([]byte(known.text("nonce")), []byte(nonce)) == 1
	}
	if p.nonce != "" && same(p.nonce) {
		return nil
	}
	if p.nonce != "" && p.native && i.provider.hashedNonce {
		if hashed := sha256.Sum256([]byte(p.nonce)); same(hex.EncodeToString(hashed[:])) {
			return nil
		}
	}
	return fmt.Errorf("%w: its nonce is another one", ErrIDToken)
}

// checkOwn runs the checks of the provider's constructor.
func (i *issuer) checkOwn(known claims) error {
	if i.provider.check == nil {
		return nil
	}
	if err := i.provider.check(known); err != nil {
		return fmt.Errorf("%w: %w", ErrIDToken, err)
	}
	return nil
}
