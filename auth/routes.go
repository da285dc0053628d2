package auth

import (
	"context"
	"net/http"
	"slices"
	"strings"

	"github.com/kitbackend/kit/audit"
	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/internal/local"
)

func (a *Auth) routes() []capability.Route {
	if !a.host.Development() {
		return nil
	}
	return capability.Mount(a.host.InternalPrefix,
		capability.Route{
			Method: http.MethodGet, Path: "/dev-login",
			Guard:   capability.Public(capability.DevelopmentOnly),
			Summary: "Signs in as any user, from the same machine.",
			Rate:    "auth",
			Handle:  capability.JSON(http.StatusOK, a.getDevLogin),
		},
	)
}

// devLogin is the answer of GET /dev-login.
type devLogin struct {
	UserID      string `json:"userId"`
	AccessToken string `json:"accessToken"`
	CSRFToken   string `json:"csrfToken"`
}

// getDevLogin signs in as ?user=, created if absent; ?scope= goes into the
// access token alone.
func (a *Auth) getDevLogin(c *capability.Call, _ capability.None) (devLogin, error) {
	if !local.FromThisMachine(c.Request()) || local.FromOtherSite(c.Request()) {
		return devLogin{}, capability.ErrNotFound
	}
	query := c.Request().URL.Query()
	if len(query["user"]) != 1 {
		return devLogin{}, capability.ErrInvalidRequest.Saying("Name one user: ?user=ada")
	}
	scopes := splitScopes(query["scope"])
	if err := checkScopes(scopes); err != nil {
		return devLogin{}, err
	}
	session, err := a.signInForDevelopment(c.Context(), query.Get("user"), scopes)
	if err != nil {
		return devLogin{}, err
	}
	token, err := a.sessionToken(c.Context(), session, scopes)
	if err != nil {
		return devLogin{}, err
	}
	c.Writer().Header().Set("Cache-Control", "no-store")
	http.SetCookie(c.Writer(), a.SessionCookie(session))
	return devLogin{UserID: session.UserID, AccessToken: token, CSRFToken: a.CSRFToken(session)}, nil
}

func (a *Auth) signInForDevelopment(ctx context.Context, user string, scopes []string) (session Session, err error) {
	err = a.host.DB.InTx(ctx, func(ctx context.Context) error {
		if err := a.EnsureUser(ctx, user); err != nil {
			return err
		}
		if session, err = a.CreateSession(ctx, user); err != nil {
			return err
		}
		return a.peers.Audit.Record(ctx, audit.Event{
			Action:  "auth/signed_in",
			Actor:   audit.Actor{Kind: audit.User, ID: user},
			Subject: audit.Target{Type: "user", ID: user},
			Targets: []audit.Target{{Type: "session", ID: session.ID}},
			Detail:  map[string]any{"method": "dev_login", "scopes": scopes},
		})
	})
	return session, err
}

// splitScopes reads scopes separated by commas or spaces, each kept once.
func splitScopes(values []string) []string {
	scopes := []string{}
	for _, value := range values {
		for _, scope := range strings.FieldsFunc(value, func(c rune) bool { return c == ',' || c == ' ' }) {
			if !slices.Contains(scopes, scope) {
				scopes = append(scopes, scope)
			}
		}
	}
	return scopes
}
