package main

import (
	"context"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/capability/capabilitytest"
	"github.com/kitbackend/kit/kittest"
)

func TestStory(t *testing.T) {
	k := kittest.New(t, options("http://localhost:8080")...)
	if err := seed(context.Background(), k.Kit); err != nil {
		t.Fatal(err)
	}
	ada := k.Browser("ada")
	ada.Post("/leaderboard/bests", `{"score":9999}`).Want(403, "leaderboard/submit_forbidden")
	var round struct {
		Score, Rank, Total int64
		Entry              struct{ Score int64 }
	}
	ada.Post("/arcade/play", nil).Want(200, "").JSON(&round)
	if round.Total != players+1 || round.Rank < 1 || round.Rank > players+1 || round.Entry.Score != round.Score {
		t.Errorf("%+v", round)
	}
	var fight struct {
		Against string
		Won     bool
		Rating  struct{ GamesPlayed, XP int64 }
	}
	ada.Post("/arcade/duel", nil).Want(200, "").JSON(&fight)
	if want := map[bool]int64{true: 30, false: 10}[fight.Won]; fight.Rating.GamesPlayed != 1 || fight.Rating.XP != want {
		t.Errorf("%+v", fight)
	}
	var top struct {
		Items []struct{ Rank, Score int64 }
	}
	ada.Get("/leaderboard/bests/top?limit=10").Want(200, "").JSON(&top)
	for i, entry := range top.Items {
		if entry.Rank != int64(i+1) || i > 0 && entry.Score > top.Items[i-1].Score {
			t.Errorf("top: %+v", top)
		}
	}
	var health map[string]any
	k.Anonymous().Get("/arcade/health").Want(200, "").JSON(&health)
	if health["leaderboard.scores.bests"] == nil || health["rating.pool.duel"] == nil {
		t.Errorf("%v", health)
	}
	h, err := application(k.Kit)
	if err != nil {
		t.Fatal(err)
	}
	rec := httptest.NewRecorder()
	h.ServeHTTP(rec, httptest.NewRequest("GET", "/", nil))
	if rec.Code != 200 || !strings.Contains(rec.Body.String(), "<title>Arcade</title>") {
		t.Errorf("page: %d", rec.Code)
	}
}

func TestSuite(t *testing.T) {
	capabilitytest.Run(t, func(capability.Host, string) (capability.Capability, error) {
		c := newArcade(nil).capability()
		c.Prefix = "" // it is mounted where the page expects it
		return c, nil
	})
}
