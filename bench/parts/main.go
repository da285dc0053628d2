// Command parts puts the parts of examples/minimal together by hand, without package kit, to compare
// the sizes of the two programs.
package main

import (
	"context"
	"log"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"sync"
	"time"

	"github.com/kitbackend/kit/auth"
	"github.com/kitbackend/kit/auth/signin"
	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/hooks"
	"github.com/kitbackend/kit/internal/mount"
	"github.com/kitbackend/kit/internal/seal"
	"github.com/kitbackend/kit/jobs"
	"github.com/kitbackend/kit/ledger"
	"github.com/kitbackend/kit/pubsub"
)

func main() {
	if err := run(context.Background()); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context) error {
	db, err := database.OpenMemory()
	if err != nil {
		return err
	}
	logger := slog.Default()
	bus := pubsub.NewMemory()
	queue := jobs.New(db, bus, jobs.Options{Log: logger, Now: time.Now})
	base := &url.URL{Scheme: "http", Host: "localhost:8080"}
	host := capability.Host{
		DB: db, Jobs: queue, PubSub: bus, Log: logger, Now: time.Now, Environment: capability.Development, BaseURL: base, InternalPrefix: "/__kit",
		Sealing: sync.OnceValues(func() (capability.Sealer, error) { return seal.Load(capability.Development, os.Getenv) }),
		Hooks:   hooks.New(),
	}
	a, err := auth.New(host, auth.Config{Library: signin.New(signin.Config{})}, auth.Peers{})
	if err != nil {
		return err
	}
	l, err := ledger.New(host, ledger.Config{Currencies: []ledger.Currency{{Code: "coins", Name: "Coins"}}}, ledger.Peers{})
	if err != nil {
		return err
	}
	var table []mount.Entry
	migrations := []database.Migrations{jobs.Migrations(), mount.Migrations()}
	for _, c := range []capability.Capability{a.Capability(), l.Capability()} {
		for _, r := range c.Routes {
			table = append(table, mount.Entry{Domain: c.Domain(), Route: r, DB: db})
		}
		migrations = append(migrations, database.Migrations{Name: c.Name, FS: c.Migrations})
		if err := queue.Register(c.Jobs...); err != nil {
			return err
		}
	}
	if err := db.Migrate(ctx, migrations...); err != nil {
		return err
	}
	users := a.Users()
	handler := mount.New(mount.Config{Entries: table, Users: &users, DB: db, Log: logger, Now: time.Now, BaseURL: base})
	go func() { log.Fatal(queue.Run(ctx)) }()
	return http.ListenAndServe("localhost:8080", handler)
}
