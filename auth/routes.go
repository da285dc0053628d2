package auth

import (
	"context"
	"net/http"
	"slices"
	"strings"

	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/internal/local"
	"github.com/kitbackend/kit/internal/strictjson"
)

func (a *Auth) routes() []capability.Route {
	user, refresh := capability.User(), capability.Public("the refresh token is the proof").WithCSRF()
	users, devices := capability.ControlPlane("auth:users:read"), capability.ControlPlane("auth:devices:read")
	routes := capability.Mount(a.cfg.BasePath,
		capability.Route{Method: "POST", Path: "/token/rotate", Guard: refresh, Rate: "auth", MaxBody: maxRotation,
			Refusals: []*capability.Error{ErrRefreshInvalid, ErrRefreshReused},
			Summary:  "Exchange a refresh token, from the cookie or the body, for its successor and an access token.",
			Handle:   capability.JSON(200, a.postRotate)},
		capability.Route{Method: "GET", Path: "/devices", Guard: user,
			Summary: "The devices in which the caller is signed in.",
			Handle:  capability.List(a.listDevices)},
		capability.Route{Method: "POST", Path: "/devices/revoke", Guard: user.WithCSRF(),
			Summary:  "Sign the caller out on one device.",
			Refusals: []*capability.Error{ErrDeviceNotFound},
			Handle:   capability.JSON(200, a.postRevokeDevice)},
		capability.Route{Method: "GET", Path: "/admin/users", Guard: users,
			Summary: "List users; ?query= is the beginning of an address or name.",
			Query:   []capability.Param{{Name: "query"}},
			Handle:  capability.List(a.adminUsers)},
		capability.Route{Method: "GET", Path: "/admin/users/:userId", Guard: users,
			Summary:  "One user with the live sessions.",
			Refusals: []*capability.Error{ErrUserNotFound},
			Handle:   capability.JSON(200, a.adminUser)},
		capability.Route{Method: "GET", Path: "/admin/devices", Guard: devices,
			Summary: "List devices; ?userId= names whose.",
			Query:   []capability.Param{{Name: "userId"}},
			Handle:  capability.List(a.adminDevices)},
		capability.Route{Method: "POST", Path: "/admin/sessions/revoke", Guard: capability.ControlPlane("auth:sessions:revoke"),
			Summary:  "End one session.",
			Refusals: []*capability.Error{ErrSessionNotFound},
			Handle:   capability.JSON(200, a.adminRevokeSession)},
		capability.Route{Method: "POST", Path: "/admin/users/:userId/sessions/revoke", Guard: capability.ControlPlane("auth:users:logout"),
			Summary: "End all sessions of a user.", Refusals: []*capability.Error{ErrUserNotFound},
			Handle: capability.JSON(200, a.adminRevokeUser)},
		capability.Route{Method: "POST", Path: "/admin/users/:userId/devices/revoke", Guard: capability.ControlPlane("auth:devices:revoke"),
			Summary:  "End the sessions of a user's devices, of one or of all.",
			Refusals: []*capability.Error{ErrUserNotFound, ErrDeviceNotFound},
			Handle:   capability.OptionalJSON(200, a.adminRevokeDevices)},
		capability.Route{Method: capability.Any, Path: "/*", Guard: capability.Public("the authentication library decides"),
			Summary: "Sign-in, sign-out and all else of the authentication library.",
			Rate:    "auth", MaxBody: maxLibraryBody, RefusalBody: libraryRefusalBody,
			Handle: capability.Raw(a.anyLibrary)},
	)
	if !a.host.Development() {
		return routes
	}
	return append(routes, capability.Mount(a.host.InternalPrefix,
		capability.Route{Method: "GET", Path: "/dev-login", Guard: capability.Public(capability.DevelopmentOnly),
			Summary: "Signs in as any user, from the same machine.",
			Rate:    "auth", Refusals: []*capability.Error{capability.ErrNotFound},
			Query:  []capability.Param{{Name: "user", Required: true}, {Name: "scope"}, {Name: "secret"}},
			Handle: capability.JSON(200, a.getDevLogin)},
	)...)
}

// maxRotation bounds the body of a rotation, in bytes.
const maxRotation = 4 << 10

// rotation is the body of a client that keeps the refresh token itself.
type rotation struct {
	RefreshToken string `json:"refreshToken"`
}

// rotatedBody is the response of a rotation. The refresh token is in it when it
// came in the body, else in the cookie.
type rotatedBody struct {
	AccessToken  string `json:"accessToken"`
	TokenType    string `json:"tokenType"`
	ExpiresIn    int64  `json:"expiresIn"`
	RefreshToken string `json:"refreshToken,omitempty"`
	SessionID    string `json:"sessionId"`
}

