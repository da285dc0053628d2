package kitcmd_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kitbackend/kit"
	"github.com/kitbackend/kit/audit"
	"github.com/kitbackend/kit/auth"
	"github.com/kitbackend/kit/controlplane"
	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/database/databasetest"
	"github.com/kitbackend/kit/email"
	"github.com/kitbackend/kit/events"
	"github.com/kitbackend/kit/kitcmd"
	"github.com/kitbackend/kit/kittest"
	"github.com/kitbackend/kit/leaderboard"
	"github.com/kitbackend/kit/ledger"
	"github.com/kitbackend/kit/operate"
	"github.com/kitbackend/kit/payments"
	"github.com/kitbackend/kit/payments/cardprocessor"
	"github.com/kitbackend/kit/secrets"
	"github.com/kitbackend/kit/storage"
)

func compose(t *testing.T, db *database.DB, more ...kit.Option) *kit.Kit {
	t.Helper()
	k, err := kit.New(append([]kit.Option{
		kit.WithDatabase(db), kit.WithEnvironment("test"), kit.WithVersion("1.2.3"),
		kit.WithLogger(slog.New(slog.DiscardHandler)),
		kit.WithMasterKeys(func(context.Context) (string, error) {
			return "k1:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=", nil
		}),
		kit.WithAudit(audit.Config{}), kit.WithSecrets(secrets.Config{}), kit.WithControlPlane(controlplane.Config{}),
		kit.WithEmail(email.Config{}), kit.WithAuth(auth.Config{}), kit.WithStorage(storage.Config{}),
		kit.WithLedger(ledger.Config{Currencies: []ledger.Currency{{Code: "coins", Name: "Coins"}}}),
		kit.WithLeaderboard(leaderboard.Config{Boards: []leaderboard.Board{
			{Key: "arcade", Direction: leaderboard.DirectionDescending, Aggregation: leaderboard.AggregationBest}}}),
	}, more...)...)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// run runs a command and returns its output.
func run(t *testing.T, db *database.DB, args ...string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	err := kitcmd.Run(t.Context(), compose(t, db), append([]string{"app"}, args...), &out, io.Discard)
	return out.String(), err
}

func TestCommandsOnBothDatabases(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		k := compose(t, db)
		if _, err := k.Ledger().Credit(t.Context(), ledger.Entry{UserID: "ada", Currency: "coins", Amount: 5, Ref: "welcome:ada"}); err != nil {
			t.Fatal(err)
		}
		if err := k.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		for command, want := range map[string]string{
			"routes":   "/ledger/:currency/credit",
			"errors":   "ledger/insufficient_funds",
			"openapi":  `"openapi": "3.1.0"`,
			"manifest": "ledger",
			"migrate":  "",
			"verify":   "1 accounts, 1 transactions",
			"doctor":   "",
			"rewrap":   "0",
		} {
			t.Run(command, func(t *testing.T) {
				text, err := run(t, db, command)
				if err != nil || !strings.Contains(text, want) {
					t.Errorf("%v\n%s", err, text)
				}
				text, err = run(t, db, command, "-json")
				var value any
				if err != nil || json.Unmarshal([]byte(text), &value) != nil {
					t.Errorf("-json: %v\n%s", err, text)
				}
			})
		}
	})
}

func checks(t *testing.T, text string) map[string]kitcmd.Check {
	t.Helper()
	var list []kitcmd.Check
	if err := json.Unmarshal([]byte(text), &list); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	byName := make(map[string]kitcmd.Check)
	for _, c := range list {
		byName[c.Name] = c
		if c.Status != kitcmd.StatusOK && c.Fix == "" {
			t.Errorf("%s: %s is said without what to do", c.Name, c.Finding)
		}
	}
	return byName
}

func TestMigrateSaysWhatItDoes(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		with := func(args ...string) (string, error) {
			var out bytes.Buffer
			err := kitcmd.Run(t.Context(), compose(t, db, kit.WithoutMigrations()), append([]string{"app"}, args...), &out, io.Discard)
			return out.String(), err
		}
		text, err := with("doctor", "-json")
		if c := checks(t, text)["migrations"]; !errors.Is(err, kitcmd.ErrFound) || c.Status != kitcmd.StatusFailure || c.Fix != "run migrate" {
			t.Errorf("doctor of an empty database: %v, %+v", err, c)
		}
		for _, dry := range []bool{true, false} {
			args := []string{"migrate"}
			if dry {
				args = append(args, "-dry")
			}
			text, err := with(args...)
			if err != nil || !strings.Contains(text, "DB ledger/0001_") {
				t.Errorf("dry %v: %v\n%s", dry, err, text)
			}
		}
		if text, err := with("migrate"); err != nil || text != "the databases are up to date\n" {
			t.Errorf("again: %v\n%s", err, text)
		}
	})
}

