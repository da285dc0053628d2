package kit_test

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"image"
	"image/png"
	"log/slog"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kitbackend/kit"
	"github.com/kitbackend/kit/auth"
	"github.com/kitbackend/kit/auth/signin"
	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/database/databasetest"
	"github.com/kitbackend/kit/email"
	"github.com/kitbackend/kit/hooks"
	"github.com/kitbackend/kit/jobs"
	"github.com/kitbackend/kit/kittest"
	"github.com/kitbackend/kit/ledger"
	"github.com/kitbackend/kit/media"
	"github.com/kitbackend/kit/payments"
	"github.com/kitbackend/kit/storage"
	"github.com/kitbackend/kit/testers"
)

// canary is in everything that the user of these tests writes.
const canary = "canary7c1"

const canaryAddress = canary + "@example.com"

// syncBuffer is a log that handlers write to at once.
type syncBuffer struct {
	mu sync.Mutex
	bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.Buffer.Write(p)
}

// lived is a kit in whose every capability the user "ada" has left data.
func lived(t testing.TB, db *database.DB, log *syncBuffer) *kittest.Kit {
	t.Helper()
	k := kittest.New(t, append(everything(), kit.WithDatabase(db),
		kit.WithLogger(slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug}))))...)
	ctx := t.Context()
	ok := func(_ any, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	ok(k.Auth().CreateUser(ctx, auth.NewUser{ID: "ada", Email: canaryAddress, EmailVerified: true, Name: canary}))
	ok(nil, k.Auth().EnsureUser(ctx, "bob"))
	ok(k.Ledger().Credit(ctx, ledger.Entry{UserID: "ada", Currency: "coins", Amount: 10, Ref: "the credit of the person", Memo: canary}))
	ok(k.Ledger().Hold(ctx, ledger.Entry{UserID: "ada", Currency: "coins", Amount: 4, Ref: "the hold of the person", Memo: canary}))
	ok(k.Email().Send(ctx, email.Message{To: canaryAddress, Subject: canary, Text: canary, UserID: "ada"}))
	k.RunJobs()
	ada := k.User("ada").With("User-Agent", canary)
	k.User("server", "leaderboard:submit").Post("/leaderboard/arcade", `{"score":5,"userId":"ada"}`).Want(200, "")
	k.User("server", "rating:record").Post("/rating/games/duel/outcomes", `{"ranks":{"ada":1,"bob":2}}`).Want(200, "")
	ada.Post("/matchmaking/games/duel/rooms", `{}`).Want(201, "")
	ada.Post("/support/feedback", map[string]any{"subject": canary, "message": canary}).Want(201, "")
	ada.Post("/vector/notes/documents", map[string]any{"documents": []map[string]any{{"id": "n1", "text": canary}}}).Want(200, "")
	ada.Post("/storage", map[string]any{"path": canary + ".txt", "size": 3, "contentType": "text/plain"}).Want(201, "")
	k.Browser("ada").With("User-Agent", canary).Get("/auth/devices").Want(200, "")
	_, _, err := k.Email().Suppress(ctx, canaryAddress, email.ScopeList, canary)
	ok(nil, err)
	ok(k.Payments().Grant(ctx, payments.GrantRequest{Subject: payments.Subject{Type: payments.SubjectUser, ID: "ada"}, Entitlement: "gift", Reason: canary}))
	object, err := k.Storage().Put(ctx, storage.Upload{OwnerID: "ada", Path: "notes/" + canary, Size: 5}, strings.NewReader("hello"))
	ok(object, err)
	ok(k.Storage().Share(ctx, storage.ByID(object.ID).As("ada"), time.Hour))
	dot := picture(t)
	ok(k.Media().Put(ctx, media.Upload{OwnerID: "ada", Filename: canary + ".png", Size: int64(len(dot)), Caption: canary}, bytes.NewReader(dot)))
	ok(nil, k.Testers().SetCohort(ctx, testers.CohortConfig{ID: "beta", Name: "Beta", StoreURL: "https://store.example/beta"}))
	ok(k.Testers().Invite(ctx, "beta", []testers.Tester{{Email: canaryAddress, Name: canary}}))
	ada.Post("/matchmaking/friends/bob/request", `{}`).Want(200, "")
	ada.Post("/matchmaking/games/duel/invites", map[string]any{"userId": "bob"}).Want(201, "")
	ada.Post("/matchmaking/games/duel/queue", `{}`).Want(202, "")
	k.RunJobs()
	return k
}

