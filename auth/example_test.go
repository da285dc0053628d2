package auth_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/url"
	"time"

	"github.com/kitbackend/kit/auth"
	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/internal/seal"
	"github.com/kitbackend/kit/pubsub"
)

// The application grants a scope by issuing a token for a user.
func Example() {
	ctx := context.Background()
	db, err := database.OpenMemory()
	if err != nil {
		panic(err)
	}
	defer db.Close()
	keys, err := seal.Load(capability.Sandbox, func(string) string { return "" })
	if err != nil {
		panic(err)
	}
	users, err := auth.New(capability.Host{
		DB: db, PubSub: pubsub.NewMemory(), Log: slog.Default(), Now: time.Now,
		BaseURL: &url.URL{Scheme: "https", Host: "api.example.com"},
	}, auth.Config{}, auth.Peers{Keys: keys})
	if err != nil {
		panic(err)
	}
	if err := db.Migrate(ctx, database.Migrations{Name: auth.Name, FS: users.Capability().Migrations}); err != nil {
		panic(err)
	}

	if err := users.EnsureUser(ctx, "game-server"); err != nil {
		panic(err)
	}
	token, err := users.IssueToken(ctx, "game-server", []string{"leaderboard:submit"}, 10*time.Minute)
	if err != nil {
		panic(err)
	}

	caller, err := users.Users().Bearer(ctx, token)
	if err != nil {
		panic(err)
	}
	fmt.Println(caller.UserID, caller.Scopes)
	// Output: game-server [leaderboard:submit]
}
