package payments_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kitbackend/kit"
	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/database/databasetest"
	"github.com/kitbackend/kit/hooks"
	"github.com/kitbackend/kit/payments"
	"github.com/kitbackend/kit/payments/paytest"
)

// TestBareTransactionIDClaimsNothing: the id of a transaction stands on receipts
// and in mails, so it gives a purchase to nobody. What the store signed does, and
// the id confirms what one has.
func TestBareTransactionIDClaimsNothing(t *testing.T) {
	m := openMall(t)
	p, err := m.stores.Buy(ios, paytest.Order{Product: m.products["pro"]})
	if err != nil {
		t.Fatal(err)
	}
	bare := object{"rail": "ios_store", "transactionId": p.ID}
	m.User("eve").Post("/payments/purchases", bare).Want(422, "payments/invalid_receipt")
	out, err := m.Payments().Restore(t.Context(), "eve", payments.RestoreRequest{Rail: ios, Items: []payments.Submission{{TransactionID: p.ID}}})
	if err != nil || len(out.Restored) != 0 || len(out.Skipped) != 1 || out.Skipped[0].Reason != "payments/invalid_receipt" {
		t.Errorf("restored by a bare id: %+v, %v", out, err)
	}
	m.wantEntitled("eve", "pro", false)

	signed := object{"rail": "ios_store", "signedTransaction": p.Submission().SignedTransaction}
	m.User("ada").Post("/payments/purchases", signed).Want(201, "")
	m.User("ada").Post("/payments/purchases", bare).Want(200, "")
	m.User("eve").Post("/payments/purchases", bare).Want(409, "payments/purchase_claimed")
	out, err = m.Payments().Restore(t.Context(), "eve", payments.RestoreRequest{Rail: ios, Items: []payments.Submission{{TransactionID: p.ID}}})
	if err != nil || len(out.Restored) != 0 || out.Skipped[0].Reason != "claimed" {
		t.Errorf("restored by a bare id: %+v, %v", out, err)
	}
	out, err = m.Payments().Restore(t.Context(), "ada", payments.RestoreRequest{Rail: ios, Items: []payments.Submission{{TransactionID: p.ID}}})
	if err != nil || len(out.Restored) != 1 {
		t.Errorf("one's own by a bare id: %+v, %v", out, err)
	}
	m.wantEntitled("ada", "pro", true)
	m.wantEntitled("eve", "pro", false)

	for name, body := range map[string]object{
		"two proofs":      {"rail": "ios_store", "transactionId": p.ID, "signedTransaction": "x"},
		"another's proof": {"rail": "ios_store", "transactionId": p.ID, "purchaseToken": "x"},
		"no proof":        {"rail": "ios_store", "productId": "prod_pro"},
	} {
		t.Run(name, func(t *testing.T) { m.User("eve").Post("/payments/purchases", body).Want(400, "kit/invalid_request") })
	}

	// A bare id of a purchase whose account token is the caller's is a proof of the
	// store's.
	named := m.buy(ios, "map", "bob")
	m.User("bob").Post("/payments/purchases", object{"rail": "ios_store", "transactionId": named.ID}).Want(200, "")
}

