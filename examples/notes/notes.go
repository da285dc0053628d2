package main

import (
	"net/http"

	"github.com/kitbackend/kit"
	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/vector"
)

const index = "notes"

// notes is the capability of the application: the first notes of a new user, and the list. Writing,
// searching and deleting use the routes of vector.
type notes struct{ k *kit.Kit }

func (n notes) capability() capability.Capability {
	return capability.Capability{
		Name: "notes", Version: "1.0.0", Prefix: "/notes",
		NoUserData: "the notes are documents of vector",
		Routes: capability.Mount("/notes",
			capability.Route{Method: http.MethodPost, Path: "/welcome", Guard: capability.User(),
				Summary: "Some notes for a user who has none.", Handle: capability.JSON(http.StatusOK, n.postWelcome)},
			capability.Route{Method: http.MethodGet, Path: "/all", Guard: capability.User(),
				Summary: "The caller's notes.", Handle: capability.List(n.getAll)},
		),
	}
}

func space(c *capability.Call) vector.Space {
	return vector.Space{Index: index, OwnerID: c.Caller.UserID}
}

// welcomed is the response of postWelcome: the number of notes.
type welcomed struct {
	Notes int64 `json:"notes"`
}

// postWelcome creates the first notes under fixed ids, so that two tabs create them once.
func (n notes) postWelcome(c *capability.Call, _ capability.None) (welcomed, error) {
	count, err := n.k.Vector().Count(c.Context(), space(c), nil)
	if err != nil || count > 0 {
		return welcomed{count}, err
	}
	_, err = n.k.Vector().Upsert(c.Context(), space(c), first()...)
	return welcomed{int64(len(first()))}, err
}

func (n notes) getAll(c *capability.Call, page capability.Page) (capability.Items[vector.Stored], error) {
	return n.k.Vector().Scroll(c.Context(), space(c), page)
}

// first returns the first notes of a new user.
func first() (list []vector.Document) {
	for _, n := range []struct{ id, colour, text string }{
		{"first-01", "amber", "Sourdough: feed the starter in the evening, knead in the morning, bake at 250 degrees in the iron pot."},
		{"first-02", "amber", "Lentil soup with carrots and cumin. Grandmother adds a spoon of vinegar at the very end."},
		{"first-03", "blue", "Change the tyres of the car before November. The garage on Mill Street opens at eight."},
		{"first-04", "blue", "The bicycle needs a new chain and the brakes squeak when it rains."},
		{"first-05", "green", "Water the tomatoes every evening, the basil every other day. Prune the apple tree in February."},
		{"first-06", "green", "Sow carrots and radishes in rows, a hand apart; cover them with fleece while nights are cold."},
		{"first-07", "rose", "Anna's birthday is on the ninth of May. She would like the atlas of islands."},
		{"first-08", "rose", "Call the dentist about the appointment on Thursday."},
		{"first-09", "blue", "Train to Vienna leaves at 7:42 from platform 11; the night train back has sleepers."},
		{"first-10", "green", "The blackbird builds a nest in the ivy above the kitchen window."},
		{"first-11", "amber", "Coffee: 16 grams, water just off the boil, three and a half minutes."},
		{"first-12", "rose", "Read the chapter on tides again: why are there two high waters in a day?"},
	} {
		list = append(list, vector.Document{ID: n.id, Text: n.text, Metadata: map[string]any{"colour": n.colour}})
	}
	return list
}
