package kit_test

import (
	"bytes"
	"context"
	"embed"
	"errors"
	"fmt"
	"image"
	"image/png"
	"io"
	"log"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/bcrypt"

	"github.com/kitbackend/kit"
	"github.com/kitbackend/kit/audit"
	"github.com/kitbackend/kit/auth"
	"github.com/kitbackend/kit/auth/signin"
	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/database/databasetest"
	"github.com/kitbackend/kit/database/postgres"
	"github.com/kitbackend/kit/email"
	"github.com/kitbackend/kit/hooks"
	"github.com/kitbackend/kit/jobs"
	"github.com/kitbackend/kit/kitcmd"
	"github.com/kitbackend/kit/kittest"
	"github.com/kitbackend/kit/ledger"
	"github.com/kitbackend/kit/media"
	"github.com/kitbackend/kit/payments"
	"github.com/kitbackend/kit/payments/androidstore"
	"github.com/kitbackend/kit/payments/cardprocessor"
	"github.com/kitbackend/kit/payments/iosstore"
	"github.com/kitbackend/kit/payments/merchanta"
	"github.com/kitbackend/kit/payments/merchantb"
	"github.com/kitbackend/kit/secrets"
	"github.com/kitbackend/kit/storage"
	"github.com/kitbackend/kit/storage/bucket/s3"
)

// The snippets of docs/*.md are taken from here and from the other examples.

func composeShop(db *database.DB) (*kit.Kit, error) {
	return kit.New(
		kit.WithDatabase(db),
		kit.WithEnvironment("sandbox"),
		kit.WithAudit(audit.Config{}),
		kit.WithEmail(email.Config{}),
		kit.WithAuth(auth.Config{}),
		kit.WithLedger(ledger.Config{Currencies: []ledger.Currency{{Code: "coins", Name: "Coins"}}}),
	)
}

// Every fault of a composition is reported at once, with what to do.
func Example_faults() {
	_, err := kit.New(
		kit.WithEnvironment("production"),
		kit.WithBaseURL("http://example.com"),
		kit.WithLedger(ledger.Config{}),
	)
	var fault *capability.Fault
	if errors.As(err, &fault) {
		fmt.Println(fault.Key, fault.Reason)
	}
	// Output: baseURL is plain http in production
}

// A hook runs inside the transaction of the change: what it writes commits with
// the account, and its error refuses the sign-up.
func Example_hooks() {
	ctx := context.Background()
	k := composing(kit.WithAuth(auth.Config{}), kit.WithLedger(ledger.Config{Currencies: []ledger.Currency{{Code: "coins", Name: "Coins"}}}))
	defer k.Close(ctx)
	k.Hooks().UserCreated.In(func(ctx context.Context, e hooks.UserCreated) error {
		_, err := k.Ledger().Credit(ctx, ledger.Entry{UserID: e.UserID, Currency: "coins", Amount: 20, Ref: "welcome:" + e.UserID})
		return err
	})
	user, err := k.Auth().CreateUser(ctx, auth.NewUser{Email: "ada@example.org"})
	if err != nil {
		log.Fatal(err)
	}
	balance, _ := k.Ledger().Balance(ctx, user.ID, "coins")
	fmt.Println(balance.Balance)
	// Output: 20
}

// giveCredentials is what an operator's command runs: it stores the keys of a rail.
func giveCredentials(ctx context.Context, k *kit.Kit) error {
	_, err := k.Secrets().Rotate(ctx, payments.SecretName, secrets.Blocks{"card_processor": {
		"apiKey":        secrets.NewValue(os.Getenv("STRIPE_API_KEY")),
		"webhookSecret": secrets.NewValue(os.Getenv("STRIPE_WEBHOOK_SECRET")),
	}})
	return err
}

