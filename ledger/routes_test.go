package ledger_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kitbackend/kit/audit"
	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/database/databasetest"
	"github.com/kitbackend/kit/ledger"
)

func TestRoutes(t *testing.T) {
	l, err := ledger.New(capability.Host{}, ledger.Config{Currencies: config.Currencies, AdminScope: "bank", BasePath: "/wallet"}, ledger.Peers{})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, r := range l.Capability().Routes {
		got = append(got, strings.Join([]string{r.Method, r.Path, r.Guard.Strategy().String(), r.Guard.Scope()}, " "))
	}
	want := []string{
		"GET /wallet/:currency user ",
		"GET /wallet/:currency/transactions user ",
		"POST /wallet/:currency/credit user bank",
		"POST /wallet/:currency/debit user bank",
		"GET /wallet/admin/accounts control-plane ledger:accounts:read",
		"GET /wallet/admin/accounts/:userId control-plane ledger:accounts:read",
		"GET /wallet/admin/accounts/:userId/:currency/transactions control-plane ledger:transactions:read",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// request runs a route's handler for a caller, as the mount does once the
// guard is passed; path is where its parameters are taken from.
func request(t *testing.T, l *ledger.Ledger, user, method, pattern, path, body string) (string, error) {
	t.Helper()
	for _, route := range l.Capability().Routes {
		if route.Method != method || route.Path != pattern {
			continue
		}
		param := func(name string) string {
			for i, part := range strings.Split(pattern, "/") {
				if part == ":"+name {
					return strings.Split(path, "/")[i]
				}
			}
			return ""
		}
		r := httptest.NewRequest(method, path, strings.NewReader(body))
		r.Header.Set("Content-Type", "application/json")
		origin := &capability.RequestInfo{Method: method, Route: pattern, Caller: capability.Caller{Strategy: capability.StrategyBearer, UserID: user}}
		r = r.WithContext(capability.WithRequestInfo(r.Context(), origin))
		reply, err := route.Handle.Reply(capability.NewCall(httptest.NewRecorder(), r, &route, origin, param))
		if err != nil {
			return "", err
		}
		text, err := json.Marshal(reply)
		if err != nil {
			t.Fatal(err)
		}
		return string(text), nil
	}
	t.Fatalf("no route %s %s", method, pattern)
	return "", nil
}

func TestHandlers(t *testing.T) {
	const (
		balance, list, credit, debit = "/ledger/:currency", "/ledger/:currency/transactions", "/ledger/:currency/credit", "/ledger/:currency/debit"
		accounts, account            = "/ledger/admin/accounts", "/ledger/admin/accounts/:userId"
		transactions                 = "/ledger/admin/accounts/:userId/:currency/transactions"
		row                          = `{"ref":"c1","userId":"ada","currency":"coins","sequence":1,"kind":"credit","amount":10,"balanceAfter":10,"heldAfter":0,"memo":"hi","createdAt":"2026-11-21T12:00:00.000Z"}`
		second                       = `{"ref":"d1","userId":"ada","currency":"coins","sequence":2,"kind":"debit","amount":3,"balanceAfter":7,"heldAfter":0,"createdAt":"2026-11-21T12:00:00.000Z"}`
		ada                          = `{"userId":"ada","currency":"coins","balance":7,"held":0,"available":7,"sequence":2,"openedAt":"2026-11-21T12:00:00.000Z"}`
	)
	steps := []struct {
		user, method, pattern, path, body string
		want                              string
		refusal                           error
	}{
		{"ada", "GET", balance, "/ledger/coins", "", `{"currency":"coins","balance":0,"held":0,"available":0}`, nil},
		{"ada", "GET", list, "/ledger/coins/transactions", "", `{"items":[],"nextCursor":null}`, nil},
		{"ada", "GET", balance, "/ledger/gold", "", "", ledger.ErrCurrencyNotFound},
		{"ada", "GET", list, "/ledger/gold/transactions", "", "", ledger.ErrCurrencyNotFound},
		{"staff", "POST", debit, "/ledger/coins/debit", `{"userId":"ada","amount":3,"ref":"d1"}`, "", ledger.ErrAccountNotFound},
		{"staff", "POST", credit, "/ledger/coins/credit", `{"userId":"ada","amount":10,"ref":"c1","memo":"hi"}`, row, nil},
		{"staff", "POST", credit, "/ledger/coins/credit", `{"userId":"ada","amount":10,"ref":"c1","memo":"hi"}`, row, nil},
		{"staff", "POST", credit, "/ledger/coins/credit", `{"userId":"ada","amount":11,"ref":"c1","memo":"hi"}`, "", ledger.ErrRefConflict},
		{"staff", "POST", debit, "/ledger/coins/debit", `{"userId":"ada","amount":3,"ref":"d1"}`, second, nil},
		{"staff", "POST", debit, "/ledger/coins/debit", `{"userId":"ada","amount":8,"ref":"d2"}`, "", ledger.ErrInsufficientFunds},
		{"staff", "POST", credit, "/ledger/coins/credit", `{"userId":"ada","ref":"c2"}`, "", ledger.ErrInvalidAmount},
		{"staff", "POST", credit, "/ledger/coins/credit", `{"userId":"ada","amount":1e3,"ref":"c2"}`, "", capability.ErrInvalidRequest},
		{"staff", "POST", credit, "/ledger/coins/credit", `{"userId":"ada","amount":1,"ref":"c2","currency":"coins"}`, "", capability.ErrInvalidRequest},
		{"ada", "GET", balance, "/ledger/coins", "", `{"currency":"coins","balance":7,"held":0,"available":7}`, nil},
		{"ada", "GET", list, "/ledger/coins/transactions", "", `{"items":[` + second + `,` + row + `],"nextCursor":null}`, nil},
		{"bob", "GET", list, "/ledger/coins/transactions", "", `{"items":[],"nextCursor":null}`, nil},
		{"", "GET", accounts, "/ledger/admin/accounts", "", `{"items":[` + ada + `],"nextCursor":null}`, nil},
		{"", "GET", account, "/ledger/admin/accounts/ada", "", `{"items":[` + ada + `],"nextCursor":null}`, nil},
		{"", "GET", account, "/ledger/admin/accounts/bob", "", "", ledger.ErrAccountNotFound},
		{"", "GET", transactions, "/ledger/admin/accounts/ada/coins/transactions", "", `{"items":[` + second + `,` + row + `],"nextCursor":null}`, nil},
		{"", "GET", transactions, "/ledger/admin/accounts/ada/gems/transactions", "", "", ledger.ErrAccountNotFound},
	}
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		l, trail := openAudited(t, db)
		for _, s := range steps {
			got, err := request(t, l, s.user, s.method, s.pattern, s.path, s.body)
			if !errors.Is(err, s.refusal) || got != s.want {
				t.Errorf("%s %s %s: %s %v", s.method, s.path, s.body, got, err)
			}
		}
		// What was done is in the trail, once; replays and refusals are not.
		events := must(trail.ListEvents(t.Context(), audit.Filter{Namespace: "ledger"}, capability.NewPage(10, "")))(t)
		var got []string
		for _, e := range events.Items {
			got = append(got, strings.Join([]string{e.Action, e.Actor.ID, e.Subject.Type, e.Subject.ID, string(e.Detail)}, " "))
		}
		want := []string{
			`ledger/debited staff user ada {"currency":"coins","amount":3,"ref":"d1"}`,
			`ledger/credited staff user ada {"currency":"coins","amount":10,"ref":"c1"}`,
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
	})
}

// A credit and a debit name the entry that they belong to.
func TestRelatedRefsOverHTTP(t *testing.T) {
	l := open(t, databasetest.Memory(t))
	for i, path := range []string{"/ledger/coins/credit", "/ledger/coins/debit"} {
		body := fmt.Sprintf(`{"userId":"ada","amount":5,"ref":"r%d","relatedRef":"wager"}`, i)
		got, err := request(t, l, "staff", "POST", strings.Replace(path, "coins", ":currency", 1), path, body)
		if err != nil || !strings.Contains(got, `"relatedRef":"wager"`) {
			t.Errorf("%s: %s, %v", path, got, err)
		}
	}
}

func TestCurrencyCodesMayBeInUpperCase(t *testing.T) {
	cfg := ledger.Config{Currencies: []ledger.Currency{{Code: "EUR", Decimals: 2}}}
	if _, err := ledger.New(capability.Host{}, cfg, ledger.Peers{}); err != nil {
		t.Error(err)
	}
}

func TestCirculationSumsAllAccounts(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		ctx, l := t.Context(), open(t, db)
		must(l.Credit(ctx, ledger.Entry{UserID: "ada", Currency: "coins", Amount: ledger.MaxAmount, Ref: "a"}))(t)
		must(l.Credit(ctx, ledger.Entry{UserID: "bob", Currency: "coins", Amount: ledger.MaxAmount, Ref: "b"}))(t)
		if sums := must(l.Circulation(ctx))(t); sums["coins"] != 2*ledger.MaxAmount {
			t.Errorf("circulation %v, want %d coins", sums, int64(2*ledger.MaxAmount))
		}
	})
}