// TestAddressProvesNoCustomer: where everybody who types an address becomes its
// customer, a customer gives nobody's purchases away, and opens a portal only for
// somebody to whom all of them belong.
func TestAddressProvesNoCustomer(t *testing.T) {
	s := openWith(t, func(c *payments.Config) { c.Rails[2].CustomersByEmail = true })
	buy := func(tx, user string) payments.Observation {
		o := s.pro(card, tx, user)
		o.CustomerID = "ctm_ada"
		s.deliver(card, message{ID: "d-" + tx, Observations: []payments.Observation{o}})
		s.set(o)
		return o
	}
	portal := func(user string, status int, code string) {
		t.Helper()
		s.User(user).Post("/payments/portal", object{"rail": "card_processor"}).Want(status, code)
	}
	restored := func(user string, want int) {
		t.Helper()
		var out payments.Restored
		s.User(user).Post("/payments/restore", object{"rail": "card_processor"}).Want(200, "").JSON(&out)
		if len(out.Restored) != want {
			t.Errorf("%s restored %+v, want %d", user, out, want)
		}
	}
	ofCustomer := func(list ...payments.Observation) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.state["ctm_ada"] = list
	}
	repair := func(tx string) {
		t.Helper()
		if _, err := s.Payments().Repair(t.Context(), payments.RepairRequest{Rail: card, TransactionID: tx, Subject: subject("ada"), Reason: "x"}); err != nil {
			t.Fatal(err)
		}
	}
	mine := buy("sub_ada", "ada")
	ofCustomer(mine)
	portal("ada", 201, "")
	restored("ada", 1)

	// eve types ada's address.
	buy("sub_eve", "eve")
	portal("eve", 404, "payments/customer_not_found")
	restored("eve", 0)
	portal("ada", 404, "payments/customer_not_found")
	s.wantEntitled("ada", "pro", true)
	repair("sub_eve")
	portal("ada", 201, "")

	// What was bought without a token is nobody's, whether it was told of or not.
	old := s.pro(card, "sub_old", "")
	old.CustomerID = "ctm_ada"
	ofCustomer(mine, old)
	s.set(old)
	portal("ada", 404, "payments/customer_not_found")
	restored("ada", 0)
	buy("sub_new", "")
	if p := s.purchase(card, "sub_new"); p.Subject != nil {
		t.Errorf("a customer named %+v", p.Subject)
	}
	repair("sub_old")
	repair("sub_new")
	portal("ada", 201, "")
	restored("ada", 2)

	// Facts that PostgreSQL cannot read as JSON are kept.
	odd := buy("sub_odd", "bob")
	odd.Version, odd.Price = 2, &payments.Price{Discount: "\x00"}
	s.deliver(card, message{ID: "odd", Observations: []payments.Observation{odd}})
	s.wantEntitled("bob", "pro", true)
}

// TestRepairByTheIDOfARenewal: a rail knows a purchase by more than one id, and
// the one that was found is given to the subject.
func TestRepairByTheIDOfARenewal(t *testing.T) {
	m := openMall(t)
	p := m.buy(ios, "pro", "ada")
	m.Clock.Advance(30 * day)
	m.do("renew", p.Renew())
	renewal := m.stores.IOS.Latest(p.ID)
	if renewal == p.ID {
		t.Fatal("the renewal has the id of the purchase")
	}
	m.Machine("payments:entitlements:grant").Post("/payments/entitlements/grant",
		object{"rail": "ios_store", "transactionId": renewal, "subjectType": "user", "subjectId": "bob", "reason": "support"}).Want(201, "")
	m.wantEntitled("bob", "pro", true)
	m.wantEntitled("ada", "pro", false)
	if got := m.only("bob", "pro"); got.TransactionID != p.ID {
		t.Errorf("moved %s, want %s", got.TransactionID, p.ID)
	}
}

// TestPauseThatWasAskedFor begins by itself, and ends when the rail says so.
func TestPauseThatWasAskedFor(t *testing.T) {
	s := open(t)
	o := s.pro(card, "t1", "ada")
	o.Lifecycle.PauseAt, o.Lifecycle.ResumeAt = o.Lifecycle.AccessUntil, s.in(60*day)
	s.deliver(card, message{ID: "d1", Observations: []payments.Observation{o}})
	if p := s.wantStatus(card, "t1", payments.StatusActive); p.ResumeAt != nil {
		t.Errorf("resumeAt before the pause: %+v", p)
	}
	s.wantEntitled("ada", "pro", true)
	s.Clock.Advance(30 * day)
	for _, written := range []bool{false, true} {
		if p := s.wantStatus(card, "t1", payments.StatusPaused); p.ResumeAt == nil || p.ResumeAt.At != o.Lifecycle.ResumeAt || p.GraceUntil != nil {
			t.Errorf("paused, written %v: %+v", written, p)
		}
		s.wantEntitled("ada", "pro", false)
		if err := s.Payments().Lapse(); err != nil {
			t.Fatal(err)
		}
	}
	s.Clock.Advance(30 * day)
	s.wantStatus(card, "t1", payments.StatusPaused)
	o.Version, o.Lifecycle.PauseAt, o.Lifecycle.ResumeAt, o.Lifecycle.AccessUntil = 2, 0, 0, s.in(30*day)
	s.deliver(card, message{ID: "d2", Observations: []payments.Observation{o}})
	s.wantStatus(card, "t1", payments.StatusActive)
}