// credentialsOf are the names of the complete blocks of the rails' credentials.
func credentialsOf(t *testing.T, k *kit.Kit) (complete []string) {
	t.Helper()
	list, err := k.Secrets().ListSecrets(t.Context(), capability.Page{Limit: 10})
	if err != nil {
		t.Fatal(err)
	}
	for _, secret := range list.Items {
		for _, block := range secret.Blocks {
			if secret.Name == payments.SecretName && block.Present {
				complete = append(complete, block.Name)
			}
		}
	}
	return complete
}

func TestCredentialsSnippets(t *testing.T) {
	t.Setenv("STRIPE_API_KEY", "sk_test_51Example")
	t.Setenv("STRIPE_WEBHOOK_SECRET", "whsec_example_of_a_guide")
	coins := kit.WithLedger(ledger.Config{Currencies: []ledger.Currency{{Code: "coins", Name: "Coins"}}})
	stripe := kit.WithPayments(payments.Config{
		BillingSubject: payments.SubjectUser, Rails: []payments.Rail{cardprocessor.New(cardprocessor.Options{})},
		ReturnURLs: map[payments.RailID]payments.ReturnURLs{payments.RailCardProcessor: {
			Success: "https://shop.example.com/done", Cancel: "https://shop.example.com/cart", Portal: "https://shop.example.com/account",
		}},
	})
	k := kittest.New(t, coins, kit.WithAuth(auth.Config{}), kit.WithSecrets(secrets.Config{}), stripe)
	if err := giveCredentials(t.Context(), k.Kit); err != nil {
		t.Fatal(err)
	}
	_, export, _ := strings.Cut(read(t, "docs/credentials.md"), "export KIT_SECRET_PAYMENTS_PROVIDER_CREDENTIALS='")
	value, _, _ := strings.Cut(export, "'")
	t.Setenv("KIT_SECRET_PAYMENTS_PROVIDER_CREDENTIALS", value)
	fromEnvironment := kittest.New(t, coins, kit.WithAuth(auth.Config{}), stripe,
		kit.WithSecrets(secrets.Config{Provider: secrets.NewEnvironment(os.Getenv)}),
	)
	for name, k := range map[string]*kittest.Kit{"database": k, "environment": fromEnvironment} {
		if got := credentialsOf(t, k.Kit); !slices.Equal(got, []string{"card_processor"}) {
			t.Errorf("%s: the complete blocks are %v", name, got)
		}
	}
}

// TestCredentialsOfEveryRail holds that docs/credentials.md names each rail's fields.
func TestCredentialsOfEveryRail(t *testing.T) {
	guide := read(t, "docs/credentials.md")
	for _, rail := range []payments.Rail{
		iosstore.New(iosstore.Options{}), androidstore.New(androidstore.Options{}), cardprocessor.New(cardprocessor.Options{}),
		merchanta.New(merchanta.Options{}), merchantb.New(merchantb.Options{}),
	} {
		fields := "`" + strings.Join(rail.Credentials.Required, "`, `") + "`"
		for _, optional := range rail.Credentials.Optional {
			fields += ", `" + optional + "` (optional)"
		}
		if row := "| `" + string(rail.ID) + "` | " + fields + " |"; !strings.Contains(guide, row) {
			t.Errorf("no row begins with %s", row)
		}
	}
}

// reports is a capability of an application's own with a durable job.
func reports(k *kit.Kit) (capability.Capability, error) {
	host := k.Host()
	return capability.Capability{
		Name: "reports", Version: "1.0.0", Database: host.DB, Prefix: "/reports", NoUserData: "reports hold sums alone",
		Routes: capability.Mount("/reports",
			capability.Route{Method: "POST", Path: "", Guard: capability.UserWithScope("reports:make"), Summary: "Ask for a report.",
				Handle: capability.JSON(http.StatusAccepted, func(c *capability.Call, _ capability.None) (map[string]string, error) {
					id, err := host.Jobs.Enqueue(c.Context(), "REPORTS_MAKE", c.Caller.UserID)
					return map[string]string{"job": id}, err
				})}),
		Jobs: []jobs.Binding{{Name: "REPORTS_MAKE", Schedule: "0 6 * * *", Run: func(ctx context.Context, job jobs.Job) error {
			host.Log.InfoContext(ctx, "made", "job", job.ID)
			return nil
		}}},
	}, nil
}

