package main

import (
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/capability/capabilitytest"
	"github.com/kitbackend/kit/multiplayer"
)

// TestStory lets two players find each other by a room code, play for coins, and appear on the
// boards.
func TestStory(t *testing.T) {
	k := newKit(t)
	if err := seed(t.Context(), k.Kit); err != nil {
		t.Fatal(err)
	}
	ada, bob := k.Browser("ada"), k.Browser("bob")
	ada.Post("/leaderboard/league", `{"score":9999}`).Want(403, "leaderboard/submit_forbidden")
	for range 2 { // the daily coins are credited once
		var purse struct{ Available int64 }
		ada.Post("/arcade/welcome", nil).Want(200, "").JSON(&purse)
		if purse.Available != allowance {
			t.Errorf("%+v", purse)
		}
	}
	bob.Post("/arcade/welcome", nil).Want(200, "")
	var room struct{ Code, SessionID string }
	ada.Post("/matchmaking/games/bones/rooms", nil).Want(201, "").JSON(&room)
	bob.Post("/matchmaking/rooms/"+strings.ToLower(room.Code)+"/join", nil).Want(200, "")
	ada.Post("/multiplayer/sessions/"+room.SessionID+"/action", `{"resign":true}`).Want(200, "")

	var view multiplayer.View
	bob.Get("/multiplayer/sessions/"+room.SessionID).Want(200, "").JSON(&view)
	if view.Phase != multiplayer.PhaseResolved || view.Result.Ranks["bob"] != 1 || view.Fairness.Seed == nil {
		t.Errorf("%+v", view)
	}
	var purse struct{ Available, Held int64 }
	bob.Get("/ledger/coins").Want(200, "").JSON(&purse)
	if purse.Available != allowance+25 || purse.Held != 0 {
		t.Errorf("%+v", purse)
	}
	var standing struct{ Rank, Total int64 }
	bob.Get("/leaderboard/league/me").Want(200, "").JSON(&standing)
	if standing.Total != bots+2 || standing.Rank < 2 {
		t.Errorf("%+v", standing)
	}
	var rated struct{ GamesPlayed, XP int64 }
	bob.Get("/rating/games/bones/me").Want(200, "").JSON(&rated)
	if rated.GamesPlayed != 1 || rated.XP != 30 {
		t.Errorf("%+v", rated)
	}
	// Another device finds the running game, and which players are not connected.
	ada.Post("/matchmaking/games/eights/rooms", nil).Want(201, "").JSON(&room)
	var mine struct{ Items []running }
	ada.Get("/arcade/running").Want(200, "").JSON(&mine)
	if len(mine.Items) != 1 || mine.Items[0].SessionID != room.SessionID || mine.Items[0].Game != eights {
		t.Errorf("%+v", mine)
	}
	var there struct{ Online []string }
	ada.Get("/arcade/online/"+room.SessionID).Want(200, "").JSON(&there)
	if len(there.Online) != 0 {
		t.Errorf("%v are online without a socket", there.Online)
	}
	bob.Get("/arcade/online/"+room.SessionID).Want(403, "multiplayer/not_a_member")
	if err := seed(t.Context(), k.Kit); err != nil { // a second start adds nothing
		t.Fatal(err)
	}
	var again struct{ Total int64 }
	bob.Get("/leaderboard/league/me").Want(200, "").JSON(&again)
	if again.Total != standing.Total {
		t.Errorf("the board has %d entries after a second start, want %d", again.Total, standing.Total)
	}

	var health map[string]any
	k.Anonymous().Get("/arcade/health").Want(200, "").JSON(&health)
	if health["leaderboard.scores.league"] == nil || health["rating.pool.bones"] == nil {
		t.Errorf("%v", health)
	}
}

func TestPage(t *testing.T) {
	h, err := application(newKit(t).Kit)
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{"/": "<title>Arcade</title>", "/app.js": "import", "/style.css": ":root"} {
		rec := httptest.NewRecorder()
		h.ServeHTTP(rec, httptest.NewRequest("GET", path, nil))
		if rec.Code != 200 || !strings.Contains(rec.Body.String(), want) {
			t.Errorf("%s: %d", path, rec.Code)
		}
	}
}

func TestSuite(t *testing.T) {
	capabilitytest.Run(t, func(capability.Host, string) (capability.Capability, error) {
		c := newArcade(nil).capability()
		c.Prefix = "" // mounted where the page expects it
		return c, nil
	})
}