func TestDoctorSaysWhatToDo(t *testing.T) {
	db := databasetest.Memory(t)
	text, err := run(t, db, "doctor", "-json", "-mail", "ada@example.org")
	if err != nil {
		t.Errorf("a sound installation: %v", err)
	}
	found := checks(t, text)
	for name, want := range map[string]kitcmd.Status{
		"database DB": kitcmd.StatusOK, "writes to DB": kitcmd.StatusOK, "migrations": kitcmd.StatusOK, "master keys": kitcmd.StatusOK,
		"environment": kitcmd.StatusOK, "jobs": kitcmd.StatusOK, "health": kitcmd.StatusOK, "test mail": kitcmd.StatusOK,
		"mail": kitcmd.StatusWarning, "origins": kitcmd.StatusOK,
	} {
		if found[name].Status != want {
			t.Errorf("%s: got %+v, want %s", name, found[name], want)
		}
	}
	if _, err := db.Exec(t.Context(), `UPDATE kit_job SET run_at = 1`); err != nil {
		t.Fatal(err)
	}
	text, err = run(t, db, "doctor", "-json")
	if c := checks(t, text)["jobs"]; !errors.Is(err, kitcmd.ErrFound) || c.Status != kitcmd.StatusFailure {
		t.Errorf("a mail that nobody sends: %v, %+v", err, c)
	}
}

func TestDoctorSaysHowASecretGetsItsValues(t *testing.T) {
	const path = "/secrets/admin/status/:name/rotate"
	for _, c := range []struct {
		provider secrets.Provider
		fix      string
	}{
		{nil, "give its values with Secrets.Rotate, or with POST " + path + " of the control plane"},
		{secrets.NewEnvironment(func(string) string { return "" }), "give its values in the environment, as secrets.Environment reads them"},
	} {
		k := kittest.New(t, kit.WithAuth(auth.Config{}), kit.WithControlPlane(controlplane.Config{}), kit.WithSecrets(secrets.Config{Provider: c.provider}),
			kit.WithEvents(events.Config{Endpoints: []events.Endpoint{
				{Name: "crm", URL: "https://crm.example.com/hook"}, {Name: "shop", URL: "https://shop.example.com/hook"}}}))
		if c.provider == nil {
			k.Machine("secrets:rotate").Post(strings.Replace(path, ":name", "events-crm", 1), `{"blocks":{"signing":{}}}`).Want(422, "secrets/incomplete_block")
		}
		var out bytes.Buffer
		if err := kitcmd.Run(t.Context(), k.Kit, []string{"app", "doctor", "-json"}, &out, io.Discard); err != nil && !errors.Is(err, kitcmd.ErrFound) {
			t.Fatal(err)
		}
		got := checks(t, out.String())["secrets without values"]
		if got.Status != kitcmd.StatusWarning || got.Finding != "they are events-crm, events-shop" || got.Fix != c.fix {
			t.Errorf("got %+v, want the fix %q", got, c.fix)
		}
	}
}

