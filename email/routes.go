package email

import (
	"net/http"
	"time"

	"github.com/kitbackend/kit/capability"
)

// maxForm bounds the form of an unsubscribe, maxSuppression the body of a suppression, and
// maxWebhook the body of a webhook, in bytes.
const (
	maxForm        = 16 << 10
	maxSuppression = 8 << 10
	maxWebhook     = 512 << 10
)

func (e *Email) routes() []capability.Route {
	suppressions := "email:suppressions:"
	signed := capability.Public("the token in the path is signed")
	routes := capability.Mount(e.cfg.BasePath,
		capability.Route{Method: http.MethodGet, Path: "/jobs", Guard: capability.ControlPlane("email:jobs:read"),
			Summary: "List email jobs, newest first.", Refusals: []*capability.Error{ErrInvalidAddress},
			Query:  []capability.Param{{Name: "state", Choices: State("").Choices()}, {Name: "to"}, {Name: "template"}, {Name: "category", Choices: Category("").Choices()}, {Name: "since", Format: "date-time"}, {Name: "until", Format: "date-time"}},
			Handle: capability.List(e.listJobs)},
		capability.Route{Method: http.MethodGet, Path: "/jobs/:id", Guard: capability.ControlPlane("email:jobs:read"),
			Summary: "One email job with its events and headers.", Refusals: []*capability.Error{ErrJobNotFound},
			Handle: capability.JSON(http.StatusOK, e.getJob)},
		capability.Route{Method: http.MethodPost, Path: "/jobs/:id/retry", Guard: capability.ControlPlane("email:jobs:retry"),
			Summary: "Queue a failed or bounced job anew.", Refusals: []*capability.Error{ErrJobNotFound, ErrJobNotRetryable, ErrSuppressed},
			Handle: capability.JSON(http.StatusAccepted, e.postRetry)},
		capability.Route{Method: http.MethodGet, Path: "/suppressions", Guard: capability.ControlPlane(suppressions + "read"),
			Summary: "List suppressed addresses.",
			Query:   []capability.Param{{Name: "q"}, {Name: "reason", Choices: Reason("").Choices()}, {Name: "scope", Choices: Scope("").Choices()}},
			Handle:  capability.List(e.listSuppressions)},
		capability.Route{Method: http.MethodPost, Path: "/suppressions", Guard: capability.ControlPlane(suppressions + "write"),
			Summary: "Suppress an address.", MaxBody: maxSuppression, Refusals: []*capability.Error{ErrInvalidAddress},
			Handle: capability.JSON(http.StatusCreated, e.postSuppression)},
		capability.Route{Method: http.MethodPost, Path: "/suppressions/remove", Guard: capability.ControlPlane(suppressions + "delete"),
			Summary: "Let mail to an address through again.", MaxBody: maxSuppression,
			Refusals: []*capability.Error{ErrInvalidAddress, ErrNotSuppressed, ErrProtected},
			Handle:   capability.JSON(http.StatusOK, e.postRemove)},
	)
	routes = append(routes, capability.Mount(e.cfg.CallbackPath,
		capability.Route{Method: http.MethodGet, Path: "/c/:token", Guard: signed,
			Summary: "A link in a mail.", Refusals: []*capability.Error{ErrInvalidToken}, Handle: capability.Raw(e.getClick).Pages()},
		capability.Route{Method: http.MethodGet, Path: "/o/:token", Guard: signed,
			Summary: "The image of a mail.", Handle: capability.Raw(e.getOpen)},
		capability.Route{Method: http.MethodGet, Path: "/u/:token", Guard: signed,
			Summary: "The page to unsubscribe on.", Refusals: []*capability.Error{ErrInvalidToken}, Handle: capability.Raw(e.getUnsubscribe).Pages()},
		capability.Route{Method: http.MethodPost, Path: "/u/:token", Guard: signed, MaxBody: maxForm,
			Summary: "Unsubscribe, by that page or by one click in a mail program.", Refusals: []*capability.Error{ErrInvalidToken}, Handle: capability.Raw(e.postUnsubscribe).Pages()},
	)...)
	routes = append(routes, e.webhookRoutes()...)
	return append(routes, e.mailbox.Routes()...)
}

func (e *Email) listJobs(c *capability.Call, page capability.Page) (capability.Items[Job], error) {
	f := JobFilter{State: State(c.Query("state")), To: c.Query("to"), Template: c.Query("template"), Category: Category(c.Query("category"))}
	for name, into := range map[string]*time.Time{"since": &f.Since, "until": &f.Until} {
		at, err := c.Time(name)
		if err != nil {
			return capability.Items[Job]{}, err
		}
		*into = at
	}
	return e.ListJobs(c.Context(), f, page)
}

func (e *Email) getJob(c *capability.Call, _ capability.None) (JobDetail, error) {
	return e.Job(c.Context(), c.Param("id"))
}

func (e *Email) postRetry(c *capability.Call, _ capability.None) (Job, error) {
	return e.Retry(c.Context(), c.Param("id"))
}

func (e *Email) listSuppressions(c *capability.Call, page capability.Page) (capability.Items[Suppression], error) {
	f := SuppressionFilter{Begins: c.Query("q"), Reason: Reason(c.Query("reason")), Scope: Scope(c.Query("scope"))}
	return e.ListSuppressions(c.Context(), f, page)
}

// suppressionBody is the request body of a suppression; scope is all by default.
type suppressionBody struct {
	Address string `json:"address"`
	Scope   Scope  `json:"scope,omitempty"`
	Note    string `json:"note,omitempty"`
}

func (e *Email) postSuppression(c *capability.Call, body suppressionBody) (Suppression, error) {
	or(&body.Scope, ScopeAll)
	s, _, err := e.Suppress(c.Context(), body.Address, body.Scope, body.Note)
	return s, err
}

type removeBody struct {
	Address string `json:"address"`
	Force   bool   `json:"force,omitempty"`
}

type removed struct {
	Removed bool `json:"removed"`
}

func (e *Email) postRemove(c *capability.Call, body removeBody) (removed, error) {
	if err := e.Unsuppress(c.Context(), body.Address, body.Force); err != nil {
		return removed{}, err
	}
	return removed{true}, nil
}
