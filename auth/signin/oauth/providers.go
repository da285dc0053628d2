package oauth

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/kitbackend/kit/secrets"
)

// OpenID is a provider that publishes its configuration (OpenID Connect
// Discovery 1.0) under its issuer, such as a Keycloak realm or an Okta domain.
func OpenID(id, issuer, clientID string, clientSecret secrets.Value) Provider {
	return Provider{
		ID: id, Issuer: issuer, ClientID: clientID, ClientSecret: clientSecret,
		Scopes: []string{"openid", "email", "profile"},
	}
}

// Google is Sign in with Google. Set Require["hd"] to admit one organization alone, and
// Parameters["access_type"] to "offline" for refresh tokens.
func Google(clientID string, clientSecret secrets.Value) Provider {
	return Provider{
		ID: "google", Issuer: "https://accounts.google.com", ClientID: clientID, ClientSecret: clientSecret,
		AuthorizeURL: "https://accounts.google.com/o/oauth2/v2/auth",
		TokenURL:     "https://oauth2.googleapis.com/token",
		KeysURL:      "https://www.googleapis.com/oauth2/v3/certs",
		Scopes:       []string{"openid", "email", "profile"},
		Parameters:   map[string]string{"include_granted_scopes": "true"},
	}
}

// AppleKey is the key that Sign in with Apple gives a developer, a .p8 file.
type AppleKey struct {
	TeamID, KeyID string
	// PEM is the private key, PKCS #8 of the curve P-256.
	PEM secrets.Value
}

// appleSecretLife is how long a client secret made from the key is valid; Apple accepts up to six
// months.
const appleSecretLife = 5 * time.Minute

// Apple is Sign in with Apple. The client id is that of the service; list the
// bundle ids of native apps as Audiences. Apple sends a user's name at their first sign-in alone,
// in a posted form that is not signed: it is used for the name of a new user and for nothing else.
func Apple(clientID string, key AppleKey) Provider {
	return Provider{
		ID: "apple", Issuer: "https://appleid.apple.com", ClientID: clientID,
		AuthorizeURL: "https://appleid.apple.com/auth/authorize",
		TokenURL:     "https://appleid.apple.com/auth/token",
		KeysURL:      "https://appleid.apple.com/auth/keys",
		Scopes:       []string{"openid", "email", "name"},
		FormPost:     true,
		hashedNonce:  true,
		secret:       func(now time.Time) (string, error) { return key.secret(clientID, now) },
	}
}

// secret signs the client secret of Apple's token endpoint: a JWT with ES256.
func (k AppleKey) secret(clientID string, now time.Time) (string, error) {
	block, _ := pem.Decode([]byte(k.PEM.Reveal()))
	if block == nil {
		return "", errors.New("the key is no PEM")
	}
	parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return "", errors.New("the key is no PKCS #8")
	}
	key, ok := parsed.(*ecdsa.PrivateKey)
	if !ok || key.Curve != elliptic.P256() {
		return "", errors.New("the key is not of the curve P-256")
	}
	claims, err := json.Marshal(map[string]any{
		"iss": k.TeamID, "sub": clientID, "aud": "https://appleid.apple.com",
		"iat": now.Unix(), "exp": now.Add(appleSecretLife).Unix(),
	})
	if err != nil {
		return "", err
	}
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: key}, new(jose.SignerOptions).WithHeader("kid", k.KeyID))
	if err != nil {
		return "", err
	}
	signed, err := signer.Sign(claims)
	if err != nil {
		return "", err
	}
	return signed.CompactSerialize()
}

// GitHub is sign-in with GitHub. The address is the user's primary one if GitHub has verified it.
func GitHub(clientID string, clientSecret secrets.Value) Provider {
	return Provider{
		ID: "github", ClientID: clientID, ClientSecret: clientSecret,
		AuthorizeURL: "https://github.com/login/oauth/authorize",
		TokenURL:     "https://github.com/login/oauth/access_token",
		UserInfoURL:  "https://api.github.com/user",
		Scopes:       []string{"read:user", "user:email"},
		Fields:       Fields{Subject: "id", Image: "avatar_url"},
		complete:     completeGitHub,
	}
}

