package kit_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/kitbackend/kit"
	"github.com/kitbackend/kit/audit"
	"github.com/kitbackend/kit/auth"
	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/database/databasetest"
	"github.com/kitbackend/kit/events"
	"github.com/kitbackend/kit/jobs"
	"github.com/kitbackend/kit/kittest"
	"github.com/kitbackend/kit/ledger"
)

// The snippets of the README's first hour are parts of the functions below.

// schema is what go:embed would hold: migrations/0001_order.sql.
var schema = fstest.MapFS{"0001_order.sql": {Data: []byte(`CREATE TABLE shop_order (id TEXT NOT NULL PRIMARY KEY, user_id TEXT NOT NULL, paid BOOLEAN NOT NULL);`)}}

func quiet() kit.Option { return kit.WithLogger(slog.New(slog.DiscardHandler)) }

// Serve runs requests and jobs until the context ends, then stops in order.
func ExampleKit_Serve() {
	k, err := kit.New(quiet(), kit.WithAuth(auth.Config{}))
	if err != nil {
		log.Fatal(err)
	}
	ctx, stop := context.WithTimeout(context.Background(), 50*time.Millisecond) // in a program, signal.NotifyContext
	defer stop()
	fmt.Println(k.Serve(ctx, "localhost:0", nil))
	fmt.Println(errors.Is(k.Run(context.Background()), kit.ErrClosed))
	// Output:
	// <nil>
	// true
}

// A job is a capability's; the smallest one is a name and what it runs.
func ExampleWithCapability_job() {
	k, err := kit.New(quiet(), kit.WithCapability(func(k *kit.Kit) (capability.Capability, error) {
		return capability.Capability{
			Name:       "report",
			NoUserData: "it sends sums only",
			Jobs: []jobs.Binding{{Name: "WEEKLY_REPORT", Schedule: "0 7 * * 1", Run: func(ctx context.Context, job jobs.Job) error {
				fmt.Println("sent", string(job.Payload))
				return nil
			}}},
		}, nil
	}))
	if err != nil {
		log.Fatal(err)
	}
	ctx := context.Background()
	defer k.Close(ctx)
	if _, err := k.Jobs().Enqueue(ctx, "WEEKLY_REPORT", "now, once"); err != nil {
		log.Fatal(err)
	}
	if _, err := k.Jobs().RunDue(ctx); err != nil { // in a program, Serve and Run do it
		log.Fatal(err)
	}
	// Output: sent "now, once"
}

// Own tables live in the kit's database, in a line of migrations of their own.
func ExampleKit_Database() {
	ctx := context.Background()
	k, err := kit.New(quiet())
	if err != nil {
		log.Fatal(err)
	}
	defer k.Close(ctx)
	if err := k.Database().Migrate(ctx, database.Migrations{Name: "shop", FS: schema}); err != nil {
		log.Fatal(err)
	}
	n, err := k.Database().Exec(ctx, `INSERT INTO shop_order (id, user_id, paid) VALUES ($1, $2, $3)`, "7", "ada", false)
	fmt.Println(n, err)
	// Output: 1 <nil>
}

// Code for database/sql, such as what sqlc generates, joins the transaction.
func ExampleKit_Database_sql() {
	ctx := context.Background()
	k, err := kit.New(quiet())
	if err != nil {
		log.Fatal(err)
	}
	defer k.Close(ctx)
	if err := k.Database().Migrate(ctx, database.Migrations{Name: "shop", FS: schema}); err != nil {
		log.Fatal(err)
	}
	err = k.Database().InTx(ctx, func(ctx context.Context) error {
		tx, err := k.Database().SQL(ctx) // an *sql.Tx
		if err != nil {
			return err
		}
		_, err = tx.ExecContext(ctx, `INSERT INTO shop_order (id, user_id, paid) VALUES ($1, $2, $3)`, "7", "ada", false)
		return err
	})
	fmt.Println(err)
	// Output: <nil>
}

// own is the application's router: a page, a form, and the kit.
func own(k *kit.Kit) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /hello", func(w http.ResponseWriter, r *http.Request) {
		session, found, err := k.Auth().Current(r)
		if err != nil || !found {
			http.Redirect(w, r, "/sign-in", http.StatusSeeOther)
			return
		}
		fmt.Fprintf(w, "Hello, %s", session.UserID)
	})
	mux.HandleFunc("POST /sign-up", func(w http.ResponseWriter, r *http.Request) {
		reply, err := k.Auth().Call(w, r, "/sign-up/email", map[string]string{
			"email": r.FormValue("email"), "password": r.FormValue("password"), "name": r.FormValue("name")})
		if err != nil || reply.Refused() {
			http.Error(w, reply.Message, http.StatusUnprocessableEntity)
			return
		}
		http.Redirect(w, r, "/hello", http.StatusSeeOther)
	})
	mux.Handle("/", k)
	return k.Identify(mux) // audit knows request and caller of your own routes too
}