// TestDoctorSaysOnceWhatIsTrueOfSeveral: of secrets, and of the return addresses of a rail that are
// on one host.
func TestDoctorSaysOnceWhatIsTrueOfSeveral(t *testing.T) {
	const at = "https://shop.example/"
	rail := cardprocessor.New(cardprocessor.Options{})
	db := databasetest.Memory(t)
	hook := func(name string) events.Endpoint {
		return events.Endpoint{Name: name, URL: "https://" + name + ".example/hook"}
	}
	k := compose(t, db, kit.WithPayments(payments.Config{BillingSubject: payments.SubjectUser, Rails: []payments.Rail{rail},
		ReturnURLs: map[payments.RailID]payments.ReturnURLs{rail.ID: {Success: at + "thanks", Cancel: at, Portal: "https://help.example/"}}}),
		kit.WithEvents(events.Config{Endpoints: []events.Endpoint{hook("a"), hook("b"), hook("c"), hook("d")}}))
	for _, name := range []string{"events-a", "events-b", "events-c", "events-d"} {
		blocks := secrets.Blocks{"signing": {"secret": secrets.NewValue("whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=")}}
		if _, err := k.Secrets().Rotate(t.Context(), name, blocks); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := db.Exec(t.Context(), `UPDATE secrets_version SET created_at = 1 WHERE name IN ('events-c', 'events-d')`); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := kitcmd.Run(t.Context(), k, []string{"app", "doctor"}, &out, io.Discard); err != nil {
		t.Errorf("%v\n%s", err, &out)
	}
	for want, lines := range map[string]int{
		"ok       secrets: events-a, events-b are complete\n":                                                                    1,
		"warning  secrets to rotate: events-c was last rotated on 1970-01-01; events-d was last rotated on 1970-01-01\n":         1,
		"warning  return address of card_processor: https://shop.example is neither that of the base URL nor a trusted origin\n": 1,
		"warning  return address of card_processor: https://help.example is neither that of the base URL nor a trusted origin\n": 1,
		"warning  return address": 2,
		"warning  secrets without values: they are payments-provider-credentials\n": 1,
		" secret events": 0,
	} {
		if n := strings.Count(out.String(), want); n != lines {
			t.Errorf("%d times, want %d: %s", n, lines, want)
		}
	}
	if t.Failed() {
		t.Log(out.String())
	}
}

func TestDoctorFindsTheMasterKeysOfAnotherDatabase(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		if _, err := run(t, db, "migrate"); err != nil {
			t.Fatal(err)
		}
		k := compose(t, db, kit.WithMasterKeys(func(context.Context) (string, error) {
			return "k2:AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE=", nil
		}))
		var out bytes.Buffer
		err := kitcmd.Run(t.Context(), k, []string{"app", "doctor", "-json"}, &out, io.Discard)
		if c := checks(t, out.String())["master keys"]; !errors.Is(err, kitcmd.ErrFound) || c.Status != kitcmd.StatusFailure {
			t.Errorf("%v, %+v", err, c)
		}
	})
}

func TestVerifyFindsWhatWasChanged(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		k := compose(t, db)
		ctx := t.Context()
		if _, err := k.Ledger().Credit(ctx, ledger.Entry{UserID: "ada", Currency: "coins", Amount: 5, Ref: "welcome:ada"}); err != nil {
			t.Fatal(err)
		}
		if _, err := db.Exec(ctx, `UPDATE ledger_account SET balance = 6`); err != nil {
			t.Fatal(err)
		}
		if _, err := k.Storage().Put(ctx, storage.Upload{OwnerID: "ada", Path: "a.txt", Size: 1, ContentType: "text/plain",
			Visibility: storage.VisibilityPrivate}, strings.NewReader("a")); err != nil {
			t.Fatal(err)
		}
		if err := k.Close(ctx); err != nil { // which deletes the folder of this kit's objects
			t.Fatal(err)
		}
		text, err := run(t, db, "verify", "-json")
		var proofs []struct {
			Name     string
			Findings []string
		}
		if json.Unmarshal([]byte(text), &proofs) != nil || !errors.Is(err, kitcmd.ErrFound) {
			t.Fatalf("%v\n%s", err, text)
		}
		for _, p := range proofs {
			if wrong := p.Name == "ledger" || p.Name == "storage"; wrong != (len(p.Findings) > 0) {
				t.Errorf("%s: %q", p.Name, p.Findings)
			}
		}
	})
}

// TestFileIsWholeAfterMain: a copy of the file alone has what was committed.
func TestFileIsWholeAfterMain(t *testing.T) {
	path, copied := filepath.Join(t.TempDir(), "app.db"), filepath.Join(t.TempDir(), "copy.db")
	db, err := database.OpenFile(path)
	if err != nil {
		t.Fatal(err)
	}
	k := compose(t, db)
	if _, err := k.Ledger().Credit(t.Context(), ledger.Entry{UserID: "ada", Currency: "coins", Amount: 5, Ref: "welcome:ada"}); err != nil {
		t.Fatal(err)
	}
	if err := kitcmd.RunAndClose(t.Context(), k, []string{"app", "routes"}, io.Discard, io.Discard); err != nil {
		t.Fatal(err)
	}
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(copied, raw, 0o600); err != nil {
		t.Fatal(err)
	}
	if db, err = database.OpenFile(copied); err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if out, err := run(t, db, "verify"); err != nil || !strings.Contains(out, "1 accounts,") {
		t.Errorf("%v\n%s", err, out)
	}
}

