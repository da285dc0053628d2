package testers_test

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/kitbackend/kit"
	"github.com/kitbackend/kit/auth"
	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/database/databasetest"
	"github.com/kitbackend/kit/email"
	"github.com/kitbackend/kit/kittest"
	"github.com/kitbackend/kit/testers"
)

// TestLinksAndVisitsAtOnce follows a link, or runs the daily pass, while the member uses the app:
// neither undoes the other's write.
func TestLinksAndVisitsAtOnce(t *testing.T) {
	each(t, testers.Config{}, func(t *testing.T, k *kittest.Kit) {
		ctx := context.Background()
		for i := range 8 {
			address := fmt.Sprintf("p%d@example.com", i)
			m := invite(t, k, address)
			confirm, _ := links(t, k, address)
			user, err := k.Auth().CreateUser(ctx, auth.NewUser{Email: address, EmailVerified: true})
			if err != nil {
				t.Fatal(err)
			}
			at := make(chan struct{})
			var wg sync.WaitGroup
			together := func(run func() error) {
				wg.Go(func() {
					<-at
					if err := run(); err != nil {
						t.Error(err)
					}
				})
			}
			together(func() error { return k.Testers().Seen(ctx, user.ID, testers.Visit{AppVersion: "1.0"}) })
			together(func() error {
				if r := k.Anonymous().Get(confirm + "?go=1"); r.Status != 200 {
					return fmt.Errorf("confirm: %d", r.Status)
				}
				return nil
			})
			together(func() error { return k.Testers().Daily(ctx) })
			close(at)
			wg.Wait()
			if got := member(t, k, m.ID); got.State != testers.StateAccepted || got.AppVersion == nil || got.UserID == nil {
				t.Fatalf("round %d: %s, seen on %v: want accepted, and the visit noted", i, got.State, got.LastSeenOn)
			}
		}
	})
}

// TestThePassAndVisitsAtOnce lets the pass record that mail is undeliverable while the member uses
// the app.
func TestThePassAndVisitsAtOnce(t *testing.T) {
	each(t, testers.Config{}, func(t *testing.T, k *kittest.Kit) {
		ctx := context.Background()
		users := make(map[string]string)
		for i := range 8 {
			address := fmt.Sprintf("p%d@example.com", i)
			m := join(t, k, address)
			user, err := k.Auth().CreateUser(ctx, auth.NewUser{Email: address, EmailVerified: true})
			if err != nil {
				t.Fatal(err)
			}
			users[m.ID] = user.ID
			if _, _, err := k.Email().Suppress(ctx, address, "list", "bounces"); err != nil {
				t.Fatal(err)
			}
			bounce(t, k, address)
		}
		at := make(chan struct{})
		var wg sync.WaitGroup
		for _, userID := range users {
			wg.Go(func() {
				<-at
				if err := k.Testers().Seen(ctx, userID, testers.Visit{AppVersion: "2.0"}); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Go(func() {
			<-at
			if err := k.Testers().Daily(ctx); err != nil {
				t.Error(err)
			}
		})
		close(at)
		wg.Wait()
		for memberID := range users {
			if got := member(t, k, memberID); got.AppVersion == nil {
				t.Errorf("the pass took back the visit of %s", got.Email)
			}
		}
	})
}

// meanwhile runs first in a transaction, starts second, which has to wait for it, and commits. It
// returns the error of second.
func meanwhile(t testing.TB, db *database.DB, first func(context.Context) error, second func() error) error {
	t.Helper()
	done := make(chan error, 1)
	if err := db.InTx(t.Context(), func(ctx context.Context) error {
		if err := first(ctx); err != nil {
			return err
		}
		go func() { done <- second() }()
		return databasetest.Waits(ctx, db, done)
	}); err != nil {
		t.Fatal(err)
	}
	return <-done
}

// TestWithdrawalMeetsAMailThatIsTakenUp withdraws an address while a worker takes the mail to it
// from the queue.
func TestWithdrawalMeetsAMailThatIsTakenUp(t *testing.T) {
	db := databasetest.Postgres(t)
	k := compose(t, testers.Config{}, kit.WithDatabase(db))
	m := invite(t, k, "ada@example.com")
	if err := meanwhile(t, db, func(ctx context.Context) error {
		_, err := db.Exec(ctx, `UPDATE email_job SET state = $1`, string(email.StateSending)) // as the worker does
		return err
	}, func() error { return k.Testers().Withdraw(context.Background(), "ada@example.com") }); err != nil {
		t.Errorf("the withdrawal: %v", err)
	}
	want(t, k, m.ID, testers.StateWithdrawn)
}

// TestWithdrawalMeetsAnInvitation withdraws an address while staff invites it.
func TestWithdrawalMeetsAnInvitation(t *testing.T) {
	db := databasetest.Postgres(t)
	k := compose(t, testers.Config{}, kit.WithDatabase(db))
	other := invite(t, k, "bob@example.com")
	if err := meanwhile(t, db, func(ctx context.Context) error {
		_, err := k.Testers().Invite(ctx, "", []testers.Tester{{Email: "ada@example.com"}})
		return err
	}, func() error { return k.Testers().Withdraw(context.Background(), "ada@example.com") }); err != nil {
		t.Fatal(err)
	}
	k.RunJobs()
	if mail, ok, err := k.Email().LastMail(t.Context(), "ada@example.com"); err != nil || ok {
		t.Errorf("mailed after withdrawing: %s, %v", mail.Subject, err)
	}
	for _, m := range cohort(t, k).Members {
		if m.ID != other.ID && m.State != testers.StateWithdrawn {
			t.Errorf("%s is %s", m.Email, m.State)
		}
	}
}

// TestUnsubscribingMeetsAnInvitation suppresses all mail to an address while staff invites it.
func TestUnsubscribingMeetsAnInvitation(t *testing.T) {
	db := databasetest.Postgres(t)
	k := compose(t, testers.Config{}, kit.WithDatabase(db))
	invite(t, k, "bob@example.com") // creates the cohort
	link := news(t, k)
	var m testers.Member
	var left *kittest.Response
	if err := meanwhile(t, db, func(ctx context.Context) error {
		invited, err := k.Testers().Invite(ctx, "", []testers.Tester{{Email: "ada@example.com"}})
		if err == nil {
			m = invited.Invited[0]
		}
		return err
	}, func() error {
		left = k.Anonymous().With("Content-Type", "application/x-www-form-urlencoded").Post(link, "do=unsubscribe-all")
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	left.Want(200, "")
	want(t, k, m.ID, testers.StateWithdrawn)
}

// TestErasureMeetsAMail erases a tester while staff mails them, at an address that is not the
// account's.
func TestErasureMeetsAMail(t *testing.T) {
	db := databasetest.Postgres(t)
	k := compose(t, testers.Config{}, kit.WithDatabase(db))
	invite(t, k, "ada@work.example")
	confirm, _ := links(t, k, "ada@work.example")
	k.User("ada").Get(confirm+"?go=1").Want(200, "")
	if err := meanwhile(t, db, func(ctx context.Context) error {
		_, err := k.Testers().Resend(ctx, testers.Ref{Email: "ada@work.example"})
		return err
	}, func() error {
		_, err := k.Testers().Erase(context.Background(), capability.Person{ID: "ada"})
		return err
	}); err != nil {
		t.Fatal(err)
	}
	for _, table := range []string{"email_job", "testers_member", "testers_event"} {
		var left int
		if err := db.QueryRow(t.Context(), `SELECT count(*) FROM `+table).Scan(&left); err != nil || left != 0 {
			t.Errorf("%d rows are left in %s, %v", left, table, err)
		}
	}
}