// TestHeirInheritsInAnyOrder: a purchase that replaces another has its subject,
// whichever of the two is heard of first, and whatever they are called.
func TestHeirInheritsInAnyOrder(t *testing.T) {
	s := open(t)
	for n, order := range [][]int{{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}} {
		for _, names := range []string{"abc", "cba"} {
			t.Run(fmt.Sprint(order, names), func(t *testing.T) {
				user := fmt.Sprint("user", n, names)
				ids := make([]string, len(names))
				for i := range ids {
					ids[i] = fmt.Sprintf("%s-%c", user, names[i])
				}
				chain := []payments.Observation{s.pro(android, ids[0], user), s.pro(android, ids[1], ""), s.pro(android, ids[2], "")}
				chain[1].Lifecycle.Replaces, chain[2].Lifecycle.Replaces = ids[0], ids[1]
				for _, i := range order {
					s.deliver(android, message{ID: ids[i], Observations: []payments.Observation{chain[i]}})
				}
				s.wantStatus(android, ids[0], payments.StatusExpired)
				s.wantStatus(android, ids[1], payments.StatusExpired)
				if p := s.wantStatus(android, ids[2], payments.StatusActive); p.Subject == nil || p.Subject.ID != user {
					t.Errorf("the newest belongs to %v, want %s", p.Subject, user)
				}
				s.wantEntitled(user, "pro", true)
			})
		}
	}
}

// TestReplacedWaitsForNoHeir: a store reports a purchase and the one that replaced it at once, and
// neither of the two waits for the other, which might wait for it.
func TestReplacedWaitsForNoHeir(t *testing.T) {
	dbs := databasetest.Shared(t, 2)
	s := nodes(t, dbs[:1])[0]
	first, heir := s.pro(android, "t1", "ada"), s.pro(android, "t2", "ada")
	heir.Lifecycle.Replaces = "t1"
	s.deliver(android, message{ID: "d1", Observations: []payments.Observation{first}})
	s.deliver(android, message{ID: "d2", Observations: []payments.Observation{heir}})
	delivered := 0
	err := dbs[1].InTx(t.Context(), func(ctx context.Context) error {
		var id string
		if err := dbs[1].QueryRow(ctx, `SELECT id FROM payments_purchase WHERE transaction_id = 't2' FOR UPDATE`).Scan(&id); err != nil {
			return err
		}
		first.Version++
		delivered = s.post(android, message{ID: fmt.Sprint("again", first.Version), Observations: []payments.Observation{first}}).Status
		return nil
	})
	if err != nil || delivered != 200 {
		t.Errorf("%d while its heir is locked: %v, want 200", delivered, err)
	}
}

// TestReplacedInAnyOrder: what was replaced stays so, also where the statement that
// says it comes behind a newer one that does not.
func TestReplacedInAnyOrder(t *testing.T) {
	s := open(t)
	for i, order := range [][]int{{0, 1}, {1, 0}} {
		first, heir := fmt.Sprint("first", i), fmt.Sprint("heir", i)
		s.deliver(android, message{ID: first, Observations: []payments.Observation{s.pro(android, first, "ada")}})
		list := []payments.Observation{s.pro(android, heir, "ada"), s.pro(android, heir, "ada")}
		list[0].Lifecycle.Replaces, list[1].Version = first, 2
		for _, each := range order {
			s.deliver(android, message{ID: fmt.Sprint(heir, each), Observations: list[each : each+1]})
		}
		s.wantStatus(android, first, payments.StatusExpired)
		s.wantStatus(android, heir, payments.StatusActive)
	}
}