func TestBackupCanBeOpened(t *testing.T) {
	db := databasetest.File(t)
	folder := filepath.Join(t.TempDir(), "copies")
	if text, err := run(t, db, "backup", folder); err != nil || !strings.Contains(text, "DB.db") {
		t.Fatalf("%v\n%s", err, text)
	}
	copied, err := database.OpenFile(filepath.Join(folder, "DB.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer copied.Close()
	if text, err := run(t, copied, "migrate"); err != nil || !strings.Contains(text, "up to date") {
		t.Errorf("the copy: %v\n%s", err, text)
	}
	if _, err := run(t, db, "backup", folder); err == nil || errors.Is(err, kitcmd.ErrFound) {
		t.Errorf("a copy was written over another: %v", err)
	}
}

func TestBackupOfPostgresNamesItsTool(t *testing.T) {
	text, err := run(t, databasetest.Postgres(t), "backup", "-json", t.TempDir())
	if !errors.Is(err, kitcmd.ErrFound) || !strings.Contains(text, "pg_dump") {
		t.Errorf("%v\n%s", err, text)
	}
}

// TestImportOfABackup moves an application from a file to PostgreSQL by its command line.
func TestImportOfABackup(t *testing.T) {
	db, into, folder := databasetest.File(t), databasetest.Postgres(t), filepath.Join(t.TempDir(), "copies")
	for _, step := range []struct {
		db   *database.DB
		args []string
		want string
	}{
		{db, []string{"operate", "-as", "ops", "ledger", "credit", "ada", "coins", "30", "gift:1"}, `"balanceAfter": 30`},
		{db, []string{"backup", folder}, "DB.db"},
		{into, []string{"import", folder}, "rows were copied"},
		{into, []string{"verify"}, "ledger: 1 accounts, 1 transactions"},
		{into, []string{"operate", "-as", "ops", "ledger", "credit", "ada", "coins", "5", "gift:2"}, `"balanceAfter": 35`},
	} {
		if text, err := run(t, step.db, step.args...); err != nil || !strings.Contains(text, step.want) {
			t.Fatalf("%v: %v\n%s", step.args, err, text)
		}
	}
	for want, c := range map[string]struct {
		db  *database.DB
		arg string
	}{"rows of its own": {into, folder}, "no such file": {into, t.TempDir()}, "not supported": {databasetest.File(t), folder}} {
		if _, err := run(t, c.db, "import", c.arg); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want an error with %q", err, want)
		}
	}
}

func TestMistakes(t *testing.T) {
	db := databasetest.Memory(t)
	for want, args := range map[string][]string{
		"help requested":                {},
		"there is no command":           {"dance"},
		"takes no arguments":            {"routes", "all"},
		"backup needs a folder":         {"backup"},
		"import needs the folder":       {"import"},
		"flag provided but not defined": {"routes", "-verbose"},
	} {
		if _, err := run(t, db, args...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, want %s", args, err, want)
		}
	}
}

func TestServeAndOwnCommands(t *testing.T) {
	listener, err := net.Listen("tcp", "localhost:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := listener.Addr().String()
	_ = listener.Close()
	ctx, stop := context.WithCancel(t.Context())
	served := make(chan error, 1)
	asked := make(chan struct{}, 1)
	handler := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked <- struct{}{} })
	k := compose(t, databasetest.Memory(t))
	go func() {
		served <- kitcmd.Run(ctx, k, []string{"app", "serve", "-addr", addr}, io.Discard, io.Discard, kitcmd.WithHandler(handler))
	}()
	for {
		if resp, err := http.Get("http://" + addr); err == nil {
			_ = resp.Body.Close()
			break
		}
	}
	<-asked
	stop()
	if err := <-served; err != nil {
		t.Error(err)
	}

	var got []string
	own := kitcmd.WithCommand("greet", "say hello", func(_ context.Context, args []string) error { got = args; return os.ErrExist })
	err = kitcmd.Run(t.Context(), compose(t, databasetest.Memory(t)), []string{"app", "greet", "ada"}, io.Discard, io.Discard, own)
	if !errors.Is(err, os.ErrExist) || len(got) != 1 || got[0] != "ada" {
		t.Errorf("%v %v", got, err)
	}
}

func TestOperateIsPartOfTheApplication(t *testing.T) {
	db := databasetest.Memory(t)
	text, err := run(t, db, "operate", "-as", "grace", "ledger", "credit", "ada", "coins", "5", "gift:1")
	if err != nil || !strings.Contains(text, `"balanceAfter": 5`) {
		t.Errorf("%v\n%s", err, text)
	}
	var help bytes.Buffer
	err = kitcmd.Run(t.Context(), compose(t, db), []string{"app", "operate", "-h"}, io.Discard, &help)
	if !errors.Is(err, flag.ErrHelp) || !strings.Contains(help.String(), operate.Usage) {
		t.Errorf("help: %v, expected the commands:\n%s", err, &help)
	}
	if _, err := run(t, db, "operate", "-as", "grace", "ledger"); err == nil || !strings.Contains(err.Error(), "the commands are") {
		t.Errorf("half a command: %v", err)
	}
}