// picture is one of a dot.
func picture(t testing.TB) []byte {
	t.Helper()
	var out bytes.Buffer
	if err := png.Encode(&out, image.NewGray(image.Rect(0, 0, 8, 8))); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func TestExportHoldsWhatEveryCapabilityKnows(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		k := lived(t, db, new(syncBuffer))
		var out bytes.Buffer
		if err := k.ExportUser(t.Context(), "ada", &out); err != nil {
			t.Fatal(err)
		}
		var export struct {
			UserID  string
			Records []struct{ Capability, Kind string }
		}
		if err := json.Unmarshal(out.Bytes(), &export); err != nil {
			t.Fatalf("the export is no JSON: %v\n%s", err, out.Bytes())
		}
		seen := make(map[string]bool)
		for _, r := range export.Records {
			seen[r.Capability] = true
		}
		for _, name := range []string{"auth", "ledger", "email", "leaderboard", "rating", "multiplayer", "matchmaking", "support", "storage", "media", "vector", "payments", "testers"} {
			if !seen[name] {
				t.Errorf("nothing of %s in the export", name)
			}
		}
	})
}

func TestErasedUsersStandNowhere(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		log := new(syncBuffer)
		k := lived(t, db, log)
		if err := k.EraseUser(t.Context(), "ada"); err != nil {
			t.Fatal(err)
		}
		if _, err := k.Erasure(t.Context(), "bob"); !errors.Is(err, kit.ErrNoErasure) {
			t.Errorf("an erasure nobody asked for: %v", err)
		}
		k.RunJobs()
		erasure, err := k.Erasure(t.Context(), "ada")
		if err != nil || erasure.FinishedAt.IsZero() {
			t.Fatalf("the erasure is not done: %+v %v", erasure, err)
		}
		if kept := erasure.Capabilities["ledger"].Kept; len(kept) == 0 {
			t.Error("the report does not say that the ledger keeps its history")
		}
		for table, text := range tables(t, k.Database()) {
			if strings.Contains(text, canary) || strings.Contains(text, hex.EncodeToString([]byte(canary))) {
				t.Errorf("%s still knows the user:\n%s", table, around(text))
			}
			if pseudonymous := map[string]bool{"kit_erasure": true, "audit_event": true, "ledger_account": true,
				"ledger_transaction": true, "ledger_hold": true, "kit_job": true}; !pseudonymous[table] && strings.Contains(text, "|ada|") {
				t.Errorf("%s still has the user id", table)
			}
		}
		if text := log.String(); strings.Contains(text, canary) {
			t.Errorf("the log knows the user:\n%s", around(text))
		}
		balance, err := k.Ledger().Balance(t.Context(), "ada", "coins")
		if err != nil || balance.Held != 0 {
			t.Errorf("held after the erasure: %+v %v, want the hold released", balance, err)
		}
	})
}

// mailedLink returns the first link of the newest mail to the canary address.
func mailedLink(t testing.TB, k *kittest.Kit) *url.URL {
	t.Helper()
	mail, ok, err := k.Email().LastMail(t.Context(), canaryAddress)
	if err != nil || !ok || len(mail.Links) == 0 {
		t.Fatalf("no link came: %+v %v", mail, err)
	}
	link, err := url.Parse(mail.Links[0])
	if err != nil {
		t.Fatal(err)
	}
	return link
}

