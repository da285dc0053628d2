package matchmaking

import (
	"slices"

	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/multiplayer"
)

// maxBody bounds request bodies, in bytes.
const maxBody = 4 << 10

func (m *Matchmaking) routes() []capability.Route {
	user := capability.User()
	begun := slices.Clip(multiplayer.PlayRefusals())
	routes := []capability.Route{
		{Method: "POST", Path: "/games/:game/rooms", Guard: user,
			Summary:  "Open a room: a session that others join by a code.",
			Refusals: append(begun, multiplayer.ErrInvalidTransition, ErrGameNotFound, ErrNoSessions, ErrLimitReached),
			Handle:   capability.JSON(201, m.postRoom)},
		{Method: "POST", Path: "/rooms/:code/join", Guard: user,
			Summary:  "Join the session of a room code.",
			Refusals: append(begun, ErrRoomNotFound, ErrRoomFull, ErrInvalidCode),
			Handle:   capability.JSON(200, m.postJoin)},
		{Method: "POST", Path: "/games/:game/invites", Guard: user,
			Summary: "Invite a user, by id or screen name.", MaxBody: maxBody,
			Refusals: []*capability.Error{ErrGameNotFound, ErrNoSessions, ErrUserNotFound, ErrInviteForbidden, ErrLimitReached, capability.ErrRateLimited},
			Handle:   capability.JSON(201, m.postInvite)},
		{Method: "GET", Path: "/invites", Guard: user,
			Summary: "The invites that the caller got or sent, newest first.",
			Handle:  capability.List(m.listInvites)},
		{Method: "POST", Path: "/invites/:id/accept", Guard: user,
			Summary:  "Accept an invite; the response carries the session.",
			Refusals: append(begun, multiplayer.ErrInvalidTransition, ErrInviteNotFound, ErrInviteForbidden, ErrGameNotFound, ErrNoSessions, ErrRoomNotFound, ErrRoomFull),
			Handle:   capability.JSON(200, m.postAcceptInvite)},
		{Method: "POST", Path: "/invites/:id/decline", Guard: user,
			Summary:  "Decline an invite.",
			Refusals: []*capability.Error{ErrInviteNotFound, ErrInviteForbidden},
			Handle:   capability.JSON(204, m.postDeclineInvite)},
	}
	if !m.cfg.NoFriends {
		routes = append(routes, m.friendRoutes()...)
	}
	routes = append(routes,
		capability.Route{Method: "POST", Path: "/games/:game/queue", Guard: user,
			Summary: "Wait for a match.", MaxBody: maxBody,
			Refusals: []*capability.Error{ErrGameNotFound, capability.ErrRateLimited},
			Handle:   capability.OptionalJSON(202, m.postQueue)},
		capability.Route{Method: "GET", Path: "/games/:game/queue", Guard: user,
			Summary:  "How the caller stands in the queue.",
			Refusals: []*capability.Error{ErrGameNotFound, ErrNotQueued},
			Handle:   capability.JSON(200, m.getQueue)},
		capability.Route{Method: "DELETE", Path: "/games/:game/queue", Guard: user,
			Summary:  "Leave the queue.",
			Refusals: []*capability.Error{ErrGameNotFound, ErrNotQueued},
			Handle:   capability.JSON(204, m.deleteQueue)},
		capability.Route{Method: "GET", Path: "/presence", Guard: user,
			Summary: "A WebSocket that is told of matches, invites and friends.",
			Handle:  capability.Socket(m.presence.accept).Sends(matchFound{}, matchFailed{}, invited{}, friendRequested{}, friendsOnline{})},
	)
	return capability.Mount(m.cfg.BasePath, routes...)
}

