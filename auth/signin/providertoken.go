package signin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/kitbackend/kit/auth"
	"github.com/kitbackend/kit/auth/signin/oauth"
	"github.com/kitbackend/kit/capability"
)

func (l *library) providerTokenRoutes() []route {
	return []route{
		post("/get-access-token", rateWrite, l.getAccessToken),
		post("/refresh-token", rateWrite, l.refreshToken),
		get("/account-info", rateWrite, l.accountInfo).reads(capability.Param{Name: "accountId", Summary: "The id of one of the caller's accounts."}),
	}
}

// providerAccount is an account of the caller with its provider.
type providerAccount struct {
	account
	session auth.Session
	client  *oauth.Client
	tokens  oauth.Tokens
	version int64
}

// callersAccount returns one of the caller's own accounts. Refuses with
// UNAUTHORIZED, ACCOUNT_NOT_FOUND and PROVIDER_NOT_SUPPORTED.
func (l *library) callersAccount(c *call, accountID string) (a providerAccount, err error) {
	if a.session, err = c.session(); err != nil {
		return a, err
	}
	var found bool
	if a.account, found, err = l.store.ownAccount(c.Context(), a.session.UserID, accountID); err != nil {
		return a, err
	}
	if !found {
		return a, errAccountNotFound
	}
	if a.client = l.providers.clients[a.provider]; a.client == nil {
		return a, errProviderNotSupported
	}
	a.tokens, a.version, _, err = l.openTokens(c.Context(), a.id)
	return a, err
}

// current returns tokens whose access token is valid, renewed if necessary. Refuses with
// FAILED_TO_GET_ACCESS_TOKEN.
func (l *library) current(ctx context.Context, a providerAccount) (oauth.Tokens, error) {
	t := a.tokens
	if !t.ExpiresAt.IsZero() && t.ExpiresAt.Sub(l.host.Now()) < nearlyOver && t.Refresh != "" {
		var err error
		if t, err = l.renew(ctx, a.client, a.id, t, a.version); err != nil {
			return oauth.Tokens{}, errFailedToGetAccess.Because(err)
		}
	}
	if t.Access == "" {
		return oauth.Tokens{}, errFailedToGetAccess
	}
	return t, nil
}

// idToken returns the provider's ID token if the caller may change how the user signs
// in, and otherwise nothing: presented as an application does, it is a sign-in.
func (c *call) idToken(a providerAccount, t oauth.Tokens) string {
	if !c.isFresh(a.session) {
		return ""
	}
	return t.ID
}

// accountChoice is how a request names an account: by the id of /list-accounts.
type accountChoice struct {
	AccountID string `json:"accountId"`
}

// accessToken is better-auth's response to /get-access-token.
type accessToken struct {
	AccessToken string           `json:"accessToken"`
	ExpiresAt   *capability.Time `json:"accessTokenExpiresAt,omitempty"`
	Scopes      []string         `json:"scopes"`
	IDToken     string           `json:"idToken,omitempty"`
}

func (l *library) getAccessToken(c *call) (any, error) {
	var in accountChoice
	if err := c.decode(&in); err != nil {
		return nil, err
	}
	a, err := l.callersAccount(c, in.AccountID)
	if err != nil {
		return nil, err
	}
	t, err := l.current(c.Context(), a)
	if err != nil {
		return nil, err
	}
	return accessToken{AccessToken: t.Access, ExpiresAt: orNever(t.ExpiresAt), Scopes: fields(a.scopes), IDToken: c.idToken(a, t)}, nil
}

// refreshedToken is better-auth's response to /refresh-token.
type refreshedToken struct {
	AccessToken  string           `json:"accessToken"`
	RefreshToken string           `json:"refreshToken"`
	ExpiresAt    *capability.Time `json:"accessTokenExpiresAt,omitempty"`
	Scope        string           `json:"scope"`
	IDToken      string           `json:"idToken,omitempty"`
	ProviderID   string           `json:"providerId"`
	AccountID    string           `json:"accountId"`
}

func (l *library) refreshToken(c *call) (any, error) {
	var in accountChoice
	if err := c.decode(&in); err != nil {
		return nil, err
	}
	a, err := l.callersAccount(c, in.AccountID)
	if err != nil {
		return nil, err
	}
	if a.tokens.Refresh == "" {
		return nil, errRefreshTokenNotFound
	}
	t, err := l.renew(c.Context(), a.client, a.id, a.tokens, a.version)
	if err != nil {
		return nil, errFailedToRefreshAccess.Because(err)
	}
	return refreshedToken{
		AccessToken: t.Access, RefreshToken: t.Refresh, ExpiresAt: orNever(t.ExpiresAt),
		Scope: strings.Join(fields(a.scopes), ","), IDToken: c.idToken(a, t), ProviderID: a.provider, AccountID: a.id,
	}, nil
}