// TestDeletedAccountIsErased: who deletes the account by a mailed link is erased, and
// what is known by the address alone too, though the account has gone before.
func TestDeletedAccountIsErased(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		log := new(syncBuffer)
		k := lived(t, db, log)
		ctx := t.Context()
		if _, err := k.Email().Send(ctx, email.Message{To: canaryAddress, Subject: "by the address alone", Text: canary}); err != nil {
			t.Fatal(err)
		}
		k.RunJobs()
		ada := k.Browser("ada").With("Origin", k.Host().BaseURL.String())
		ada.Post("/auth/delete-user", `{}`).Want(200, "")
		k.RunJobs()
		link := mailedLink(t, k)
		refusing := true
		k.Hooks().UserDeleted.In(func(context.Context, hooks.UserDeleted) error {
			if refusing {
				return errors.New("not now")
			}
			return nil
		})
		if status := ada.Post(link.RequestURI(), nil).Status; status < 400 {
			t.Errorf("status %d, though a hook refused", status)
		}
		if _, err := k.Erasure(ctx, "ada"); !errors.Is(err, kit.ErrNoErasure) {
			t.Errorf("an erasure though a hook refused: %v", err)
		}
		refusing = false
		if status := ada.Post(link.RequestURI(), nil).Status; status >= 400 {
			t.Fatalf("status %d, want the account deleted", status)
		}
		if _, err := k.Auth().User(ctx, "ada"); !errors.Is(err, auth.ErrUserNotFound) {
			t.Errorf("the account is still there: %v", err)
		}
		k.RunJobs()
		if e, err := k.Erasure(ctx, "ada"); err != nil || e.FinishedAt.IsZero() {
			t.Fatalf("the erasure is not done: %+v %v", e, err)
		}
		for table, text := range tables(t, db) {
			if strings.Contains(text, canary) || strings.Contains(text, hex.EncodeToString([]byte(canary))) {
				t.Errorf("%s still knows the user:\n%s", table, around(text))
			}
		}
	})
}

// TestDeletedAccountLeavesNoUnprovedAddress: nor does the address of an account stay that
// nobody had proved, and that is known to the account alone.
func TestDeletedAccountLeavesNoUnprovedAddress(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		k := kittest.New(t, append(everything(), kit.WithDatabase(db))...)
		origin := k.Host().BaseURL.String()
		k.Anonymous().With("Origin", origin).Post("/auth/sign-up/email",
			map[string]any{"email": canaryAddress, "password": "correct horse battery", "name": canary}).Want(200, "")
		k.Anonymous().With("Origin", origin).Post("/auth/email-otp/send-verification-otp",
			map[string]any{"email": canaryAddress, "type": "email-verification"}).Want(200, "")
		k.RunJobs()
		ada, _, err := k.Auth().UserByEmail(t.Context(), canaryAddress)
		if err != nil {
			t.Fatal(err)
		}
		k.Browser(ada.ID).With("Origin", origin).Post("/auth/delete-user", `{"password":"correct horse battery"}`).Want(200, "")
		k.RunJobs()
		for table, text := range tables(t, db) {
			if strings.Contains(text, canary) || strings.Contains(text, hex.EncodeToString([]byte(canary))) {
				t.Errorf("%s still knows the user:\n%s", table, around(text))
			}
		}
	})
}

// TestGuestWhoBecomesAnotherUserIsErased: of a guest who signs in to an account, that alone stays
// which the application has moved.
func TestGuestWhoBecomesAnotherUserIsErased(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		var k *kittest.Kit
		moves := func(ctx context.Context, guest, user auth.User) error {
			balance, err := k.Ledger().Balance(ctx, guest.ID, "coins")
			if err != nil {
				return err
			}
			_, err = k.Ledger().Transfer(ctx, ledger.TransferEntry{From: guest.ID, To: user.ID, Currency: "coins", Amount: balance.Available, Ref: "upgrade:" + guest.ID})
			return err
		}
		k = kittest.New(t, kit.WithDatabase(db), kit.WithLedger(coins()), kit.WithStorage(storage.Config{}),
			kit.WithAuth(auth.Config{Library: signin.New(signin.Config{Anonymous: true, OnUpgrade: moves})}))
		sign := map[string]any{"email": "ada@example.com", "password": "correct horse battery", "name": "Ada"}
		k.Anonymous().With("Origin", k.Host().BaseURL.String()).Post("/auth/sign-up/email", sign).Want(200, "")
		k.Clock.Advance(time.Minute)

		var entered struct{ User struct{ ID string } }
		guest := k.Anonymous().Via(k)
		guest.Post("/auth/sign-in/anonymous", `{}`).Want(200, "").JSON(&entered)
		id := entered.User.ID
		if _, err := k.Ledger().Credit(t.Context(), ledger.Entry{UserID: id, Currency: "coins", Amount: 10, Ref: "gift"}); err != nil {
			t.Fatal(err)
		}
		guest.Post("/storage", map[string]any{"path": "save.json", "size": 3}).Want(201, "")
		guest.Post("/auth/sign-in/email", sign).Want(200, "")
		k.RunJobs()
		if e, err := k.Erasure(t.Context(), id); err != nil || e.FinishedAt.IsZero() {
			t.Errorf("the guest is not erased: %+v %v", e, err)
		}
		if n := column(t, db, `SELECT id FROM storage_object`); len(n) > 0 {
			t.Errorf("objects of the guest are left: %v", n)
		}
		ada, _, err := k.Auth().UserByEmail(t.Context(), "ada@example.com")
		if err != nil {
			t.Fatal(err)
		}
		if b, err := k.Ledger().Balance(t.Context(), ada.ID, "coins"); err != nil || b.Available != 10 {
			t.Errorf("%+v %v, want what the guest had", b, err)
		}
	})
}

