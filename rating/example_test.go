package rating_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/kitbackend/kit"
	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/rating"
)

func Example() {
	ratings, end := compose(rating.Config{Games: []rating.Game{{
		Key: "chess", Algorithm: "glicko", XP: &rating.XP{Win: 30, Draw: 20, Loss: 10},
		Levels: []rating.Level{{Key: "pawn", MinXP: 0}, {Key: "knight", MinXP: 25}},
	}}})
	defer end()

	result, err := ratings.Record(context.Background(), "chess", rating.Outcome{
		Ranks: map[string]int{"ada": 1, "bob": 2},
		Key:   "session 17", // a retry counts once
	})
	if err != nil {
		log.Fatal(err)
	}
	for _, p := range result.Players {
		fmt.Printf("%s: skill %.0f, %d XP, %s\n", p.UserID, *p.After.Skill, p.After.XP, p.After.Level)
	}
	// Output:
	// ada: skill 1082, 30 XP, knight
	// bob: skill 757, 10 XP, pawn
}

// An application's own algorithm: the winner takes a tenth of what the loser has.
func ExampleDefine() {
	type params struct {
		Start float64 `json:"start"`
	}
	type purse struct {
		Coins float64 `json:"coins"`
	}
	stakes := rating.Define(rating.Definition[params, purse]{
		ID: "stakes",
		Params: `{"type": "object", "additionalProperties": false, "properties": {
			"start": {"type": "number", "minimum": 1, "default": 100}}}`,
		State: `{"type": "object", "additionalProperties": false, "required": ["coins"], "properties": {
			"coins": {"type": "number", "minimum": 0}}}`,
		MaxPlayers: 2,
		Initial:    func(p params) purse { return purse{p.Start} },
		Update: func(_ params, sides []rating.Side[purse]) [][]purse {
			winner, loser := sides[0].Players[0], sides[1].Players[0]
			if sides[1].Place > 1 {
				stake := loser.Coins / 10
				winner.Coins += stake
				loser.Coins -= stake
			}
			return [][]purse{{winner}, {loser}}
		},
		Skill: func(_ params, p purse) float64 { return p.Coins },
	})
	ratings, end := compose(rating.Config{
		Algorithms: []rating.Algorithm{stakes},
		Games:      []rating.Game{{Key: "dice", Algorithm: "stakes", XP: &rating.XP{}, AlgoParams: map[string]any{"start": 50}}},
	})
	defer end()

	result, err := ratings.Record(context.Background(), "dice", rating.Outcome{Ranks: map[string]int{"ada": 1, "bob": 2}})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(*result.Players[0].After.Skill, *result.Players[1].After.Skill)
	// Output: 55 45
}

// compose makes a kit in memory with rating.
func compose(cfg rating.Config) (ratings *rating.Rating, end func()) {
	db, err := database.OpenMemory()
	if err != nil {
		log.Fatal(err)
	}
	k, err := kit.New(kit.WithDatabase(db), kit.WithCapability(func(k *kit.Kit) (capability.Capability, error) {
		if ratings, err = rating.New(k.Host(), cfg, rating.Peers{Audit: k.Audit()}); err != nil {
			return capability.Capability{}, err
		}
		return ratings.Capability(), nil
	}))
	if err != nil {
		log.Fatal(err)
	}
	return ratings, func() {
		if err := errors.Join(k.Close(context.Background()), db.Close()); err != nil {
			log.Fatal(err)
		}
	}
}
