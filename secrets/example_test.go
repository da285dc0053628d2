package secrets_test

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/jobs"
	"github.com/kitbackend/kit/pubsub"
	"github.com/kitbackend/kit/secrets"
)

// A capability declares its secret, an operator enters the values, and the program calls Get each
// time it needs one.
func Example() {
	ctx := context.Background()
	db, err := database.OpenMemory()
	if err != nil {
		panic(err)
	}
	defer db.Close()
	host := capability.Host{DB: db, PubSub: pubsub.NewMemory(), Log: slog.New(slog.DiscardHandler), Now: time.Now}
	host.Jobs = jobs.New(db, host.PubSub, jobs.Options{})
	kept, err := secrets.New(host, secrets.Config{Provider: secrets.NewMemory(time.Now)}, secrets.Peers{})
	if err != nil {
		panic(err)
	}
	c := kept.Capability()
	if err := host.Jobs.Register(c.Jobs...); err != nil {
		panic(err)
	}
	if err := db.Migrate(ctx, jobs.Migrations(), database.Migrations{Name: c.Name, FS: c.Migrations}); err != nil {
		panic(err)
	}

	handle, err := kept.Declare(secrets.Secret{
		Name:   "weather-api",
		Blocks: []secrets.Block{{Name: "login", Required: []string{"user", "key"}}},
	})
	if err != nil {
		panic(err)
	}
	_, err = kept.Rotate(ctx, "weather-api", secrets.Blocks{"login": {"user": secrets.NewValue("ada")}})
	fmt.Println(err)
	rotation, err := kept.Rotate(ctx, "weather-api", secrets.Blocks{"login": {
		"user": secrets.NewValue("ada"), "key": secrets.NewValue("s3cret"),
	}})
	if err != nil {
		panic(err)
	}
	fmt.Println(rotation.Status, rotation.ToVersion)

	current, err := handle.Get(ctx)
	if err != nil {
		panic(err)
	}
	login, _ := current.Block("login")
	fmt.Println(login["key"], len(login["key"].Reveal()))
	// Output:
	// secrets/incomplete_block: A block is given in full or not at all: login lacks key.
	// succeeded 1
	// [redacted] 6
}