// TestAddressThatChangedHandsIsNotErased: mail to an address that somebody else has
// proved before the erasure runs is theirs.
func TestAddressThatChangedHandsIsNotErased(t *testing.T) {
	k := lived(t, databasetest.Memory(t), new(syncBuffer))
	ctx := t.Context()
	if err := k.EraseUser(ctx, "ada"); err != nil {
		t.Fatal(err)
	}
	if err := k.Auth().DeleteUser(ctx, "ada"); err != nil {
		t.Fatal(err)
	}
	if _, err := k.Auth().CreateUser(ctx, auth.NewUser{ID: "eve", Email: canaryAddress, EmailVerified: true}); err != nil {
		t.Fatal(err)
	}
	sent, err := k.Email().Send(ctx, email.Message{To: canaryAddress, Subject: "hello", Text: "hello"})
	if err != nil {
		t.Fatal(err)
	}
	k.RunJobs()
	if e, err := k.Erasure(ctx, "ada"); err != nil || e.FinishedAt.IsZero() {
		t.Fatalf("the erasure is not done: %+v %v", e, err)
	}
	if _, err := k.Email().Job(ctx, sent); err != nil {
		t.Errorf("the mail of the new owner: %v", err)
	}
}

// TestNewAccountOfADeletedOnesAddressIsNotErased: who deletes the account and signs up
// again before the erasure runs can prove the address by the mail of the new one.
func TestNewAccountOfADeletedOnesAddressIsNotErased(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		k := lived(t, db, new(syncBuffer))
		ctx := t.Context()
		if err := k.EraseUser(ctx, "ada"); err != nil {
			t.Fatal(err)
		}
		if err := k.Auth().DeleteUser(ctx, "ada"); err != nil {
			t.Fatal(err)
		}
		origin := k.Host().BaseURL.String()
		k.Anonymous().With("Origin", origin).Post("/auth/sign-up/email",
			map[string]any{"email": canaryAddress, "password": "correct horse battery", "name": "again"}).Want(200, "")
		k.RunJobs()
		link := mailedLink(t, k)
		if status := k.Anonymous().With("Origin", origin).Post(link.RequestURI(), nil).Status; status >= 400 {
			t.Errorf("status %d of the link", status)
		}
		if user, _, err := k.Auth().UserByEmail(ctx, canaryAddress); err != nil || !user.EmailVerified {
			t.Errorf("%+v %v, want the address proved", user, err)
		}
	})
}

func TestErasureGoesOnAfterAFailure(t *testing.T) {
	db := databasetest.Memory(t)
	k := lived(t, db, new(syncBuffer))
	failing := true
	k.Hooks().UserDeleted.In(func(context.Context, hooks.UserDeleted) error {
		if failing {
			return errors.New("not now")
		}
		return nil
	})
	if err := k.EraseUser(t.Context(), "ada"); err != nil {
		t.Fatal(err)
	}
	k.RunJobs()
	if e, err := k.Erasure(t.Context(), "ada"); err != nil || !e.FinishedAt.IsZero() {
		t.Fatalf("finished though a hook refused: %+v %v", e, err)
	}
	failing = false
	k.Clock.Advance(2 * 60 * 60 * 1e9)
	k.RunJobs()
	e, err := k.Erasure(t.Context(), "ada")
	if err != nil || e.FinishedAt.IsZero() {
		t.Fatalf("not finished in the second run: %+v %v", e, err)
	}
	for _, name := range []string{"support", "email", "storage", "testers", "vector"} {
		if e.Capabilities[name].Removed == 0 {
			t.Errorf("the report lacks what the first run removed of %s", name)
		}
	}
	if len(e.Capabilities["email"].Kept) == 0 {
		t.Error("the report lacks what email keeps")
	}
}