func TestErasureReleasesHoldsAndEmptiesMemos(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		ctx, l := t.Context(), open(t, db)
		must(l.Credit(ctx, ledger.Entry{UserID: "ada", Currency: "coins", Amount: 9, Ref: "a", Memo: "from Bob Smith"}))(t)
		must(l.Hold(ctx, ledger.Entry{UserID: "ada", Currency: "coins", Amount: 5, Ref: "h", Memo: "bet"}))(t)
		for range 2 { // a second run after a kill changes nothing
			erasure := must(l.Capability().Erase(ctx, capability.Person{ID: "ada"}))(t)
			if len(erasure.Kept) != 1 {
				t.Errorf("kept %+v, want the history named", erasure.Kept)
			}
		}
		balanceIs(t, l, "ada", 9, 0)
		for _, row := range history(t, l, "ada", "coins") {
			if row.Memo != "" {
				t.Errorf("%s still says %q", row.Ref, row.Memo)
			}
		}
		addsUp(t, l)
		if _, err := db.Exec(ctx, `UPDATE ledger_transaction SET amount = 1, memo = '' WHERE ref = 'a'`); err == nil {
			t.Error("an amount could be changed with its memo")
		}
	})
}

func TestExportHasTheWholeHistory(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		ctx, l := t.Context(), open(t, db)
		const credits = capability.MaxLimit + 3
		for i := range credits {
			must(l.Credit(ctx, ledger.Entry{UserID: "ada", Currency: "coins", Amount: 1, Ref: fmt.Sprint("a", i)}))(t)
		}
		seen := make(map[string]int)
		err := l.Capability().Export(ctx, capability.Person{ID: "ada"}, func(kind string, _ any) error {
			seen[kind]++
			return nil
		})
		if err != nil || seen["account"] != 1 || seen["transaction"] != credits {
			t.Errorf("exported %v %v, want one account and %d transactions", seen, err, credits)
		}
	})
}