// TestRefundOfWhatOnlyTheRailKnew: what may make no purchase changes one that is
// known and leaves nothing of any other.
func TestRefundOfWhatOnlyTheRailKnew(t *testing.T) {
	s := open(t)
	refund := func(tx string) payments.Observation {
		return payments.Observation{TransactionID: tx, Version: 1, OnlyKnown: true, Refunds: []payments.Refund{{ID: "void", ChargeID: "charge-" + tx, Full: true}}}
	}
	s.deliver(android, message{ID: "d1", Observations: []payments.Observation{s.pro(android, "t1", "ada")}})
	s.deliver(android, message{ID: "d2", Observations: []payments.Observation{refund("t1"), refund("t2")}})
	s.wantStatus(android, "t1", payments.StatusRefunded)
	var list capability.Items[payments.Purchase]
	s.Machine("payments:purchases:read").Get("/payments/admin/purchases").Want(200, "").JSON(&list)
	if len(list.Items) != 1 {
		t.Errorf("%d purchases, want 1: %+v", len(list.Items), list.Items)
	}
}

// TestGrantThatRunsOutIsTold: the hook hears of the end of a grant, once, and not
// where something else gives the same.
func TestGrantThatRunsOutIsTold(t *testing.T) {
	s := open(t)
	var told []hooks.EntitlementsChanged
	s.Hooks().EntitlementsChanged.After(func(_ context.Context, e hooks.EntitlementsChanged) { told = append(told, e) })
	for _, g := range []struct {
		user  string
		lasts time.Duration
	}{{"ada", hour}, {"bob", hour}, {"bob", 2 * hour}} {
		if _, err := s.Payments().Grant(t.Context(), payments.GrantRequest{Subject: subject(g.user), Entitlement: "vip", ExpiresAt: s.Clock.Now().Add(g.lasts), Reason: "x"}); err != nil {
			t.Fatal(err)
		}
	}
	want := func(users ...string) {
		t.Helper()
		for range 2 {
			if err := s.Payments().Lapse(); err != nil {
				t.Fatal(err)
			}
		}
		var got []string
		for _, e := range told {
			if !slices.Equal(e.Revoked, []string{"vip"}) {
				t.Errorf("told of %+v", e)
			}
			got = append(got, e.SubjectID)
		}
		if !slices.Equal(got, users) {
			t.Errorf("told of %v, want %v", got, users)
		}
		told = nil
	}
	told = nil
	want()
	s.Clock.Advance(hour)
	want("ada")
	s.Clock.Advance(hour)
	want("bob")
}

// TestOneThatCannotBeWrittenKeepsNoOthers: what a hook refuses stops neither the
// others of its rail nor other rails, and the job fails until it is written.
func TestOneThatCannotBeWrittenKeepsNoOthers(t *testing.T) {
	for name, look := range map[string]func(*shop) (failed bool, err error){
		"lapse": func(s *shop) (bool, error) { return s.Payments().Lapse() != nil, nil },
		"reconcile": func(s *shop) (bool, error) {
			run, err := s.Payments().Reconcile(s.t.Context(), payments.ReconcileRequest{})
			return run.Status == payments.RunPartial && run.Failed > 0, err
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := open(t)
			broken := true
			var told []string
			s.Hooks().EntitlementsChanged.In(func(_ context.Context, e hooks.EntitlementsChanged) error {
				if broken && e.SubjectID == "ada" && len(e.Revoked) > 0 {
					return errDown
				}
				return nil
			})
			s.Hooks().EntitlementsChanged.After(func(_ context.Context, e hooks.EntitlementsChanged) {
				if len(e.Revoked) > 0 {
					told = append(told, e.SubjectID)
				}
			})
			rails := map[string]payments.RailID{"ada": android, "bob": android, "eve": ios}
			for i, user := range []string{"ada", "bob", "eve"} {
				o := s.pro(rails[user], user, user)
				o.Lifecycle.AccessUntil += payments.Instant(i)
				o.Lifecycle.WillRenew = false
				s.deliver(rails[user], message{ID: user, Observations: []payments.Observation{o}})
			}
			s.Clock.Advance(40 * day)
			if failed, err := look(s); err != nil || !failed || !slices.Equal(told, []string{"bob", "eve"}) {
				t.Errorf("told of %v; failed %v, %v", told, failed, err)
			}
			broken = false
			if err := s.Payments().Lapse(); err != nil || len(told) != 3 {
				t.Errorf("once it can be written told of %v, %v", told, err)
			}
		})
	}
}