// TestErasureNamesTheCapabilityThatFails: an operator who looks reads which capability holds
// the erasure up, and why, until it is done.
func TestErasureNamesTheCapabilityThatFails(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		failures := []func() error{
			func() error { return errors.New("the first \x00 " + strings.Repeat("n", 2000)) },
			func() error { panic("out of shelves") },
			func() error { return errors.New("the archive is closed") },
		}
		runs := 0
		notes := capability.Capability{
			Name: "notes", Version: "1.0.0",
			Export: func(context.Context, capability.Person, capability.Emit) error { return nil },
			Erase: func(context.Context, capability.Person) (capability.Erasure, error) {
				if runs++; runs <= len(failures) {
					return capability.Erasure{}, failures[runs-1]()
				}
				return capability.Erasure{Removed: 1}, nil
			},
		}
		k := kittest.New(t, kit.WithDatabase(db), kit.WithLogger(slog.New(slog.DiscardHandler)),
			kit.WithCapability(func(*kit.Kit) (capability.Capability, error) { return notes, nil }))
		erasure := func() kit.Erasure {
			t.Helper()
			k.Clock.Advance(2 * time.Hour)
			k.RunJobs()
			e, err := k.Erasure(t.Context(), "ada")
			if err != nil {
				t.Fatal(err)
			}
			return e
		}
		if err := k.EraseUser(t.Context(), "ada"); err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{"the first  nnn", "panic: out of shelves", "the archive is closed"} {
			if e := erasure(); e.Failing != "notes" || !strings.HasPrefix(e.Error, want) || len(e.Error) > 1024 || !e.FinishedAt.IsZero() {
				t.Errorf("%+v, want notes to fail with %q", e, want)
			}
		}
		if e := erasure(); e.FinishedAt.IsZero() || e.Failing != "" || e.Error != "" {
			t.Errorf("%+v, want it finished and nothing failing", e)
		}
		if left := column(t, db, `SELECT error FROM kit_erasure WHERE error <> ''`); len(left) > 0 {
			t.Errorf("errors are left: %q", left)
		}

		runs = len(failures) - 1
		if err := k.EraseUser(t.Context(), "ada"); err != nil {
			t.Fatal(err)
		}
		if e := erasure(); e.Failing != "notes" {
			t.Errorf("%+v, want notes to fail", e)
		}
		if err := k.EraseUser(t.Context(), "ada"); err != nil {
			t.Fatal(err)
		}
		if e, err := k.Erasure(t.Context(), "ada"); err != nil || e.Failing != "" || e.Error != "" {
			t.Errorf("%+v %v, want a new request without a failure", e, err)
		}
	})
}

// A run that has passed a capability does not answer for what came to it since.
func TestErasureThatIsAskedForWhileOneRunsIsDoneAnew(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		var k *kittest.Kit
		left, runs := 1, 0
		notes := capability.Capability{
			Name: "notes", Version: "1.0.0",
			Export: func(context.Context, capability.Person, capability.Emit) error { return nil },
			Erase: func(ctx context.Context, _ capability.Person) (capability.Erasure, error) {
				done := capability.Erasure{Removed: int64(left)}
				left = 0
				if runs++; runs == 1 { // behind it, a device that was away hands in what it has
					left = 1
					return done, k.EraseUser(ctx, "ada")
				}
				return done, nil
			},
		}
		k = kittest.New(t, kit.WithDatabase(db), kit.WithCapability(func(*kit.Kit) (capability.Capability, error) { return notes, nil }))
		if err := k.EraseUser(t.Context(), "ada"); err != nil {
			t.Fatal(err)
		}
		k.RunJobs()
		if e, err := k.Erasure(t.Context(), "ada"); err != nil || e.FinishedAt.IsZero() || left != 0 {
			t.Errorf("%+v %v, %d left, want it finished and nothing left", e, err, left)
		}
	})
}

