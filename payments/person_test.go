package payments_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/kitbackend/kit"
	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/database/databasetest"
	"github.com/kitbackend/kit/kittest"
	"github.com/kitbackend/kit/payments"
)

// waitsBehind reports whether a transaction waits for one that waits for this one.
const waitsBehind = `SELECT EXISTS (SELECT 1 FROM pg_locks AS w JOIN pg_locks AS v ON v.pid = ANY (pg_blocking_pids(w.pid))
	WHERE NOT w.granted AND NOT v.granted AND pg_backend_pid() = ANY (pg_blocking_pids(v.pid)))`

// TestErasureMeetsAWebhook: a webhook that has found whom a purchase is of is written
// before they are erased, so that the erasure finds it.
func TestErasureMeetsAWebhook(t *testing.T) {
	errUndone := errors.New("undone")
	for name, of := range map[string]func(*payments.Observation){
		"by token":    func(o *payments.Observation) { o.CustomerID = "" },
		"by customer": func(o *payments.Observation) { o.AccountToken = "" },
	} {
		t.Run(name, func(t *testing.T) {
			db := databasetest.Postgres(t)
			s := open(t, kit.WithDatabase(db))
			first, second := s.pro(ios, "t1", "ada"), s.pro(ios, "t2", "ada")
			first.CustomerID, second.CustomerID = "cus", "cus"
			s.deliver(ios, message{ID: "d1", Observations: []payments.Observation{first}})
			of(&second)
			second.Charges = []payments.Charge{{ID: "c2", Settled: true}}
			came, erased := make(chan *kittest.Response, 1), make(chan error, 1)
			if err := db.InTx(t.Context(), func(ctx context.Context) error {
				// The webhook finds its subject, then waits for this charge.
				if _, err := db.Exec(ctx, `INSERT INTO payments_charge (rail, charge_id, purchase_id, facts, currency, user_id, credited, clawed_back,
					owed, moves, retry_at, created_at, updated_at) SELECT rail, 'c2', id, '{}', '', '', 0, 0, 0, 0, NULL, 0, 0 FROM payments_purchase`); err != nil {
					return err
				}
				go func() { came <- s.post(ios, message{ID: "d2", Observations: []payments.Observation{second}}) }()
				if err := databasetest.Waits(ctx, db, came); err != nil {
					return err
				}
				go func() {
					_, err := s.Payments().Capability().Erase(context.Background(), capability.Person{ID: "ada"})
					erased <- err
				}()
				for waits := false; !waits && len(erased) == 0; {
					if err := db.QueryRow(ctx, waitsBehind).Scan(&waits); err != nil {
						return err
					}
				}
				return errUndone
			}); !errors.Is(err, errUndone) {
				t.Fatal(err)
			}
			(<-came).Want(200, "")
			if err := <-erased; err != nil {
				t.Fatal(err)
			}
			for _, table := range []string{"subject", "purchase", "customer"} {
				var left int
				if err := db.QueryRow(t.Context(), `SELECT COUNT(*) FROM payments_`+table+` WHERE subject_id = 'ada'`).Scan(&left); err != nil || left != 0 {
					t.Errorf("%d rows of %s name the user who was erased, %v", left, table, err)
				}
			}
		})
	}
}

// TestExportHasWhatWasTakenAway: what, when and why.
func TestExportHasWhatWasTakenAway(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		s := open(t, kit.WithDatabase(db))
		for _, user := range []string{"ada", "bob"} {
			s.deliver(ios, message{ID: user, Observations: []payments.Observation{s.pro(ios, user, user)}})
			if _, err := s.Payments().Revoke(t.Context(), payments.RevokeRequest{Subject: subject(user), Entitlement: "pro", Reason: "asked by " + user}); err != nil {
				t.Fatal(err)
			}
		}
		var got []string
		if err := s.Payments().Capability().Export(t.Context(), capability.Person{ID: "ada"}, func(kind string, record any) error {
			if kind != "entitlement_revocation" {
				return nil
			}
			text, err := json.Marshal(record)
			got = append(got, string(text))
			return err
		}); err != nil {
			t.Fatal(err)
		}
		if len(got) != 1 || !strings.Contains(got[0], `"entitlement":"pro","reason":"asked by ada","revokedAt":"20`) {
			t.Errorf("exported %s", got)
		}
	})
}

// TestErasureLeavesNoWordsOfStaff: why something was taken away can say who somebody
// was; that it was taken away stays.
func TestErasureLeavesNoWordsOfStaff(t *testing.T) {
	s := open(t)
	s.deliver(ios, message{ID: "d1", Observations: []payments.Observation{s.pro(ios, "t1", "ada")}})
	if _, err := s.Payments().Revoke(t.Context(), payments.RevokeRequest{Subject: subject("ada"), Entitlement: "pro", Reason: "Ada Lovelace wrote to us"}); err != nil {
		t.Fatal(err)
	}
	part := s.Payments().Capability()
	if _, err := part.Erase(t.Context(), capability.Person{ID: "ada"}); err != nil {
		t.Fatal(err)
	}
	var rows int
	var words string
	if err := part.Database.QueryRow(t.Context(), `SELECT COUNT(*), MAX(reason) FROM payments_revocation`).Scan(&rows, &words); err != nil || rows != 1 || words != "" {
		t.Errorf("%d rows with the words %q, %v, want one without", rows, words, err)
	}
}