// TestReadsSeek: no list and no part of a run walks through the purchases.
func TestReadsSeek(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		openWith(t, func(*payments.Config) {}, kit.WithDatabase(db))
		const rows = 6000
		if _, err := db.Exec(t.Context(), `WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < $1)
			INSERT INTO payments_purchase (id, rail, transaction_id, environment, product_key, store_product_id, kind, subject_type, subject_id, facts,
				status, grants, status_then, period_type, will_renew, ownership, starts_at, quantity, acknowledged, created_at, updated_at, checked_at, changes_at)
			SELECT 'p' || CAST(10000 + i AS TEXT), CASE WHEN i % 500 = 0 THEN 'ios_store' ELSE 'card_processor' END, CAST(i AS TEXT), 'sandbox',
				CASE WHEN i % 400 = 0 THEN 'max' ELSE 'pro' END, 'x', CASE WHEN i % 300 = 0 THEN 'one_time' ELSE 'subscription' END, 'user', 'u' || CAST(i % 600 AS TEXT), '{}',
				CASE WHEN i % 700 = 0 THEN 'paused' ELSE 'active' END, TRUE, 'expired', 'normal', TRUE, 'purchased', 0, 1, 'none', 0, 0, 0,
				CASE WHEN i % 900 = 0 THEN 1 ELSE 1000000 END FROM n`, rows); err != nil {
			t.Fatal(err)
		}
		for _, text := range []string{`ANALYZE payments_purchase`, `ANALYZE payments_charge`, `ANALYZE payments_delivery`, `ANALYZE payments_grant`} {
			if db.Dialect() == database.SQLite {
				break // an application's database has no statistics
			}
			if _, err := db.Exec(t.Context(), text); err != nil {
				t.Fatal(err)
			}
		}
		first, args := payments.PurchasesQuery(payments.PurchaseFilter{}, 1000, "", 51)
		if _, err := db.Exec(t.Context(), `EXPLAIN `+first, args...); err != nil { // planning reads once what is in no plan
			t.Fatal(err)
		}
		for _, f := range []payments.PurchaseFilter{
			{}, {Rail: ios}, {Rail: card}, {ProductKey: "max"}, {ProductKey: "pro"}, {Kind: payments.KindOneTime}, {Kind: payments.KindSubscription},
			{Status: payments.StatusPaused}, {Status: payments.StatusExpired}, {Status: payments.StatusActive}, {Status: payments.StatusRefunded},
			{Subject: subject("u7")}, {Subject: subject("u7"), Status: payments.StatusActive}, {Rail: ios, Status: payments.StatusExpired},
		} {
			for _, before := range []string{"", "p13000"} {
				query, args := payments.PurchasesQuery(f, 1000, before, 51)
				databasetest.Seeks(t, db, "found written lapsed (subquery-2) (subquery-4)", query, args...)
			}
		}
		behind := map[string][]any{payments.DueQuery: {1, "p"}}
		customer := databasetest.Seeks(t, db, "", payments.OwnCustomerQuery, "user", "u7", "card_processor")
		if db.Dialect() == database.SQLite && !strings.Contains(customer, "payments_purchase_customer (rail=? AND <expr>=?)") {
			t.Errorf("the plan does not seek the customer:\n%s", customer)
		}
		for query, index := range map[string]string{payments.DueQuery: "payments_purchase_lapsed", payments.OwedQuery: "payments_charge_retry", payments.FailedQuery: "payments_delivery_again"} {
			if plan := databasetest.Seeks(t, db, "", query, append([]any{1000, "ios_store", 200}, behind[query]...)...); db.Dialect() == database.SQLite && !strings.Contains(plan, index) {
				t.Errorf("the plan does not use %s:\n%s", index, plan)
			}
		}
		for _, query := range payments.RecallQueries {
			_, find, _ := strings.Cut(query, " IN\n\t\t(")
			databasetest.Seeks(t, db, "", strings.TrimSuffix(find, ")"), "ios_store", 1000, 200)
		}
		databasetest.Seeks(t, db, "", payments.LapsedQuery, 1000, 200, 1, "g")
		databasetest.Seeks(t, db, "", payments.RefundedQuery, "card_processor", 1000, 200, 1)
		databasetest.Seeks(t, db, "", payments.CreditedQuery, "user", "u7", "erased:x", 200)
	})
}