// accountInfo is what the provider says about the user now.
func (l *library) accountInfo(c *call) (any, error) {
	a, err := l.callersAccount(c, c.query("accountId"))
	if err != nil {
		return nil, err
	}
	t, err := l.current(c.Context(), a)
	if err != nil {
		return nil, err
	}
	p, err := a.client.Describe(c.Context(), t)
	if err != nil {
		return nil, errFailedToGetUserInfo.Because(err)
	}
	if p.Subject != a.accountID {
		return nil, errFailedToGetUserInfo
	}
	return map[string]any{
		"user": map[string]any{
			"name": p.Name, "email": orNull(p.Email), "image": orNull(p.Image), "emailVerified": p.EmailVerified,
		},
		"account": map[string]string{"id": a.id, "providerId": a.provider, "issuer": a.issuer, "accountId": a.accountID},
		"data":    p.Claims,
	}, nil
}

func orNever(t time.Time) *capability.Time {
	if t.IsZero() {
		return nil
	}
	return &capability.Time{Time: t}
}

// fields returns the words of a text, never nil.
func fields(text string) []string { return append([]string{}, strings.Fields(text)...) }

func tokenContext(accountID string) string { return "signin/provider-token/" + accountID }

// keepTokens stores the tokens from a provider, sealed. A response without a refresh token keeps
// the one before.
func (l *library) keepTokens(ctx context.Context, accountID string, t oauth.Tokens) error {
	if t.Access == "" {
		return nil
	}
	if t.Refresh == "" {
		before, _, found, err := l.openTokens(ctx, accountID)
		if err != nil {
			return err
		}
		if found {
			t.Refresh = before.Refresh
		}
	}
	return l.store.putProviderTokens(ctx, accountID, l.sealTokens(accountID, t), l.host.DB.Now(ctx))
}

func (l *library) sealTokens(accountID string, t oauth.Tokens) []byte {
	text, err := json.Marshal(t)
	if err != nil {
		panic(err) // strings and a time alone
	}
	return l.sealer.Seal(tokenContext(accountID), text)
}

// openTokens reads the tokens of an account. Tokens that do not open with the master keys count as
// absent.
func (l *library) openTokens(ctx context.Context, accountID string) (t oauth.Tokens, version int64, found bool, err error) {
	row, found, err := l.store.providerTokens(ctx, accountID)
	if err != nil || !found {
		return oauth.Tokens{}, 0, false, err
	}
	text, err := l.sealer.Open(tokenContext(accountID), row.sealed)
	if err != nil {
		l.host.Log.WarnContext(ctx, "signin: the tokens of a provider do not open", "account", accountID)
		return oauth.Tokens{}, row.version, false, nil
	}
	if err := json.Unmarshal(text, &t); err != nil {
		return oauth.Tokens{}, 0, false, fmt.Errorf("signin: reading the tokens of a provider: %w", err)
	}
	return t, row.version, true, nil
}

// nearlyOver is how long before its end an access token is renewed.
const nearlyOver = 5 * time.Second

// renew gets new tokens and stores them. Of concurrent requests on this node one calls the
// provider; of several nodes the first response is kept.
func (l *library) renew(ctx context.Context, c *oauth.Client, accountID string, old oauth.Tokens, version int64) (oauth.Tokens, error) {
	release, err := l.providers.turn(ctx, accountID)
	if err != nil {
		return oauth.Tokens{}, err
	}
	defer release()
	known, at, found, err := l.openTokens(ctx, accountID)
	if err != nil {
		return oauth.Tokens{}, err
	}
	if found && at != version { // somebody else has just done it
		return known, nil
	}
	fresh, err := c.Refresh(ctx, old.Refresh)
	if err != nil {
		return l.renewedByOther(ctx, accountID, version, err)
	}
	if fresh.Refresh == "" {
		fresh.Refresh = old.Refresh
	}
	if fresh.ID == "" {
		fresh.ID = old.ID
	}
	row := sealedTokens{sealed: l.sealTokens(accountID, fresh), version: version}
	replaced, err := l.store.replaceProviderTokens(ctx, accountID, row, l.host.DB.Now(ctx))
	if err != nil {
		return oauth.Tokens{}, err
	}
	if !replaced {
		return l.renewedByOther(ctx, accountID, version, errors.New("signin: the account is gone"))
	}
	return fresh, nil
}

// renewedByOther returns the tokens of another node, whose refresh may have ended our refresh
// token, or else the failure.
func (l *library) renewedByOther(ctx context.Context, accountID string, version int64, failure error) (oauth.Tokens, error) {
	known, at, found, err := l.openTokens(ctx, accountID)
	if err == nil && found && at != version {
		return known, nil
	}
	return oauth.Tokens{}, failure
}