func TestReportsSnippet(t *testing.T) {
	k := kittest.New(t, kit.WithAuth(auth.Config{}), kit.WithCapability(reports))
	k.User("ada", "reports:make").Post("/reports", nil).Want(202, "")
	k.User("bob").Post("/reports", nil).Want(403, "auth/insufficient_scope")
	if k.RunJobs() == 0 {
		t.Error("no job ran")
	}
}

//go:embed testdata/stars
var stars embed.FS

// starred is a capability of an application's own that follows another one.
func starred(k *kit.Kit) (capability.Capability, error) {
	host := k.Host()
	host.Hooks.MediaDeleted.In(func(ctx context.Context, e hooks.MediaDeleted) error {
		_, err := host.DB.Exec(ctx, `DELETE FROM stars_star WHERE media_id = $1`, e.MediaID)
		return err
	})
	give := func(c *capability.Call, _ capability.None) (none capability.None, err error) {
		item, err := k.Media().Get(c.Context(), c.Caller.UserID, c.Param("id")) // media/not_found, also for what they may not see
		if err != nil {
			return none, err
		}
		return none, host.DB.InTx(c.Context(), func(ctx context.Context) error {
			n, err := host.DB.Exec(ctx, `INSERT INTO stars_star (media_id, user_id) VALUES ($1, $2) ON CONFLICT DO NOTHING`, item.ID, c.Caller.UserID)
			if err != nil || n == 0 {
				return err
			}
			return k.Audit().Record(ctx, audit.Event{Action: "stars/given", Subject: audit.Target{Type: "media", ID: item.ID}})
		})
	}
	return capability.Capability{
		Name: "stars", Version: "1.0.0", Database: host.DB, Prefix: "/stars", Migrations: stars,
		Routes: capability.Mount("/stars", capability.Route{Method: "PUT", Path: "/:id", Guard: capability.User(), Summary: "Give a star.",
			Refusals: []*capability.Error{media.ErrNotFound}, Handle: capability.JSON(http.StatusNoContent, give)}),
		Health: []capability.HealthKey{{Key: "stars", Read: func(ctx context.Context) (any, error) {
			var n int64
			err := host.DB.QueryRow(ctx, `SELECT count(*) FROM stars_star`).Scan(&n)
			return n, err // an error makes the kit not ready
		}}},
		Export: func(ctx context.Context, person capability.Person, emit capability.Emit) error {
			ids, err := database.All(ctx, host.DB, func(s database.Scanner) (id string, err error) { return id, s.Scan(&id) },
				`SELECT media_id FROM stars_star WHERE user_id = $1 ORDER BY media_id`, person.ID)
			if err != nil {
				return err
			}
			for _, id := range ids {
				if err := emit("star", map[string]string{"mediaId": id}); err != nil {
					return err
				}
			}
			return nil
		},
		Erase: func(ctx context.Context, person capability.Person) (done capability.Erasure, err error) {
			done.Removed, err = host.DB.Exec(ctx, `DELETE FROM stars_star WHERE user_id = $1`, person.ID)
			return done, err
		},
	}, nil
}

