package signin

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"
	"net/url"

	"github.com/kitbackend/kit/auth"
	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/internal/strictjson"
)

// route is one row of the table with its handler. The value of the handler is written as JSON,
// unless it is [written].
type route struct {
	auth.LibraryRoute
	handle func(*call) (any, error)
}

// written is the value of a handler that has written the response itself.
type written struct{}

// call is one request on its way through a handler.
type call struct {
	l     *library
	w     http.ResponseWriter
	r     *http.Request
	known *auth.Session
	asked bool
	body  []byte // as JSON, once decoded
	state string // of a provider, taken and not settled yet
}

// Context returns the request's context. It is canceled when the client disconnects, and carries
// the capability.RequestInfo.
func (c *call) Context() context.Context { return c.r.Context() }

// in returns the call on another context, such as a transaction's.
func (c *call) in(ctx context.Context) *call {
	inner := *c
	inner.r = c.r.WithContext(ctx)
	return &inner
}

// param returns a path parameter.
func (c *call) param(name string) string { return c.r.PathValue(name) }

// query returns the first value of a query parameter, or "".
func (c *call) query(name string) string { return c.r.URL.Query().Get(name) }

// serve returns the row's handler in the form that auth calls.
func (l *library) serve(handle func(*call) (any, error)) func(http.ResponseWriter, *http.Request) error {
	return func(w http.ResponseWriter, r *http.Request) error {
		c := &call{l: l, w: w, r: r}
		if err := c.checkOrigin(); err != nil {
			return err
		}
		response, err := handle(c)
		if err != nil {
			return err
		}
		if _, done := response.(written); done {
			return nil
		}
		return c.write(http.StatusOK, response)
	}
}

// decode reads the body into the pointer: JSON, or a form of plain fields. An
// absent body is an empty object; unknown members are ignored, as in better-auth. Refuses with
// BAD_REQUEST, VALIDATION_ERROR and UNSUPPORTED_MEDIA_TYPE.
func (c *call) decode(into any) error {
	body, err := io.ReadAll(c.r.Body) // auth has received and limited it
	if err != nil || len(body) == 0 {
		c.body = []byte("{}")
		return err
	}
	kind, _, err := mime.ParseMediaType(c.r.Header.Get("Content-Type"))
	if err != nil {
		return errUnsupportedMediaType.Because(err)
	}
	switch kind {
	case "application/json":
	case "application/x-www-form-urlencoded":
		if body[0] == '{' { // JSON as curl -d sends it
			return errUnsupportedMediaType
		}
		if body, err = formAsJSON(string(body)); err != nil {
			return errValidation.Because(err)
		}
	default:
		return errUnsupportedMediaType
	}
	if !json.Valid(body) {
		return errMalformed
	}
	if err := strictjson.Valid(body); err != nil {
		return errValidation.Saying("%s", err)
	}
	if err := json.Unmarshal(body, into); err != nil {
		if wrong := new(json.UnmarshalTypeError); errors.As(err, &wrong) && wrong.Field != "" {
			return invalidField(wrong.Field, "is of another type").Because(err)
		}
		return errValidation.Because(err)
	}
	c.body = body
	return nil
}

// invalidField is a VALIDATION_ERROR about a member of the body, which it names as
// better-auth does, and in its details.
func invalidField(name, reason string) *capability.Error {
	return errValidation.Saying("[body.%s] %s", name, reason).With(map[string]string{"field": name})
}

// needs refuses a decoded body without one of the members. Refuses with
// VALIDATION_ERROR, naming the first of them.
func (c *call) needs(names ...string) error {
	var given map[string]json.RawMessage
	if err := json.Unmarshal(c.body, &given); err != nil {
		return errValidation.Because(err)
	}
	for _, name := range names {
		if value, ok := given[name]; !ok || string(value) == "null" {
			return invalidField(name, "is missing")
		}
	}
	return nil
}

// addressAt is [address] for a member of the body. Refuses with VALIDATION_ERROR, naming the
// member.
func addressAt(name, text string) (string, error) {
	canonical, err := address(text)
	if err != nil {
		return "", invalidField(name, "is no e-mail address").Because(err)
	}
	return canonical, nil
}

// fields reads the application's fields of the body that was decoded. Refuses
// with FIELD_NOT_ALLOWED.
func (c *call) fields() (map[string]any, error) {
	if len(c.l.auth.ProfileFields()) == 0 || len(c.body) == 0 {
		return nil, nil
	}
	var body map[string]any
	if err := json.Unmarshal(c.body, &body); err != nil {
		return nil, errValidation.Because(err)
	}
	return c.l.editedFields(body)
}

// formAsJSON returns the fields of a form as a JSON object; all are texts but rememberMe.
func formAsJSON(body string) ([]byte, error) {
	form, err := url.ParseQuery(body)
	if err != nil {
		return nil, err
	}
	object := make(map[string]any, len(form))
	for key := range form {
		object[key] = form.Get(key)
	}
	if remember, given := object["rememberMe"]; given {
		object["rememberMe"] = remember != "false"
	}
	return json.Marshal(object)
}

// maybeSession returns the session that the request proves, if any.
func (c *call) maybeSession() (session auth.Session, ok bool, err error) {
	if !c.asked {
		session, ok, err := c.l.auth.Current(c.r)
		if errors.Is(err, capability.ErrUnauthenticated) {
			ok, err = false, nil
		}
		if err != nil {
			return auth.Session{}, false, err
		}
		if c.asked = true; ok {
			c.known = &session
			if session.Renewed {
				if err := c.bearerTokens(session, ""); err != nil {
					return auth.Session{}, false, err
				}
			}
		}
	}
	if c.known == nil {
		return auth.Session{}, false, nil
	}
	return *c.known, true, nil
}

// session returns the session of a signed-in caller. Refuses with UNAUTHORIZED.
func (c *call) session() (auth.Session, error) {
	session, ok, err := c.maybeSession()
	if err == nil && !ok {
		err = errUnauthorized
	}
	return session, err
}

// notLapsed refuses a caller whose access token has expired, but not its session: they are no
// visitor, and the client renews the token and repeats the request. Refuses with UNAUTHORIZED.
func (c *call) notLapsed() error {
	_, lapsed, err := c.l.auth.Lapsed(c.r)
	if err == nil && lapsed {
		err = errUnauthorized
	}
	return err
}

// user returns the signed-in caller. Refuses with UNAUTHORIZED.
func (c *call) user() (auth.User, auth.Session, error) {
	session, err := c.session()
	if err != nil {
		return auth.User{}, session, err
	}
	user, err := c.l.auth.User(c.Context(), session.UserID)
	return user, session, err
}

// write responds with a value as JSON.
func (c *call) write(status int, value any) error {
	body, err := json.Marshal(value)
	if err != nil {
		return err
	}
	h := c.w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Cache-Control", "no-store")
	c.w.WriteHeader(status)
	_, _ = c.w.Write(body) // the client has disconnected
	return nil
}

// redirect sends the browser to a target that was checked, or that is one of the kit's own.
func (c *call) redirect(target string) (any, error) {
	c.w.Header().Set("Cache-Control", "no-store")
	http.Redirect(c.w, c.r, target, http.StatusFound)
	return written{}, nil
}