// TestExportHasOldCurrencies exports what a user has in currencies that were
// configured once, more than there are now.
func TestExportHasOldCurrencies(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		ctx := t.Context()
		open(t, db)
		const currencies = capability.MaxLimit + 3
		var l *ledger.Ledger
		for i := range currencies {
			code := fmt.Sprint("season-", i)
			l = must(ledger.New(capability.Host{DB: db}, ledger.Config{Currencies: []ledger.Currency{{Code: code}}}, ledger.Peers{}))(t)
			must(l.Credit(ctx, ledger.Entry{UserID: "ada", Currency: code, Amount: 1, Ref: code}))(t)
		}
		seen := make(map[string]int)
		err := l.Capability().Export(ctx, capability.Person{ID: "ada"}, func(kind string, _ any) error {
			seen[kind]++
			return nil
		})
		if err != nil || seen["account"] != currencies || seen["transaction"] != currencies {
			t.Errorf("exported %v %v, want %d accounts, each with a transaction", seen, err, currencies)
		}
	})
}

func TestHealth(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		ctx, l := t.Context(), open(t, db)
		must(l.Credit(ctx, ledger.Entry{UserID: "ada", Currency: "coins", Amount: ledger.MaxAmount, Ref: "a"}))(t)
		must(l.Credit(ctx, ledger.Entry{UserID: "bob", Currency: "coins", Amount: ledger.MaxAmount, Ref: "b"}))(t)
		must(l.Hold(ctx, ledger.Entry{UserID: "bob", Currency: "coins", Amount: 5, Ref: "h"}))(t)
		got := make(map[string]string)
		for _, key := range l.Capability().Health {
			text, err := json.Marshal(must(key.Read(context.Background()))(t))
			if err != nil {
				t.Fatal(err)
			}
			got[key.Key] = string(text)
		}
		want := map[string]string{"accounts": "2", "openHolds": "1"}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
	})
}