func TestStarredSnippet(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		k := kittest.New(t, kit.WithDatabase(db), kit.WithAudit(audit.Config{}), kit.WithAuth(auth.Config{}),
			kit.WithStorage(storage.Config{}), kit.WithMedia(media.Config{}), kit.WithCapability(starred))
		var picture bytes.Buffer
		if err := png.Encode(&picture, image.NewGray(image.Rect(0, 0, 9, 9))); err != nil {
			t.Fatal(err)
		}
		item, err := k.Media().Put(t.Context(), media.Upload{OwnerID: "ada", Filename: "a.png", Size: int64(picture.Len()), Visibility: storage.VisibilityPublic}, &picture)
		if err != nil {
			t.Fatal(err)
		}
		k.RunJobs()
		star := func(user string, status int, code string) {
			t.Helper()
			k.User(user).Do(http.MethodPut, "/stars/"+item.ID, nil).Want(status, code)
		}
		count := func(text string, want int) {
			t.Helper()
			var n int
			if err := db.QueryRow(t.Context(), text).Scan(&n); err != nil || n != want {
				t.Errorf("%s: %d, %v, want %d", text, n, err, want)
			}
		}
		for _, user := range []string{"bob", "bob", "carol"} {
			star(user, 204, "")
		}
		count(`SELECT count(*) FROM stars_star`, 2)
		count(`SELECT count(*) FROM audit_event WHERE action = 'stars/given'`, 2)
		var export bytes.Buffer
		if err := k.ExportUser(t.Context(), "bob", &export); err != nil || !strings.Contains(export.String(), `"kind":"star"`) {
			t.Errorf("%v %s", err, export.String())
		}
		if err := k.EraseUser(t.Context(), "bob"); err != nil {
			t.Fatal(err)
		}
		k.RunJobs()
		count(`SELECT count(*) FROM stars_star`, 1)
		k.User("ada").Do(http.MethodDelete, "/media/"+item.ID, nil).Want(204, "")
		count(`SELECT count(*) FROM stars_star`, 0)
		star("carol", 404, "media/not_found")
	})
}

// The application's own test: a clock that stands still, users, mail and jobs.
func TestShopSnippet(t *testing.T) {
	coins := ledger.Config{Currencies: []ledger.Currency{{Code: "coins", Name: "Coins"}}}
	k := kittest.New(t, kit.WithEmail(email.Config{}), kit.WithAuth(auth.Config{}), kit.WithLedger(coins))
	ada := k.User("ada")
	ada.Get("/ledger/coins").Want(200, "")
	ada.Get("/ledger/pounds").Want(404, "ledger/currency_not_found")

	k.Anonymous().With("Origin", k.BaseURL()).Post("/auth/sign-up/email",
		map[string]string{"name": "Bob", "email": "bob@example.org", "password": "correct horse battery"}).Want(200, "")
	mail := k.LastMail("bob@example.org") // runs the jobs
	if mail.Subject == "" {
		t.Error("no subject")
	}
	k.Clock.Advance(24 * time.Hour)
	k.RunJobs() // what is scheduled has come due
}

// The same store on every database that the application runs on.
func TestOnEachSnippet(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		k := kittest.New(t, kit.WithDatabase(db), kit.WithLedger(ledger.Config{Currencies: []ledger.Currency{{Code: "coins", Name: "Coins"}}}))
		if _, err := k.Ledger().Credit(t.Context(), ledger.Entry{UserID: "ada", Currency: "coins", Amount: 5, Ref: "gift:1"}); err != nil {
			t.Fatal(err)
		}
	})
}

// openProduction is what differs in production.
func openProduction(ctx context.Context) (*database.DB, storage.Config, error) {
	db, err := postgres.Open(ctx, os.Getenv("DATABASE_URL"), postgres.WithConnections(20))
	if err != nil {
		return nil, storage.Config{}, err
	}
	objects, err := s3.Parse(os.Getenv("BUCKET_URL"))
	if err != nil {
		return nil, storage.Config{}, errors.Join(err, db.Close())
	}
	return db, storage.Config{Bucket: s3.New(objects)}, nil
}

func TestProductionSnippet(t *testing.T) {
	url := os.Getenv("KIT_TEST_POSTGRES")
	if url == "" {
		t.Skip("KIT_TEST_POSTGRES is not set")
	}
	t.Setenv("DATABASE_URL", url)
	t.Setenv("BUCKET_URL", "http://key:secret@localhost:9000/bucket")
	db, _, err := openProduction(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if err := db.Ping(t.Context()); err != nil {
		t.Error(err)
	}
}

// readiness is for the probe of a load balancer.
func readiness(k *kit.Kit) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := k.Ready(r.Context()); err != nil {
			http.Error(w, "not ready", http.StatusServiceUnavailable)
		}
	})
}

