package testers

import (
	"net/http"
	"strings"

	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/email"
)

func (t *Testers) routes() []capability.Route {
	public := capability.Public("the signed link from the mail is the credential")
	write := capability.ControlPlane("testers:roster:write")
	return capability.Mount(t.cfg.BasePath,
		capability.Route{Method: "GET", Path: "/confirm/:token", Guard: public.Identifying(), Rate: "public",
			Summary:  "The page of an invitation, where a tester says yes.",
			Refusals: []*capability.Error{ErrInvalidToken, ErrCohortClosed}, Query: []capability.Param{{Name: "go"}},
			Handle: capability.Raw(t.getConfirm).Pages()},
		capability.Route{Method: "GET", Path: "/opt-in/:token", Guard: public.Identifying(), Rate: "public",
			Summary:  "The page from which a tester goes to the store.",
			Refusals: []*capability.Error{ErrInvalidToken, ErrCohortClosed, ErrNotConfigured}, Query: []capability.Param{{Name: "go"}},
			Handle: capability.Raw(t.getOptIn).Pages()},
		capability.Route{Method: "GET", Path: "/opt-out/:token", Guard: public, Rate: "public",
			Summary:  "The page on which a tester leaves.",
			Refusals: []*capability.Error{ErrInvalidToken}, Handle: capability.Raw(t.getOptOut).Pages()},
		capability.Route{Method: "POST", Path: "/opt-out/:token", Guard: public, Rate: "public", MaxBody: maxForm,
			Summary:  "Leave: the page's button, or one click in a mail program.",
			Refusals: []*capability.Error{ErrInvalidToken}, Handle: capability.Raw(t.postOptOut).Pages()},
		capability.Route{Method: "GET", Path: "/status", Guard: capability.User(),
			Summary: "The tests the caller takes part in; asking counts as use of the app.",
			Query:   []capability.Param{{Name: "appVersion"}},
			Handle:  capability.JSON(http.StatusOK, t.getStatus)},
		capability.Route{Method: "GET", Path: "/cohorts", Guard: capability.ControlPlane("testers:roster:read"),
			Summary:  "List cohorts, with members and forecast where asked for.",
			Refusals: []*capability.Error{ErrCohortNotFound}, Query: []capability.Param{{Name: "include", Summary: "members, forecast or both, separated by a comma."}, {Name: "id"}},
			Handle: capability.List(t.listCohorts)},
		capability.Route{Method: "POST", Path: "/invite", Guard: write, MaxBody: 64 << 10,
			Summary: "Invite up to 100 people.",
			Refusals: []*capability.Error{ErrCohortNotFound, ErrCohortClosed, ErrNotConfigured, ErrAlreadyThere,
				ErrWithdrawn, ErrRosterFull, email.ErrInvalidAddress, email.ErrRateLimited}, Handle: capability.JSON(http.StatusCreated, t.postInvite)},
		capability.Route{Method: "POST", Path: "/resend", Guard: write, MaxBody: 4 << 10,
			Summary: "Mail a tester the next step again.",
			Refusals: []*capability.Error{ErrCohortNotFound, ErrCohortClosed, ErrNotConfigured, ErrMemberNotFound,
				ErrWithdrawn, ErrAlreadyThere, email.ErrInvalidAddress, email.ErrRateLimited}, Handle: capability.JSON(http.StatusAccepted, t.postResend)},
		capability.Route{Method: "POST", Path: "/remove", Guard: write, MaxBody: 4 << 10,
			Summary:  "Take a tester off the roster.",
			Refusals: []*capability.Error{ErrCohortNotFound, ErrMemberNotFound, email.ErrInvalidAddress}, Handle: capability.JSON(http.StatusOK, t.postRemove)},
		capability.Route{Method: "POST", Path: "/nudge", Guard: capability.ControlPlane("testers:nudge:send"), MaxBody: 64 << 10,
			Summary: "Remind testers.",
			Refusals: []*capability.Error{ErrCohortNotFound, ErrCohortClosed, ErrNotConfigured, ErrMemberNotFound, ErrWithdrawn,
				ErrNudgeCooldown, ErrCopyNotAllowed}, Handle: capability.JSON(http.StatusAccepted, t.postNudge)},
	)
}

func (t *Testers) getStatus(c *capability.Call, _ capability.None) (Memberships, error) {
	if err := t.Seen(c.Context(), c.Caller.UserID, Visit{AppVersion: c.Query("appVersion"), SessionID: c.Caller.SessionID}); err != nil {
		return Memberships{}, err
	}
	return t.MembershipsOf(c.Context(), c.Caller.UserID)
}

func (t *Testers) listCohorts(c *capability.Call, page capability.Page) (capability.Items[Cohort], error) {
	var with Include
	for _, word := range strings.Split(c.Query("include"), ",") {
		switch word {
		case "members":
			with.Members = true
		case "forecast":
			with.Forecast = true
		case "":
		default:
			return capability.Items[Cohort]{}, capability.ErrInvalidRequest.Saying("include is members, forecast or both.")
		}
	}
	if id := c.Query("id"); id != "" {
		cohort, err := t.Cohort(c.Context(), id, with)
		return capability.Items[Cohort]{Items: []Cohort{cohort}}, err
	}
	return t.ListCohorts(c.Context(), with, page)
}

type inviteBody struct {
	CohortID string   `json:"cohortId,omitempty"`
	Testers  []Tester `json:"testers"`
}

func (t *Testers) postInvite(c *capability.Call, body inviteBody) (InviteResult, error) {
	return t.Invite(c.Context(), body.CohortID, body.Testers)
}

func (t *Testers) postResend(c *capability.Call, body Ref) (Member, error) {
	return t.Resend(c.Context(), body)
}

func (t *Testers) postRemove(c *capability.Call, body Ref) (Member, error) {
	return t.Remove(c.Context(), body)
}

func (t *Testers) postNudge(c *capability.Call, body NudgeRequest) (NudgeResult, error) {
	return t.Nudge(c.Context(), body)
}