// postRotate never removes a cookie, because the loser of a race is still signed in.
func (a *Auth) postRotate(c *capability.Call, _ capability.None) (rotatedBody, error) {
	token, inBody, err := a.refreshGiven(c)
	if err != nil {
		return rotatedBody{}, err
	}
	rotated, err := a.Rotate(c.Context(), token)
	if err != nil {
		return rotatedBody{}, err
	}
	response := rotatedBody{
		AccessToken: rotated.AccessToken, TokenType: "Bearer", ExpiresIn: int64(a.tokenTTL(rotated.Session).Seconds()),
		SessionID: rotated.Session.ID,
	}
	if inBody {
		response.RefreshToken = rotated.RefreshToken
	} else {
		http.SetCookie(c.Writer(), a.refreshCookie(rotated.Session, rotated.RefreshToken))
	}
	return response, nil
}

// refreshGiven reads the refresh token from the body or the cookie. A cookie counts only together
// with the CSRF token of its session.
func (a *Auth) refreshGiven(c *capability.Call) (token string, inBody bool, err error) {
	body, err := c.Body()
	if err != nil {
		return "", false, err
	}
	var in rotation
	if len(body) > 0 {
		if err := strictjson.Decode(body, &in); err != nil {
			return "", false, capability.ErrInvalidRequest.Saying("%s", err.Error())
		}
	}
	if in.RefreshToken != "" {
		return in.RefreshToken, true, nil
	}
	token, given := a.cookieValue(c.Request(), refreshCookie)
	if !given {
		return "", false, ErrRefreshInvalid
	}
	sessionID, _, ok := splitRefresh(token)
	if !ok {
		return "", false, ErrRefreshInvalid
	}
	return token, false, a.csrf(c.Request(), capability.Caller{SessionID: sessionID})
}

// deviceBody is the JSON form of a device.
type deviceBody struct {
	ID         string          `json:"id"`
	UserID     string          `json:"userId,omitempty"`
	Name       string          `json:"name"`
	UserAgent  string          `json:"userAgent"`
	IP         string          `json:"ip"`
	CreatedAt  capability.Time `json:"createdAt"`
	LastSeenAt capability.Time `json:"lastSeenAt"`
	// Current is set in a list of the caller's own.
	Current bool `json:"current"`
}

func newDeviceBody(d Device) deviceBody {
	return deviceBody{
		ID: d.ID, UserID: d.UserID, Name: d.Name, UserAgent: d.UserAgent, IP: d.IP,
		CreatedAt: capability.Time{Time: d.CreatedAt}, LastSeenAt: capability.Time{Time: d.LastSeenAt},
	}
}

func (a *Auth) listDevices(c *capability.Call, page capability.Page) (capability.Items[deviceBody], error) {
	session, _, err := a.store.sessionByID(c.Context(), c.Caller.SessionID, a.host.Now())
	if err != nil {
		return capability.Items[deviceBody]{}, err
	}
	return a.deviceBodies(c.Context(), c.Caller.UserID, page, session.DeviceID)
}

func (a *Auth) adminDevices(c *capability.Call, page capability.Page) (capability.Items[deviceBody], error) {
	return a.deviceBodies(c.Context(), c.Query("userId"), page, "")
}

func (a *Auth) deviceBodies(ctx context.Context, userID string, page capability.Page, current string) (capability.Items[deviceBody], error) {
	devices, err := a.ListDevices(ctx, userID, page)
	items := capability.Items[deviceBody]{NextCursor: devices.NextCursor}
	for _, d := range devices.Items {
		body := newDeviceBody(d)
		body.Current = d.ID == current
		items.Items = append(items.Items, body)
	}
	return items, err
}

// revocationBody names the session to end.
type revocationBody struct {
	SessionID string `json:"sessionId"`
}

type deviceRevocation struct {
	DeviceID string `json:"deviceId"`
}

// revokedBody is the response of a revocation: how many sessions ended.
type revokedBody struct {
	Sessions int `json:"sessions"`
}

func (a *Auth) postRevokeDevice(c *capability.Call, in deviceRevocation) (revokedBody, error) {
	n, err := a.RevokeDevice(c.Context(), c.Caller.UserID, in.DeviceID)
	return revokedBody{n}, err
}

// userBody is a user in responses to the control plane.
type userBody struct {
	ID            string           `json:"id"`
	Email         string           `json:"email"`
	EmailVerified bool             `json:"emailVerified"`
	Name          string           `json:"name"`
	Username      string           `json:"username"`
	Image         string           `json:"image"`
	Anonymous     bool             `json:"anonymous"`
	CreatedAt     capability.Time  `json:"createdAt"`
	UpdatedAt     capability.Time  `json:"updatedAt"`
	DisabledAt    *capability.Time `json:"disabledAt"`
}