func TestReadinessSnippet(t *testing.T) {
	if got := status(readiness(kittest.New(t).Kit), "/ready"); got != 200 {
		t.Errorf("got %d", got)
	}
}

// nightly copies a SQLite file from within the process that has it open.
func nightly(folder string) func(k *kit.Kit) (capability.Capability, error) {
	return func(k *kit.Kit) (capability.Capability, error) {
		host := k.Host()
		return capability.Capability{
			Name: "nightly", Version: "1.0.0", Database: host.DB, NoUserData: "copies are of the whole database",
			Jobs: []jobs.Binding{{Name: "NIGHTLY_BACKUP", Schedule: "0 3 * * *", Timeout: time.Hour, Run: func(ctx context.Context, _ jobs.Job) error {
				return host.DB.Backup(ctx, filepath.Join(folder, host.Now().UTC().Format("20060102-150405")+".db"))
			}}},
		}, nil
	}
}

func TestNightlySnippet(t *testing.T) {
	folder := t.TempDir()
	k := kittest.New(t, kit.WithDatabase(databasetest.File(t)), kit.WithCapability(nightly(folder)))
	k.Clock.Advance(24 * time.Hour)
	k.RunJobs()
	if copies, err := filepath.Glob(filepath.Join(folder, "*.db")); err != nil || len(copies) != 1 {
		t.Errorf("the copies are %v, %v", copies, err)
	}
}

// TestRestoreDrill is the drill of docs/production.md on a file: a copy is opened
// elsewhere, and everything is proven there.
func TestRestoreDrill(t *testing.T) {
	db := databasetest.File(t)
	k, err := composeShop(db)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := k.Ledger().Credit(t.Context(), ledger.Entry{UserID: "ada", Currency: "coins", Amount: 5, Ref: "gift:1"}); err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	if err := kitcmd.Run(t.Context(), k, []string{"shop", "backup", folder}, io.Discard, io.Discard); err != nil {
		t.Fatal(err)
	}
	restored, err := database.OpenFile(filepath.Join(folder, "DB.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer restored.Close()
	for _, command := range []string{"migrate", "verify", "doctor"} {
		again, err := composeShop(restored)
		if err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		err = kitcmd.Run(t.Context(), again, []string{"shop", command}, &out, io.Discard)
		if command != "doctor" && err != nil || out.Len() == 0 { // doctor finds that a test has no master keys
			t.Errorf("%s: %v\n%s", command, err, &out)
		}
	}
}

// importUsers moves users of another backend; one that is there already stays.
func importUsers(ctx context.Context, k *kit.Kit, rows []signin.Imported) (moved int, err error) {
	for _, row := range rows {
		_, err := signin.ImportUser(ctx, k.Database(), k.Auth(), row)
		if errors.Is(err, auth.ErrEmailTaken) {
			continue
		}
		if err != nil {
			return moved, err
		}
		moved++
	}
	return moved, nil
}

func TestImportUsersSnippet(t *testing.T) {
	k := kittest.New(t, kit.WithAuth(auth.Config{}))
	hash, err := bcrypt.GenerateFromPassword([]byte("correct horse battery"), bcrypt.MinCost) // as PocketBase keeps it
	if err != nil {
		t.Fatal(err)
	}
	rows := []signin.Imported{
		{NewUser: auth.NewUser{Email: "ada@example.org", Name: "Ada", EmailVerified: true}, PasswordHash: string(hash)},
		{NewUser: auth.NewUser{Email: "bob@example.org"}},
	}
	for _, want := range []int{2, 0} {
		if moved, err := importUsers(t.Context(), k.Kit, rows); err != nil || moved != want {
			t.Errorf("moved %d, %v, want %d", moved, err, want)
		}
	}
	k.Anonymous().Post("/auth/sign-in/email", `{"email":"ada@example.org","password":"correct horse battery"}`).Want(200, "")
}