func (m *Matchmaking) friendRoutes() []capability.Route {
	user := capability.User()
	return []capability.Route{
		{Method: "GET", Path: "/friends", Guard: user,
			Summary: "The caller's friends, and requests from and to the caller.",
			Handle:  capability.List(m.listFriends)},
		{Method: "POST", Path: "/friends/:userId/request", Guard: user,
			Summary:  "Ask a user to be a friend.",
			Refusals: []*capability.Error{ErrUserNotFound, ErrAlreadyFriends, ErrLimitReached, capability.ErrRateLimited},
			Handle:   capability.JSON(200, m.postRequest)},
		{Method: "POST", Path: "/friends/:userId/accept", Guard: user,
			Summary:  "Accept a friend request.",
			Refusals: []*capability.Error{ErrFriendRequestNotFound, ErrAlreadyFriends, ErrLimitReached},
			Handle:   capability.JSON(200, m.postAcceptFriend)},
		{Method: "POST", Path: "/friends/:userId/decline", Guard: user,
			Summary:  "Decline a friend request.",
			Refusals: []*capability.Error{ErrFriendRequestNotFound},
			Handle:   capability.JSON(204, m.postDeclineFriend)},
		{Method: "DELETE", Path: "/friends/:userId", Guard: user,
			Summary:  "End a friendship, or take back a request.",
			Refusals: []*capability.Error{ErrUserNotFound},
			Handle:   capability.JSON(204, m.deleteFriend)},
	}
}

func (m *Matchmaking) postRoom(c *capability.Call, _ capability.None) (Room, error) {
	return m.OpenRoom(c.Context(), c.Param("game"), c.Caller.UserID)
}

func (m *Matchmaking) postJoin(c *capability.Call, _ capability.None) (Joined, error) {
	return m.JoinRoom(c.Context(), c.Param("code"), c.Caller.UserID)
}

func (m *Matchmaking) postInvite(c *capability.Call, body Invitee) (Invite, error) {
	return m.SendInvite(c.Context(), c.Param("game"), c.Caller.UserID, body)
}

func (m *Matchmaking) listInvites(c *capability.Call, page capability.Page) (capability.Items[Invite], error) {
	return m.ListInvites(c.Context(), c.Caller.UserID, page)
}

func (m *Matchmaking) postAcceptInvite(c *capability.Call, _ capability.None) (Invite, error) {
	return m.AcceptInvite(c.Context(), c.Param("id"), c.Caller.UserID)
}

func (m *Matchmaking) postDeclineInvite(c *capability.Call, _ capability.None) (capability.None, error) {
	return capability.None{}, m.DeclineInvite(c.Context(), c.Param("id"), c.Caller.UserID)
}

func (m *Matchmaking) listFriends(c *capability.Call, page capability.Page) (capability.Items[Friend], error) {
	return m.ListFriends(c.Context(), c.Caller.UserID, page)
}

func (m *Matchmaking) postRequest(c *capability.Call, _ capability.None) (Friend, error) {
	return m.RequestFriend(c.Context(), c.Caller.UserID, c.Param("userId"))
}

func (m *Matchmaking) postAcceptFriend(c *capability.Call, _ capability.None) (Friend, error) {
	return m.AcceptFriend(c.Context(), c.Caller.UserID, c.Param("userId"))
}

func (m *Matchmaking) postDeclineFriend(c *capability.Call, _ capability.None) (capability.None, error) {
	return capability.None{}, m.DeclineFriend(c.Context(), c.Caller.UserID, c.Param("userId"))
}

func (m *Matchmaking) deleteFriend(c *capability.Call, _ capability.None) (capability.None, error) {
	return capability.None{}, m.RemoveFriend(c.Context(), c.Caller.UserID, c.Param("userId"))
}

type queueBody struct {
	// Region is by default the game's first.
	Region string `json:"region,omitempty"`
}

func (m *Matchmaking) postQueue(c *capability.Call, body queueBody) (Queued, error) {
	return m.Enqueue(c.Context(), c.Param("game"), body.Region, c.Caller.UserID)
}

func (m *Matchmaking) getQueue(c *capability.Call, _ capability.None) (Queued, error) {
	return m.Status(c.Context(), c.Param("game"), c.Caller.UserID)
}

func (m *Matchmaking) deleteQueue(c *capability.Call, _ capability.None) (capability.None, error) {
	return capability.None{}, m.Leave(c.Context(), c.Param("game"), c.Caller.UserID)
}