func newUserBody(u User) userBody {
	body := userBody{
		ID: u.ID, Email: u.Email, EmailVerified: u.EmailVerified, Name: u.Name, Username: u.Username, Image: u.Image,
		Anonymous: u.Anonymous, CreatedAt: capability.Time{Time: u.CreatedAt}, UpdatedAt: capability.Time{Time: u.UpdatedAt},
	}
	if !u.DisabledAt.IsZero() {
		body.DisabledAt = &capability.Time{Time: u.DisabledAt}
	}
	return body
}

func (a *Auth) adminUsers(c *capability.Call, page capability.Page) (capability.Items[userBody], error) {
	users, err := a.ListUsers(c.Context(), c.Query("query"), page)
	items := capability.Items[userBody]{NextCursor: users.NextCursor}
	for _, u := range users.Items {
		items.Items = append(items.Items, newUserBody(u))
	}
	return items, err
}

// userDetail is a user with the live sessions.
type userDetail struct {
	userBody
	Sessions []sessionBody `json:"sessions"`
}

type sessionBody struct {
	ID        string          `json:"id"`
	DeviceID  string          `json:"deviceId"`
	Methods   []string        `json:"methods"`
	IP        string          `json:"ip"`
	UserAgent string          `json:"userAgent"`
	CreatedAt capability.Time `json:"createdAt"`
	UpdatedAt capability.Time `json:"updatedAt"`
	ExpiresAt capability.Time `json:"expiresAt"`
}

func newSessionBody(s Session) sessionBody {
	return sessionBody{
		ID: s.ID, DeviceID: s.DeviceID, Methods: append([]string{}, s.Methods...), IP: s.IP, UserAgent: s.UserAgent,
		CreatedAt: capability.Time{Time: s.CreatedAt}, UpdatedAt: capability.Time{Time: s.UpdatedAt},
		ExpiresAt: capability.Time{Time: s.ExpiresAt},
	}
}

func (a *Auth) adminUser(c *capability.Call, _ capability.None) (detail userDetail, err error) {
	err = a.host.DB.Read(c.Context(), func(ctx context.Context) error {
		user, err := a.User(ctx, c.Param("userId"))
		if err != nil {
			return err
		}
		sessions, err := a.Sessions(ctx, user.ID)
		detail = userDetail{userBody: newUserBody(user), Sessions: []sessionBody{}}
		for _, s := range sessions {
			detail.Sessions = append(detail.Sessions, newSessionBody(s))
		}
		return err
	})
	return detail, err
}

func (a *Auth) adminRevokeSession(c *capability.Call, in revocationBody) (revokedBody, error) {
	return revokedBody{1}, a.RevokeSession(c.Context(), in.SessionID)
}

func (a *Auth) adminRevokeUser(c *capability.Call, _ capability.None) (revokedBody, error) {
	n, err := a.RevokeUser(c.Context(), c.Param("userId"))
	return revokedBody{n}, err
}

// adminRevokeDevices ends the sessions of the device in the body, or of all.
func (a *Auth) adminRevokeDevices(c *capability.Call, in deviceRevocation) (revokedBody, error) {
	if in.DeviceID == "" {
		n, err := a.RevokeDevices(c.Context(), c.Param("userId"))
		return revokedBody{n}, err
	}
	n, err := a.RevokeDevice(c.Context(), c.Param("userId"), in.DeviceID)
	return revokedBody{n}, err
}

// devLogin is the response of GET /dev-login.
type devLogin struct {
	UserID      string `json:"userId"`
	AccessToken string `json:"accessToken"`
	CSRFToken   string `json:"csrfToken"`
}

// getDevLogin signs in as ?user=, created if absent; ?scope= goes into the
// access token alone.
func (a *Auth) getDevLogin(c *capability.Call, _ capability.None) (devLogin, error) {
	if !local.FromThisMachine(c.Request()) || local.FromOtherSite(c.Request()) || !a.host.DevelopmentAllowed(c.Request()) {
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
	entered, err := a.signInForDevelopment(c, query.Get("user"), scopes)
	if err != nil {
		return devLogin{}, err
	}
	return devLogin{UserID: entered.Session.UserID, AccessToken: entered.AccessToken, CSRFToken: entered.CSRFToken}, nil
}

func (a *Auth) signInForDevelopment(c *capability.Call, userID string, scopes []string) (entered Entered, err error) {
	err = a.host.DB.InTx(c.Context(), func(ctx context.Context) error {
		if err := a.EnsureUser(ctx, userID); err != nil {
			return err
		}
		entered, err = a.enter(c.Writer(), c.Request().WithContext(ctx),
			Entry{UserID: userID, Method: "dev_login", Remember: true}, scopes, map[string]any{"scopes": scopes})
		return err
	})
	return entered, err
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
