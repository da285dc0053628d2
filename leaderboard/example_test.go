package leaderboard_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/leaderboard"
)

// Scores are submitted; a player reads the top of the board and the entries around their own.
func Example() {
	ctx := context.Background()
	boards, _, _, done := exampleBoards()
	defer done()

	for i, user := range []string{"ada", "bob", "cyd", "dan", "eve"} {
		_, _ = boards.Submit(ctx, leaderboard.Submission{Board: "arcade", UserID: user, Score: int64(900 - 100*i)})
	}
	_, _ = boards.Submit(ctx, leaderboard.Submission{Board: "arcade", UserID: "dan", Score: 750})

	arcade := leaderboard.View{Board: "arcade"}
	me, err := boards.Me(ctx, arcade, "dan")
	fmt.Printf("dan: %d of %d, %s, ahead of %g %%, %v\n", me.Rank, me.Total, me.Entry.Tier, me.Percentile, err)

	top, _ := boards.ListTop(ctx, arcade, capability.NewPage(2, ""))
	around, _ := boards.Around(ctx, arcade, "dan", 3)
	friends, _ := boards.Segment(ctx, arcade, "eve", "ada")
	show := func(what string, list []leaderboard.Ranked) {
		fmt.Print(what)
		for _, r := range list {
			fmt.Printf(" %d. %s %d", r.Rank, r.UserID, r.Score)
		}
		fmt.Println()
	}
	show("top:", top.Items)
	show("around dan:", around.Items)
	show("friends:", friends.Items)
	// Output:
	// dan: 3 of 5, gold, ahead of 40 %, <nil>
	// top: 1. ada 900 2. bob 800
	// around dan: 2. bob 800 3. dan 750 4. cyd 700
	// friends: 1. ada 900 5. eve 500
}

// A score commits with the caller's own rows, or not at all.
func ExampleLeaderboard_Submit() {
	ctx := context.Background()
	boards, db, _, done := exampleBoards()
	defer done()

	err := db.InTx(ctx, func(ctx context.Context) error {
		if _, err := boards.Submit(ctx, leaderboard.Submission{Board: "arcade", UserID: "ada", Score: 900}); err != nil {
			return err
		}
		return errors.New("the match was cancelled")
	})
	fmt.Println(err)
	_, err = boards.Me(ctx, leaderboard.View{Board: "arcade"}, "ada")
	fmt.Println(errors.Is(err, leaderboard.ErrEntryNotFound))
	// Output:
	// the match was cancelled
	// true
}

// A board with windows starts anew at each instant of its schedule. The closed windows stay, under
// the instants they opened at.
func ExampleLeaderboard_Boards() {
	ctx := context.Background()
	boards, _, clock, done := exampleBoards()
	defer done()

	for week := range 3 {
		_, _ = boards.Submit(ctx, leaderboard.Submission{Board: "weekly", UserID: "ada", Score: int64(week)})
		clock.advance(7 * 24 * time.Hour)
	}
	list, _ := boards.Boards(ctx)
	weekly := list[1]
	fmt.Println(weekly.Open, "until", weekly.ClosesAt.Format(time.DateOnly))
	for _, window := range weekly.Closed {
		me, _ := boards.Me(ctx, leaderboard.View{Board: "weekly", Window: window}, "ada")
		fmt.Println(window, me.Entry.Score)
	}
	// Output:
	// 20261207T0000Z until 2026-12-14
	// 20261130T0000Z 2
	// 20261123T0000Z 1
	// 20261116T0000Z 0
}

// exampleBoards does what kit.New does with kit.WithLeaderboard.
func exampleBoards() (boards *leaderboard.Leaderboard, db *database.DB, at *clock, done func()) {
	db, err := database.OpenMemory()
	if err != nil {
		panic(err)
	}
	at = newClock()
	db.UseClock(at.Now)
	boards, err = leaderboard.New(capability.Host{DB: db, Now: at.Now}, leaderboard.Config{Boards: []leaderboard.Board{
		{Key: "arcade", Direction: leaderboard.DirectionDescending, Aggregation: leaderboard.AggregationBest,
			Tiers: []leaderboard.Tier{{Key: "silver", Min: 0}, {Key: "gold", Min: 700}}},
		{Key: "weekly", Direction: leaderboard.DirectionDescending, Aggregation: leaderboard.AggregationSum, Window: "0 0 * * 1"},
	}}, leaderboard.Peers{})
	if err != nil {
		panic(err)
	}
	if err := db.Migrate(context.Background(), database.Migrations{Name: leaderboard.Name, FS: boards.Capability().Migrations}); err != nil {
		panic(err)
	}
	return boards, db, at, func() {
		if err := errors.Join(boards.Capability().Close(context.Background()), db.Close()); err != nil {
			panic(err)
		}
	}
}