// A node of the version before adds no job where one runs: the run that it overtakes
// begins anew.
func TestErasureThatAnOlderNodeIsAskedForWhileOneRunsIsDoneAnew(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		runs := 0
		notes := capability.Capability{
			Name: "notes", Version: "1.0.0",
			Export: func(context.Context, capability.Person, capability.Emit) error { return nil },
			Erase: func(ctx context.Context, _ capability.Person) (capability.Erasure, error) {
				if runs++; runs > 1 {
					return capability.Erasure{}, nil
				}
				_, err := db.Exec(ctx, `UPDATE kit_erasure SET requested_at = requested_at + 5, finished_at = NULL, report = ''`)
				return capability.Erasure{}, err
			},
		}
		k := kittest.New(t, kit.WithDatabase(db), kit.WithCapability(func(*kit.Kit) (capability.Capability, error) { return notes, nil }))
		if err := k.EraseUser(t.Context(), "ada"); err != nil {
			t.Fatal(err)
		}
		k.RunJobs()
		k.Clock.Advance(time.Second)
		k.RunJobs()
		if e, err := k.Erasure(t.Context(), "ada"); err != nil || e.FinishedAt.IsZero() || runs != 2 {
			t.Errorf("%+v %v after %d runs, want it finished by the second", e, err, runs)
		}
	})
}

