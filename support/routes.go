package support

import (
	"net/http"

	"github.com/kitbackend/kit/capability"
)

func (s *Support) routes() []capability.Route {
	user := capability.User()
	read := capability.ControlPlane("support:threads:read")
	return capability.Mount(s.cfg.BasePath, append([]capability.Route{
		{Method: "POST", Path: "/feedback", Guard: user, MaxBody: 64 << 10, Idempotent: true,
			Summary:  "Open a thread, or append to one of the caller's.",
			Refusals: []*capability.Error{ErrNotFound, ErrInvalidCategory, ErrRejected},
			Handle:   capability.JSON(http.StatusCreated, s.postFeedback)},
		{Method: "GET", Path: "/feedback", Guard: user,
			Summary: "The caller's threads, the one that changed last first.",
			Handle:  capability.List(s.listFeedback)},
		{Method: "GET", Path: "/feedback/:id", Guard: user,
			Summary:  "One of the caller's threads with its messages.",
			Refusals: []*capability.Error{ErrNotFound},
			Handle:   capability.JSON(http.StatusOK, s.getFeedback)},
		{Method: "GET", Path: "/threads", Guard: read,
			Summary:  "List threads, the one that changed last first.",
			Refusals: []*capability.Error{ErrInvalidCategory},
			Query:    []capability.Param{{Name: "state", Choices: State("").Choices()}, {Name: "category"}, {Name: "priority", Choices: Priority("").Choices()}, {Name: "sentiment", Choices: Sentiment("").Choices()}, {Name: "channel", Choices: Channel("").Choices()}, {Name: "flag", Choices: flags}, {Name: "assignee"}, {Name: "userId"}, {Name: "q"}},
			Handle:   capability.List(s.listThreads)},
		{Method: "GET", Path: "/threads/:id", Guard: read,
			Summary:  "One thread with its messages.",
			Refusals: []*capability.Error{ErrNotFound},
			Handle:   capability.JSON(http.StatusOK, s.getThread)},
		{Method: "GET", Path: "/replies", Guard: read,
			Summary: "List replies, newest first.",
			Handle:  capability.List(s.listReplies)},
		{Method: "POST", Path: "/threads/:id/archive", Guard: capability.ControlPlane("support:threads:archive"), MaxBody: 1 << 10,
			Summary:  "Archive a thread, or open it again.",
			Refusals: []*capability.Error{ErrNotFound},
			Handle:   capability.OptionalJSON(http.StatusOK, s.postArchive)},
		{Method: "POST", Path: "/threads/:id/reply", Guard: capability.ControlPlane("support:threads:reply"), MaxBody: 256 << 10,
			Summary:  "Reply to the person of a thread.",
			Refusals: []*capability.Error{ErrNotFound, ErrReplyFailed, capability.ErrIdempotencyConflict},
			Handle:   capability.JSON(http.StatusCreated, s.postReply)},
		{Method: "POST", Path: "/threads/:id/reclassify", Guard: capability.ControlPlane("support:threads:reclassify"), MaxBody: 1 << 10,
			Summary:  "Classify a thread again, or set its category.",
			Refusals: []*capability.Error{ErrNotFound, ErrInvalidCategory, ErrClassificationFailed},
			Handle:   capability.OptionalJSON(http.StatusOK, s.postReclassify)},
		{Method: "POST", Path: "/threads/:id/flags", Guard: capability.ControlPlane("support:threads:flag"), MaxBody: 4 << 10,
			Summary:  "Set flags of a thread.",
			Refusals: []*capability.Error{ErrNotFound},
			Handle:   capability.JSON(http.StatusOK, s.postFlags)},
	}, s.inboundRoutes()...)...)
}

// feedbackBody is the request body of a user's message.
type feedbackBody struct {
	ThreadID         string            `json:"threadId,omitempty"`
	Subject          string            `json:"subject,omitempty"`
	Message          string            `json:"message"`
	DeclaredCategory string            `json:"declaredCategory,omitempty"`
	Metadata         map[string]string `json:"metadata,omitempty"`
	Attachments      []string          `json:"attachments,omitempty"`
}

func (s *Support) postFeedback(c *capability.Call, body feedbackBody) (TicketDetail, error) {
	ticket, _, err := s.Submit(c.Context(), Feedback{
		UserID: c.Caller.UserID, ThreadID: body.ThreadID, Subject: body.Subject, Message: body.Message,
		DeclaredCategory: body.DeclaredCategory, Metadata: body.Metadata, Attachments: body.Attachments,
	})
	return ticket, err
}

func (s *Support) listFeedback(c *capability.Call, page capability.Page) (capability.Items[Ticket], error) {
	return s.ListTickets(c.Context(), c.Caller.UserID, page)
}

func (s *Support) getFeedback(c *capability.Call, _ capability.None) (TicketDetail, error) {
	return s.Ticket(c.Context(), c.Caller.UserID, c.Param("id"))
}

func (s *Support) listThreads(c *capability.Call, page capability.Page) (capability.Items[Thread], error) {
	return s.ListThreads(c.Context(), Filter{
		State: State(c.Query("state")), Category: c.Query("category"), Priority: Priority(c.Query("priority")),
		Sentiment: Sentiment(c.Query("sentiment")), Channel: Channel(c.Query("channel")), Flag: c.Query("flag"),
		Assignee: c.Query("assignee"), UserID: c.Query("userId"), Query: c.Query("q"),
	}, page)
}

func (s *Support) getThread(c *capability.Call, _ capability.None) (ThreadDetail, error) {
	return s.Thread(c.Context(), c.Param("id"))
}

func (s *Support) listReplies(c *capability.Call, page capability.Page) (capability.Items[Message], error) {
	return s.ListReplies(c.Context(), page)
}

// archiveBody is the request body of archive; Archived is true by default.
type archiveBody struct {
	Archived *bool `json:"archived,omitempty"`
}

func (s *Support) postArchive(c *capability.Call, body archiveBody) (Thread, error) {
	return s.Archive(c.Context(), c.Param("id"), body.Archived == nil || *body.Archived)
}

type replyBody struct {
	Message        string `json:"message"`
	HTML           string `json:"html,omitempty"`
	IdempotencyKey string `json:"idempotencyKey,omitempty"`
}

func (s *Support) postReply(c *capability.Call, body replyBody) (Message, error) {
	return s.Reply(c.Context(), Reply{ThreadID: c.Param("id"), Message: body.Message, HTML: body.HTML,
		IdempotencyKey: body.IdempotencyKey, Actor: c.Caller.ConnectionID})
}

// reclassifyBody is the request body of reclassify; without a category the thread is classified
// again.
type reclassifyBody struct {
	Category string `json:"category,omitempty"`
}

func (s *Support) postReclassify(c *capability.Call, body reclassifyBody) (Thread, error) {
	return s.Reclassify(c.Context(), c.Param("id"), body.Category)
}

type flagsBody struct {
	Flags FlagChange `json:"flags"`
}

func (s *Support) postFlags(c *capability.Call, body flagsBody) (Thread, error) {
	return s.SetFlags(c.Context(), c.Param("id"), body.Flags)
}
