package audit

import (
	"net/http"

	"github.com/kitbackend/kit/capability"
)

func (a *Audit) routes() []capability.Route {
	return capability.Mount(a.cfg.BasePath,
		capability.Route{
			Method: http.MethodGet, Path: "/events",
			Guard:   capability.ControlPlane("audit:events:read"),
			Summary: "Lists events, newest first, without their detail.",
			Query:   []capability.Param{{Name: "namespace"}, {Name: "action"}, {Name: "actorKind", Choices: ActorKind("").Choices()}, {Name: "actorId"}, {Name: "subjectType"}, {Name: "subjectId"}, {Name: "outcome", Choices: Outcome("").Choices()}, {Name: "from", Format: "date-time"}, {Name: "to", Format: "date-time"}},
			Handle:  capability.List(a.getEvents),
		},
		capability.Route{
			Method: http.MethodGet, Path: "/events/:eventId",
			Guard:   capability.ControlPlane("audit:events:read_detail"),
			Summary: "Reads one event with its detail.", Refusals: refusals(),
			Handle: capability.JSON(http.StatusOK, a.getEvent),
		},
	)
}

// summary is an event in a list, without detail and personal data.
type summary struct {
	ID          string          `json:"id"`
	OccurredAt  capability.Time `json:"occurredAt"`
	Namespace   string          `json:"namespace"`
	Action      string          `json:"action"`
	Actor       Actor           `json:"actor"`
	Subject     *Target         `json:"subject"`
	Targets     []Target        `json:"targets"`
	Outcome     Outcome         `json:"outcome"`
	Code        string          `json:"code,omitempty"`
	RequestID   string          `json:"requestId,omitempty"`
	Route       string          `json:"route,omitempty"`
	Environment string          `json:"environment"`
}

func summarize(e Entry) summary {
	s := summary{
		ID: e.ID, OccurredAt: e.OccurredAt, Namespace: e.Namespace(), Action: e.Action, Actor: e.Actor,
		Targets: e.Targets, Outcome: e.Outcome, Code: e.Code, RequestID: e.RequestID, Route: e.Route, Environment: e.Environment,
	}
	if e.Subject != (Target{}) {
		s.Subject = &e.Subject
	}
	if s.Targets == nil {
		s.Targets = []Target{}
	}
	return s
}

func (a *Audit) getEvents(c *capability.Call, page capability.Page) (capability.Items[summary], error) {
	filter, err := filterOf(c)
	if err != nil {
		return capability.Items[summary]{}, err
	}
	events, err := a.ListEvents(c.Context(), filter, page)
	if err != nil {
		return capability.Items[summary]{}, err
	}
	list := capability.Items[summary]{NextCursor: events.NextCursor}
	for _, e := range events.Items {
		list.Items = append(list.Items, summarize(e))
	}
	return list, nil
}

// full is an event with all its data. Seal is null until the event is sealed.
type full struct {
	summary
	Detail    any    `json:"detail"`
	IP        string `json:"ip,omitempty"`
	UserAgent string `json:"userAgent,omitempty"`
	Hash      []byte `json:"hash"`
	Seal      *Seal  `json:"seal"`
}

func (a *Audit) getEvent(c *capability.Call, _ capability.None) (full, error) {
	e, err := a.Event(c.Context(), c.Param("eventId"))
	if err != nil {
		return full{}, err
	}
	f := full{summary: summarize(e), IP: e.IP, UserAgent: e.UserAgent, Hash: e.Hash}
	if e.Detail != nil {
		f.Detail = e.Detail
	}
	place, sealed, err := a.SealOf(c.Context(), e.ID)
	if sealed {
		f.Seal = &place
	}
	return f, err
}

// filterOf reads the filter of a list from the query.
func filterOf(c *capability.Call) (f Filter, err error) {
	f = Filter{
		Namespace: c.Query("namespace"), Action: c.Query("action"),
		ActorKind: ActorKind(c.Query("actorKind")), ActorID: c.Query("actorId"),
		Subject: Target{Type: c.Query("subjectType"), ID: c.Query("subjectId")},
		Outcome: Outcome(c.Query("outcome")),
	}
	for _, text := range []string{f.Namespace, f.Action, f.ActorID, f.Subject.Type, f.Subject.ID} {
		if !storable(text) {
			return Filter{}, capability.ErrInvalidRequest.Saying("A filter has at most %d bytes of UTF-8.", MaxID)
		}
	}
	if f.From, err = c.Time("from"); err != nil {
		return Filter{}, err
	}
	f.To, err = c.Time("to")
	return f, err
}