// TestErasureWithUsersInAnotherDatabase: users delete their accounts while others are
// erased. Neither waits for the other in a circle, and all are erased.
func TestErasureWithUsersInAnotherDatabase(t *testing.T) {
	const each = 20
	erased := make(chan capability.Person, 4*each)
	notes := capability.Capability{
		Name: "notes", Version: "1.0.0",
		Export: func(context.Context, capability.Person, capability.Emit) error { return nil },
		Erase: func(_ context.Context, person capability.Person) (capability.Erasure, error) {
			erased <- person
			return capability.Erasure{}, nil
		},
	}
	k := kittest.New(t, kit.WithNamedDatabase("USERS", databasetest.Memory(t)), kit.WithAuth(auth.Config{Database: "USERS", RateLimits: map[string]auth.RateLimit{"auth-send": {Events: -1}}}),
		kit.WithCapability(func(*kit.Kit) (capability.Capability, error) { return notes, nil }))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	origin := k.Host().BaseURL.String()
	k.Anonymous().With("Origin", origin).Post("/auth/sign-up/email",
		map[string]any{"email": canaryAddress, "password": "correct horse battery", "name": "ada"}).Want(200, "")
	ada, _, err := k.Auth().UserByEmail(ctx, canaryAddress)
	if err != nil {
		t.Fatal(err)
	}
	proved := true
	if _, err := k.Auth().UpdateUser(ctx, ada.ID, auth.UserPatch{EmailVerified: &proved}); err != nil {
		t.Fatal(err)
	}
	k.Browser(ada.ID).With("Origin", origin).Post("/auth/delete-user", `{"password":"correct horse battery"}`).Want(200, "")

	want := map[string]bool{ada.ID: true}
	var all sync.WaitGroup
	for n := range each {
		leaves, loses := fmt.Sprintf("leaves%d", n), fmt.Sprintf("loses%d", n)
		want[leaves], want[loses] = true, true
		browser := k.Browser(leaves).With("Origin", origin)
		if err := k.Auth().EnsureUser(ctx, loses); err != nil {
			t.Fatal(err)
		}
		all.Go(func() {
			if r := browser.Post("/auth/delete-user", `{}`); r.Status != 200 {
				t.Errorf("status %d", r.Status)
			}
		})
		all.Go(func() {
			if err := k.EraseUser(ctx, loses); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if t.Failed() {
		return
	}
	ended := make(chan error, 1)
	go func() { ended <- k.Run(ctx) }()
	for len(want) > 0 {
		person := <-erased
		if person.ID == ada.ID && !slices.Contains(person.Emails, canaryAddress) {
			t.Errorf("%v, want the address of the account", person.Emails)
		}
		delete(want, person.ID)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// TestErasureIsNotDoneByAnOlderNode: one that does not know the addresses of an account
// that is gone leaves the erasure to others. What it was asked for itself they do too.
func TestErasureIsNotDoneByAnOlderNode(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		k := kittest.New(t, kit.WithDatabase(db), kit.WithAuth(auth.Config{}), kit.WithEmail(email.Config{}))
		ctx := t.Context()
		older := jobs.New(db, k.PubSub(), jobs.Options{Now: k.Clock.Now})
		if err := older.Register(jobs.Binding{Name: "KIT_ERASE_USER", Run: func(ctx context.Context, _ jobs.Job) error {
			_, err := db.Exec(ctx, `UPDATE kit_erasure SET finished_at = 1, report = '{}'`)
			return err
		}}); err != nil {
			t.Fatal(err)
		}
		if _, err := k.Auth().CreateUser(ctx, auth.NewUser{ID: "ada", Email: canaryAddress, EmailVerified: true}); err != nil {
			t.Fatal(err)
		}
		sent, err := k.Email().Send(ctx, email.Message{To: canaryAddress, Subject: "by the address alone", Text: canary})
		if err != nil {
			t.Fatal(err)
		}
		if err := k.EraseUser(ctx, "ada"); err != nil {
			t.Fatal(err)
		}
		if err := k.Auth().DeleteUser(ctx, "ada"); err != nil {
			t.Fatal(err)
		}
		if _, err := older.RunDue(ctx); err != nil {
			t.Fatal(err)
		}
		k.RunJobs()
		if _, err := k.Email().Job(ctx, sent); !errors.Is(err, email.ErrJobNotFound) {
			t.Errorf("the mail to the address: %v, want it gone", err)
		}
		if left := column(t, db, `SELECT addresses FROM kit_erasure WHERE addresses <> ''`); len(left) > 0 {
			t.Errorf("addresses are left: %v", left)
		}

		if _, err := db.Exec(ctx, `UPDATE kit_erasure SET finished_at = NULL`); err != nil {
			t.Fatal(err)
		}
		if _, err := older.Enqueue(ctx, "KIT_ERASE_USER", "ada", jobs.Key("ada")); err != nil {
			t.Fatal(err)
		}
		k.RunJobs()
		if e, err := k.Erasure(ctx, "ada"); err != nil || e.FinishedAt.IsZero() {
			t.Errorf("what an older node was asked for: %+v %v", e, err)
		}
	})
}

// around is the part of a text where the canary is.
func around(text string) string {
	at := strings.Index(text, canary)
	if at < 0 {
		at = strings.Index(text, hex.EncodeToString([]byte(canary)))
	}
	return text[max(0, at-200):min(len(text), at+200)]
}

// tables returns every row of every table as text, columns between bars.
func tables(t *testing.T, db *database.DB) map[string]string {
	t.Helper()
	names := column(t, db, database.Text(
		`SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%' AND sql NOT LIKE '%VIRTUAL%'`,
		`SELECT table_name FROM information_schema.tables WHERE table_schema = current_schema()`))
	all := make(map[string]string)
	for _, name := range names {
		columns := column(t, db, database.Text(fmt.Sprintf(`SELECT name FROM pragma_table_info('%s')`, name),
			fmt.Sprintf(`SELECT column_name FROM information_schema.columns WHERE table_schema = current_schema() AND table_name = '%s'`, name)))
		parts := make([]string, len(columns))
		for i, c := range columns {
			parts[i] = database.Text(fmt.Sprintf(`COALESCE(CAST("%s" AS TEXT), '')`, c), fmt.Sprintf(`COALESCE("%s"::text, '')`, c))
		}
		all[name] = strings.Join(column(t, db, fmt.Sprintf(`SELECT '|' || %s || '|' FROM %s`, strings.Join(parts, " || '|' || "), name)), "\n")
	}
	return all
}

func column(t testing.TB, db *database.DB, query string) []string {
	t.Helper()
	list, err := database.All(t.Context(), db, func(row database.Scanner) (text string, err error) { return text, row.Scan(&text) }, query)
	if err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return list
}