// completeGitHub takes the address from the user's list of addresses: that of the public profile
// does not say whether it is verified.
func completeGitHub(known claims, get func(address string, into any) error) error {
	var addresses []struct {
		Email             string
		Primary, Verified bool
	}
	if err := get("https://api.github.com/user/emails", &addresses); err != nil {
		return err
	}
	delete(known, "email")
	for _, address := range addresses {
		if address.Primary {
			known["email"], known["email_verified"] = address.Email, address.Verified
		}
	}
	if known.text("name") == "" {
		known["name"] = known.text("login")
	}
	return nil
}

// microsoftConsumers is the tenant of personal Microsoft accounts.
const microsoftConsumers = "9188040d-6c67-4c5b-b112-36a304b66dad"

// Microsoft is sign-in with Microsoft Entra ID. The tenant is the GUID of one organization, or
// common, organizations or consumers. The administrators of any tenant can put any address into a
// token, so an address counts as verified only with the optional claim xms_edov, which the
// application can request; for the tenant of your own company see EmailTrust.
func Microsoft(tenant, clientID string, clientSecret secrets.Value) Provider {
	base := "https://login.microsoftonline.com/"
	issuer := base + tenantPart + "/v2.0"
	if tenantID.MatchString(tenant) {
		issuer = base + tenant + "/v2.0"
	}
	return Provider{
		ID: "microsoft", Issuer: issuer, ClientID: clientID, ClientSecret: clientSecret,
		AuthorizeURL: base + tenant + "/oauth2/v2.0/authorize",
		TokenURL:     base + tenant + "/oauth2/v2.0/token",
		KeysURL:      base + tenant + "/discovery/v2.0/keys",
		Scopes:       []string{"openid", "email", "profile"},
		Fields:       Fields{EmailVerified: "xms_edov"},
		check: func(known claims) error {
			consumer := known.text("tid") == microsoftConsumers
			if tenant == "organizations" && consumer || tenant == "consumers" && !consumer {
				return fmt.Errorf("its tenant is %.64q", known.text("tid"))
			}
			return nil
		},
		// By Microsoft's documentation, tenant and object together identify a user in all
		// applications.
		subject: func(known claims) string {
			if known.text("tid") == "" || known.text("oid") == "" {
				return ""
			}
			return known.text("tid") + "." + known.text("oid")
		},
	}
}

// Discord is sign-in with Discord.
func Discord(clientID string, clientSecret secrets.Value) Provider {
	return Provider{
		ID: "discord", ClientID: clientID, ClientSecret: clientSecret,
		AuthorizeURL: "https://discord.com/oauth2/authorize",
		TokenURL:     "https://discord.com/api/oauth2/token",
		UserInfoURL:  "https://discord.com/api/users/@me",
		Scopes:       []string{"identify", "email"},
		Fields:       Fields{Subject: "id", EmailVerified: "verified", Name: "global_name", Image: "avatar_url"},
		complete:     completeDiscord,
	}
}

func completeDiscord(known claims, _ func(string, any) error) error {
	if known.text("global_name") == "" {
		known["global_name"] = known.text("username")
	}
	avatar := known.text("avatar")
	if avatar == "" {
		return nil
	}
	kind := "png"
	if strings.HasPrefix(avatar, "a_") {
		kind = "gif"
	}
	known["avatar_url"] = "https://cdn.discordapp.com/avatars/" + known.text("id") + "/" + avatar + "." + kind
	return nil
}

// facebookGraph is the version of the Graph API.
const facebookGraph = "v24.0"

// Facebook is Facebook Login; native apps bring the ID tokens of Limited Login.
// Facebook does not say whether an address is verified, so none counts as verified.
func Facebook(clientID string, clientSecret secrets.Value) Provider {
	return Provider{
		ID: "facebook", Issuer: "https://www.facebook.com", ClientID: clientID, ClientSecret: clientSecret,
		AuthorizeURL: "https://www.facebook.com/" + facebookGraph + "/dialog/oauth",
		TokenURL:     "https://graph.facebook.com/" + facebookGraph + "/oauth/access_token",
		KeysURL:      "https://limited.facebook.com/.well-known/oauth/openid/jwks/",
		UserInfoURL:  "https://graph.facebook.com/" + facebookGraph + "/me?fields=id,name,email,picture",
		Scopes:       []string{"email", "public_profile"},
		EmailTrust:   EmailNeverVerified,
		complete: func(known claims, _ func(string, any) error) error {
			known["sub"], known["picture"] = known.text("id"), known.text("picture.data.url")
			return nil
		},
	}
}
