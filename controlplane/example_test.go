package controlplane_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/url"
	"time"

	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/controlplane"
	"github.com/kitbackend/kit/controlplane/client"
	"github.com/kitbackend/kit/database"
)

// A customer generates a key; the operator of the service connects its public half.
func Example() {
	ctx := context.Background()
	db, err := database.OpenMemory()
	if err != nil {
		panic(err)
	}
	defer db.Close()
	base, err := url.Parse("https://example.com")
	if err != nil {
		panic(err)
	}
	cp, err := controlplane.New(capability.Host{
		DB: db, Log: slog.New(slog.DiscardHandler), Now: time.Now, Environment: capability.Sandbox, BaseURL: base,
	}, controlplane.Config{}, controlplane.Peers{})
	if err != nil {
		panic(err)
	}
	if err := db.Migrate(ctx, database.Migrations{Name: controlplane.Name, FS: cp.Capability().Migrations}); err != nil {
		panic(err)
	}

	identity, err := client.Generate("https://example.com/control-plane", capability.Sandbox, "https://console.example.com")
	if err != nil {
		panic(err)
	}
	err = cp.Connect(ctx, controlplane.Connection{Issuer: identity.Issuer, PublicKey: controlplane.NewJWK(identity.Public())})
	if err != nil {
		panic(err)
	}

	keys, err := cp.Keys(ctx)
	if err != nil {
		panic(err)
	}
	fmt.Println(len(keys), keys[0].Status, keys[0].ID == identity.KeyID())
	// Output: 1 active true
}
