package audit_test

import (
	"context"
	"fmt"

	"github.com/kitbackend/kit/audit"
	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/database"
)

// An event commits together with the change it describes.
func Example() {
	ctx := context.Background()
	db, err := database.OpenMemory()
	if err != nil {
		panic(err)
	}
	defer db.Close()
	trail, err := audit.New(capability.Host{DB: db, Environment: capability.Sandbox}, audit.Config{}, audit.Peers{})
	if err != nil {
		panic(err)
	}
	if err := db.Migrate(ctx, database.Migrations{Name: audit.Name, FS: trail.Capability().Migrations}); err != nil {
		panic(err)
	}

	err = db.InTx(ctx, func(ctx context.Context) error {
		// ... change something ...
		return trail.Record(ctx, audit.Event{
			Action:  "shop/order_placed",
			Actor:   audit.Actor{Kind: audit.ActorUser, ID: "ada"},
			Subject: audit.Target{Type: "order", ID: "42"},
		})
	})
	if err != nil {
		panic(err)
	}

	events, err := trail.ListEvents(ctx, audit.Filter{Namespace: "shop"}, capability.NewPage(10, ""))
	if err != nil {
		panic(err)
	}
	for _, e := range events.Items {
		fmt.Println(e.Actor.ID, e.Action, e.Subject.ID, e.Outcome)
	}
	// Output: ada shop/order_placed 42 succeeded
}
