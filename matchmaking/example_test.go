package matchmaking_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/jobs"
	"github.com/kitbackend/kit/kittest"
	"github.com/kitbackend/kit/matchmaking"
	"github.com/kitbackend/kit/pubsub"
)

// Two players wait and are paired by the next sweep. The game has no snapshot, so the application
// decides what to do with the match.
func Example() {
	ctx := context.Background()
	m, queue, clock, done := exampleMatchmaking()
	defer done()

	_, _ = m.Enqueue(ctx, "darts", "eu", "ada")
	_, _ = m.Enqueue(ctx, "darts", "eu", "bob")
	waiting, _ := m.Status(ctx, "darts", "ada")
	fmt.Println(waiting.State)

	clock.Advance(5e9) // to the next sweep, which queue.Run runs
	_, _ = queue.RunDue(ctx)
	found, _ := m.Status(ctx, "darts", "ada")
	match, _, err := m.Match(ctx, found.MatchID)
	fmt.Println(found.State, len(match.Players), match.Region, err)
	// Output:
	// waiting
	// matched 2 eu <nil>
}

// Two users who send each other a request become friends. A blocked user cannot find the user who
// blocked them.
func ExampleMatchmaking_Block() {
	ctx := context.Background()
	m, _, _, done := exampleMatchmaking()
	defer done()

	_, _ = m.RequestFriend(ctx, "ada", "bob")
	friend, err := m.RequestFriend(ctx, "bob", "ada")
	fmt.Println(friend.UserID, friend.State, err)

	_ = m.Block(ctx, "ada", "bob")
	_, err = m.RequestFriend(ctx, "bob", "ada")
	fmt.Println(errors.Is(err, matchmaking.ErrUserNotFound))
	// Output:
	// ada accepted <nil>
	// true
}

// exampleMatchmaking does what kit.New does with kit.WithMatchmaking.
func exampleMatchmaking() (m *matchmaking.Matchmaking, queue *jobs.Queue, clock *kittest.Clock, done func()) {
	db, err := database.OpenMemory()
	if err != nil {
		panic(err)
	}
	clock, bus := kittest.NewClock(), pubsub.NewMemory()
	db.UseClock(clock.Now)
	queue = jobs.New(db, bus, jobs.Options{Now: clock.Now})
	host := capability.Host{DB: db, Jobs: queue, PubSub: bus, Now: clock.Now}
	m, err = matchmaking.New(host, matchmaking.Config{
		Games: []matchmaking.Game{{Key: "darts", Players: 2, Regions: []string{"eu", "us"}}},
	}, matchmaking.Peers{})
	if err != nil {
		panic(err)
	}
	c := m.Capability()
	if err := db.Migrate(context.Background(), jobs.Migrations(), database.Migrations{Name: c.Name, FS: c.Migrations}); err != nil {
		panic(err)
	}
	if err := queue.Register(c.Jobs...); err != nil {
		panic(err)
	}
	return m, queue, clock, func() { _ = c.Close(context.Background()); _ = db.Close() }
}
