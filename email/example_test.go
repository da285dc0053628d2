package email_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/url"
	"testing/fstest"
	"time"

	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/email"
	"github.com/kitbackend/kit/internal/seal"
	"github.com/kitbackend/kit/jobs"
)

// A mail commits with the row that caused it; without a provider it is stored in the mailbox.
func Example() {
	ctx := context.Background()
	db, err := database.OpenMemory()
	if err != nil {
		panic(err)
	}
	defer db.Close()
	keys, err := seal.Load(capability.Development, func(string) string { return "" })
	if err != nil {
		panic(err)
	}
	log := slog.New(slog.DiscardHandler)
	queue := jobs.New(db, nil, jobs.Options{Log: log})
	mail, err := email.New(capability.Host{
		DB: db, Jobs: queue, Log: log, Now: time.Now, Environment: capability.Development,
		Sealing: func() (capability.Sealer, error) { return keys, nil },
		BaseURL: &url.URL{Scheme: "https", Host: "app.example"},
	}, email.Config{
		Templates: fstest.MapFS{"welcome.txt": {Data: []byte(`{{define "subject"}}Welcome, {{.}}{{end}}Hello {{.}}, good to have you.`)}},
	}, email.Peers{})
	if err != nil {
		panic(err)
	}
	if err := queue.Register(mail.Capability().Jobs...); err != nil {
		panic(err)
	}
	if err := db.Migrate(ctx, jobs.Migrations(), database.Migrations{Name: email.Name, FS: mail.Capability().Migrations}); err != nil {
		panic(err)
	}

	err = db.InTx(ctx, func(ctx context.Context) error {
		_, err := mail.Send(ctx, email.Message{To: "ada@example.com", Template: "welcome", Data: "Ada", IdempotencyKey: "welcome:ada"})
		return err
	})
	if err != nil {
		panic(err)
	}
	if _, err := queue.RunDue(ctx); err != nil { // a server calls queue.Run
		panic(err)
	}
	kept, _, err := mail.LastMail(ctx, "ada@example.com")
	if err != nil {
		panic(err)
	}
	fmt.Println(kept.Subject)
	fmt.Println(kept.Text)
	// Output:
	// Welcome, Ada
	// Hello Ada, good to have you.
}
