package matchmaking_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/kitbackend/kit/matchmaking"
)

// TestRefusalsOfFriendsAndInvites produces the codes that TestHTTP does not.
func TestRefusalsOfFriendsAndInvites(t *testing.T) {
	r := newRig(t, matchmaking.Config{})
	const games, inviteList, friends = "/matchmaking/games/", "/matchmaking/invites/", "/matchmaking/friends/"
	ada, bob, eve := r.User("ada"), r.User("bob"), r.User("eve")
	to := func(userID string) map[string]string { return map[string]string{"userId": userID} }

	ada.Post(games+"alone/invites", to("bob")).Want(501, "matchmaking/no_sessions")
	r.ok(r.Block(t.Context(), "ada", "bob"))
	ada.Post(games+"duel/invites", to("bob")).Want(403, "matchmaking/invite_forbidden")
	r.ok(r.Unblock(t.Context(), "ada", "bob"))

	var v matchmaking.Invite
	ada.Post(games+"duel/invites", to("bob")).Want(201, "").JSON(&v)
	for i := range 49 {
		r.User(fmt.Sprint("u", i))
		r.Clock.Advance(3 * time.Second) // within the rate limit of the route
		ada.Post(games+"duel/invites", to(fmt.Sprint("u", i))).Want(201, "")
	}
	ada.Post(games+"duel/invites", to("eve")).Want(409, "matchmaking/limit_reached")
	eve.Post(inviteList+v.ID+"/decline", nil).Want(403, "matchmaking/invite_forbidden")
	for game, refusal := range map[string]struct {
		status int
		code   string
	}{"gone": {404, "matchmaking/game_not_found"}, "alone": {501, "matchmaking/no_sessions"}} {
		r.ok(errorOf(r.Database().Exec(t.Context(), `UPDATE matchmaking_invite SET game = $1`, game)))
		bob.Post(inviteList+v.ID+"/accept", nil).Want(refusal.status, refusal.code)
	}

	ada.Post(friends+"bob/request", nil).Want(200, "")
	bob.Post(friends+"ada/accept", nil).Want(200, "")
	bob.Post(friends+"ada/accept", nil).Want(409, "matchmaking/already_friends")
	bob.Post(friends+"eve/request", nil).Want(200, "")
	ada.Post(friends+"eve/request", nil).Want(200, "")
	r.bonds("ada", "accepted", 1000)
	eve.Post(friends+"ada/accept", nil).Want(409, "matchmaking/limit_reached")
	r.bonds("bob", "requested", 1000)
	r.User("sam")
	bob.Post(friends+"sam/request", nil).Want(409, "matchmaking/limit_reached")
}