// Identify gives the application's own routes what the kit's have.
func ExampleKit_Identify() {
	k, err := kit.New(quiet(), kit.WithAudit(audit.Config{}), kit.WithAuth(auth.Config{}))
	if err != nil {
		log.Fatal(err)
	}
	defer k.Close(context.Background())
	page := k.Identify(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		info := capability.RequestInfoOf(r.Context())
		fmt.Println(info.IP, info.RequestID != "", info.Caller.UserID == "")
	}))
	page.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/hello", nil))
	// Output: 192.0.2.1 true true
}

// Refuse responds from an application's own route as the kit's do.
func ExampleKit_Refuse() {
	k, err := kit.New(quiet(), kit.WithAuth(auth.Config{}), kit.WithLedger(ledger.Config{
		Currencies: []ledger.Currency{{Code: "coins"}}}))
	if err != nil {
		log.Fatal(err)
	}
	defer k.Close(context.Background())
	buy := k.Identify(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		session, found, err := k.Auth().Current(r)
		if err == nil && !found {
			err = capability.ErrUnauthenticated
		}
		if err == nil {
			_, err = k.Ledger().Debit(r.Context(), ledger.Entry{
				UserID: session.UserID, Currency: "coins", Amount: 30, Ref: "sword-" + session.UserID})
		}
		if err != nil {
			k.Refuse(w, r, err) // as the kit's own routes: ledger/insufficient_funds, or kit/internal and a log line
			return
		}
		fmt.Fprint(w, "The sword is yours.")
	}))
	reply := httptest.NewRecorder()
	buy.ServeHTTP(reply, httptest.NewRequest("POST", "/buy/sword", nil))
	fmt.Println(reply.Code, reply.Header().Get("WWW-Authenticate"))
	// Output: 401 Bearer
}

// Outbound events: other services hear of what happens by signed webhooks.
func ExampleWithEvents() {
	k, err := kit.New(quiet(), kit.WithAuth(auth.Config{}),
		kit.WithEvents(events.Config{Endpoints: []events.Endpoint{{
			Name:   "crm",
			URL:    "https://crm.example.com/hooks/kit",
			Events: []string{"user.created", "user.deleted"},
			Secret: "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=",
		}}}))
	if err != nil {
		log.Fatal(err)
	}
	ctx := context.Background()
	defer k.Close(ctx)
	if _, err := k.Auth().CreateUser(ctx, auth.NewUser{ID: "ada"}); err != nil {
		log.Fatal(err)
	}
	endpoints, err := k.Events().Endpoints(ctx)
	fmt.Println(endpoints[0].Pending, "to be told", err)
	// Output: 1 to be told <nil>
}

// TestOwnPagesSnippet drives the README's pages as a browser.
func TestOwnPagesSnippet(t *testing.T) {
	k := kittest.New(t, kit.WithAuth(auth.Config{}))
	page := k.Browser("ada").Via(own(k.Kit)).Get("/hello").Want(200, "")
	if string(page.Body) != "Hello, ada" {
		t.Errorf("the page says %s", page.Body)
	}
	somebody := k.Anonymous().Via(own(k.Kit))
	if r := somebody.Get("/hello"); r.Status != 303 {
		t.Errorf("without a session: %d", r.Status)
	}
	signed := somebody.Form("/sign-up", url.Values{"email": {"bob@example.com"}, "password": {"correct horse battery"}, "name": {"Bob"}})
	if body := string(somebody.Follow(signed).Body); !strings.HasPrefix(body, "Hello, ") {
		t.Errorf("after signing up: %s", body)
	}
}

// TestOwnTablesSnippet is the README's test of own tables on both databases.
func TestOwnTablesSnippet(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) { // SQLite, and PostgreSQL if KIT_TEST_POSTGRES names one
		k := kittest.New(t, kit.WithDatabase(db))
		if err := k.Database().Migrate(t.Context(), database.Migrations{Name: "shop", FS: schema}); err != nil {
			t.Fatal(err)
		}
	})
}
