package audit_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/kitbackend/kit/audit"
	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/capability/capabilitytest"
	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/database/databasetest"
)

var start = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func open(t testing.TB, db *database.DB) *audit.Audit {
	t.Helper()
	a, err := audit.New(capability.Host{DB: db, Environment: capability.Sandbox}, audit.Config{}, audit.Peers{})
	if err != nil {
		t.Fatal(err)
	}
	c := a.Capability()
	if err := db.Migrate(context.Background(), database.Migrations{Name: c.Name, FS: c.Migrations}); err != nil {
		t.Fatal(err)
	}
	return a
}

func events(t testing.TB, a *audit.Audit, f audit.Filter) []audit.Entry {
	t.Helper()
	page, err := a.ListEvents(context.Background(), f, capability.NewPage(200, ""))
	if err != nil {
		t.Fatal(err)
	}
	return page.Items
}

func TestCapability(t *testing.T) {
	capabilitytest.Run(t, func(h capability.Host, basePath string) (capability.Capability, error) {
		a, err := audit.New(h, audit.Config{BasePath: basePath}, audit.Peers{})
		if err != nil {
			return capability.Capability{}, err
		}
		return a.Capability(), nil
	})
}

func TestRecordKeepsEveryFact(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		db.UseClock(func() time.Time { return start })
		a := open(t, db)
		ctx := capability.WithRequestInfo(context.Background(), &capability.RequestInfo{
			RequestID: "request-1", Method: http.MethodPost, Route: "/ledger/:currency/credit",
			Caller: capability.Caller{Strategy: capability.StrategyBearer, UserID: "ada"},
			IP:     "203.0.113.7", UserAgent: "Firefox",
		})
		err := a.Record(ctx, audit.Event{
			Action:  "ledger/credited",
			Subject: audit.Target{Type: "account", ID: "ada"},
			Targets: []audit.Target{{Type: "currency", ID: "coins"}},
			Detail:  map[string]any{"amount": 5, "ref": "a\x00b"},
		})
		if err != nil {
			t.Fatal(err)
		}
		want := []audit.Entry{{
			OccurredAt: capability.Time{Time: start}, Action: "ledger/credited",
			Actor:   audit.Actor{Kind: audit.ActorUser, ID: "ada"},
			Subject: audit.Target{Type: "account", ID: "ada"}, Targets: []audit.Target{{Type: "currency", ID: "coins"}},
			Outcome: audit.OutcomeSucceeded, RequestID: "request-1", Route: "POST /ledger/:currency/credit",
			Environment: "sandbox", Detail: json.RawMessage(`{"amount":5,"ref":"a\u0000b"}`),
			IP: "203.0.113.7", UserAgent: "Firefox",
		}}
		got := events(t, a, audit.Filter{})
		if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(audit.Entry{}, "ID", "Hash")); diff != "" {
			t.Error(diff)
		}
		if got[0].Namespace() != "ledger" || len(got[0].ID) != 26 || len(got[0].Hash) != 32 {
			t.Errorf("namespace %q, id %q, hash %x", got[0].Namespace(), got[0].ID, got[0].Hash)
		}
	})
}

// TestRecordSharesTheFateOfTheTransaction checks that neither an event nor its change exists
// without the other.
func TestRecordSharesTheFateOfTheTransaction(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		a := open(t, db)
		ctx := context.Background()
		if _, err := db.Exec(ctx, `CREATE TABLE change (id TEXT PRIMARY KEY)`); err != nil {
			t.Fatal(err)
		}
		change := func(id string, e audit.Event, after error) error {
			return db.InTx(ctx, func(ctx context.Context) error {
				if _, err := db.Exec(ctx, `INSERT INTO change (id) VALUES ($1)`, id); err != nil {
					return err
				}
				_ = a.Record(ctx, e) // even if the caller ignores the error, the change does not commit without the event
				return after
			})
		}
		boom := errors.New("boom")
		if err := change("rolled back", audit.Event{Action: "test/changed"}, boom); !errors.Is(err, boom) {
			t.Errorf("rolled back: %v", err)
		}
		if err := change("bad event", audit.Event{Action: "test-changed"}, nil); !errors.Is(err, audit.ErrInvalidEvent) {
			t.Errorf("bad event: %v", err)
		}
		if err := change("kept", audit.Event{Action: "test/changed"}, nil); err != nil {
			t.Errorf("kept: %v", err)
		}
		var changes int
		if err := db.QueryRow(ctx, `SELECT count(*) FROM change`).Scan(&changes); err != nil {
			t.Fatal(err)
		}
		if n := len(events(t, a, audit.Filter{})); changes != 1 || n != 1 {
			t.Errorf("%d changes and %d events, want one each", changes, n)
		}
	})
}

func TestNilAuditRecordsNothing(t *testing.T) {
	var a *audit.Audit
	if err := a.Record(context.Background(), audit.Event{Action: "not even valid"}); err != nil {
		t.Error(err)
	}
}

func TestActorOfTheContext(t *testing.T) {
	a := open(t, databasetest.Memory(t))
	tests := []struct {
		caller capability.Caller
		want   audit.Actor
	}{
		{capability.Caller{Strategy: capability.StrategyBearer, UserID: "ada"}, audit.Actor{Kind: audit.ActorUser, ID: "ada"}},
		{capability.Caller{Strategy: capability.StrategySession, UserID: "ada"}, audit.Actor{Kind: audit.ActorUser, ID: "ada"}},
		{capability.Caller{Strategy: capability.StrategyControlPlane, KeyID: "k_1"}, audit.Actor{Kind: audit.ActorControlPlane, KeyID: "k_1"}},
		{capability.Caller{Strategy: capability.StrategySignedWebhook}, audit.Actor{Kind: audit.ActorWebhook}},
		{capability.Caller{Strategy: capability.StrategyPublic}, audit.Actor{Kind: audit.ActorAnonymous}},
		{capability.Caller{}, audit.Actor{Kind: audit.ActorAnonymous}},
	}
	for _, tt := range tests {
		t.Run(tt.caller.Strategy.String(), func(t *testing.T) {
			ctx := capability.WithRequestInfo(context.Background(), &capability.RequestInfo{Caller: tt.caller})
			if err := a.Record(ctx, audit.Event{Action: "test/done"}); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, events(t, a, audit.Filter{})[0].Actor); diff != "" {
				t.Error(diff)
			}
		})
	}
	t.Run("outside of a request", func(t *testing.T) {
		if err := a.Record(context.Background(), audit.Event{Action: "test/done"}); err != nil {
			t.Fatal(err)
		}
		if got := events(t, a, audit.Filter{})[0].Actor; got != (audit.Actor{Kind: audit.ActorSystem}) {
			t.Errorf("actor %v", got)
		}
	})
}

func TestGrammar(t *testing.T) {
	a := open(t, databasetest.Memory(t))
	long := strings.Repeat("x", audit.MaxID+1)
	valid := audit.Event{Action: "test/done"}
	tests := map[string]func(*audit.Event){
		"no action":            func(e *audit.Event) { e.Action = "" },
		"no namespace":         func(e *audit.Event) { e.Action = "done" },
		"hyphen in namespace":  func(e *audit.Event) { e.Action = "control-plane/key_expired" },
		"hyphen in verb":       func(e *audit.Event) { e.Action = "controlplane/key-expired" },
		"upper case":           func(e *audit.Event) { e.Action = "test/Done" },
		"two slashes":          func(e *audit.Event) { e.Action = "test/done/twice" },
		"trailing newline":     func(e *audit.Event) { e.Action = "test/done\n" },
		"namespace too long":   func(e *audit.Event) { e.Action = strings.Repeat("n", 33) + "/done" },
		"verb too long":        func(e *audit.Event) { e.Action = "test/" + strings.Repeat("v", 65) },
		"digit first":          func(e *audit.Event) { e.Action = "2fa/enabled" },
		"unknown actor kind":   func(e *audit.Event) { e.Actor = audit.Actor{Kind: "robot", ID: "r2"} },
		"actor without kind":   func(e *audit.Event) { e.Actor = audit.Actor{ID: "ada"} },
		"user without id":      func(e *audit.Event) { e.Actor = audit.Actor{Kind: audit.ActorUser} },
		"actor id too long":    func(e *audit.Event) { e.Actor = audit.Actor{Kind: audit.ActorUser, ID: long} },
		"actor id with NUL":    func(e *audit.Event) { e.Actor = audit.Actor{Kind: audit.ActorUser, ID: "a\x00"} },
		"subject without type": func(e *audit.Event) { e.Subject = audit.Target{ID: "ada"} },
		"subject without id":   func(e *audit.Event) { e.Subject = audit.Target{Type: "user"} },
		"subject type":         func(e *audit.Event) { e.Subject = audit.Target{Type: "User", ID: "ada"} },
		"subject not UTF-8":    func(e *audit.Event) { e.Subject = audit.Target{Type: "user", ID: "\xff"} },
		"empty target":         func(e *audit.Event) { e.Targets = []audit.Target{{}} },
		"too many targets": func(e *audit.Event) {
			for i := range audit.MaxTargets + 1 {
				e.Targets = append(e.Targets, audit.Target{Type: "user", ID: fmt.Sprint(i)})
			}
		},
		"unknown outcome":      func(e *audit.Event) { e.Outcome = "maybe" },
		"success with a code":  func(e *audit.Event) { e.Code = "test/refused" },
		"detail too large":     func(e *audit.Event) { e.Detail = strings.Repeat("x", audit.MaxDetail-1) },
		"detail without JSON":  func(e *audit.Event) { e.Detail = func() {} },
		"detail of broken raw": func(e *audit.Event) { e.Detail = json.RawMessage(`{`) },
	}
	for name, breakIt := range tests {
		t.Run(name, func(t *testing.T) {
			e := valid
			breakIt(&e)
			if err := a.Record(context.Background(), e); !errors.Is(err, audit.ErrInvalidEvent) {
				t.Errorf("got %v, want ErrInvalidEvent", err)
			}
		})
	}
	t.Run("limits are inside", func(t *testing.T) {
		e := audit.Event{
			Action:  strings.Repeat("n", 32) + "/" + strings.Repeat("v", 64),
			Actor:   audit.Actor{Kind: audit.ActorOperator, ID: long[1:]},
			Outcome: audit.OutcomeRefused, Code: "test/refused",
			Detail: strings.Repeat("x", audit.MaxDetail-2),
		}
		if err := a.Record(context.Background(), e); err != nil {
			t.Error(err)
		}
	})
}

func TestEventsFilterAndPage(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		now := start
		db.UseClock(func() time.Time { return now })
		a := open(t, db)
		record := func(e audit.Event) {
			t.Helper()
			now = now.Add(time.Second)
			if err := a.Record(context.Background(), e); err != nil {
				t.Fatal(err)
			}
		}
		ada, board := audit.Actor{Kind: audit.ActorUser, ID: "ada"}, audit.Target{Type: "board", ID: "weekly"}
		record(audit.Event{Action: "ledger/credited", Actor: ada})
		record(audit.Event{Action: "ledger2/credited"})
		record(audit.Event{Action: "ledger/debited", Outcome: audit.OutcomeRefused, Code: "ledger/insufficient_funds"})
		record(audit.Event{Action: "leaderboard/submitted", Actor: ada, Subject: board})

		tests := []struct {
			name   string
			filter audit.Filter
			want   []string
		}{
			{"all, newest first", audit.Filter{}, []string{"leaderboard/submitted", "ledger/debited", "ledger2/credited", "ledger/credited"}},
			{"namespace", audit.Filter{Namespace: "ledger"}, []string{"ledger/debited", "ledger/credited"}},
			{"action", audit.Filter{Action: "ledger/debited"}, []string{"ledger/debited"}},
			{"actor", audit.Filter{ActorKind: audit.ActorUser, ActorID: "ada"}, []string{"leaderboard/submitted", "ledger/credited"}},
			{"subject", audit.Filter{Subject: board}, []string{"leaderboard/submitted"}},
			{"outcome", audit.Filter{Outcome: audit.OutcomeRefused}, []string{"ledger/debited"}},
			{"nothing", audit.Filter{Namespace: "ledger", ActorID: "bob"}, nil},
		}
		for _, tt := range tests {
			t.Run(tt.name, func(t *testing.T) {
				var all, paged []string
				for _, e := range events(t, a, tt.filter) {
					all = append(all, e.Action)
				}
				cursor := ""
				for {
					page, err := a.ListEvents(context.Background(), tt.filter, capability.NewPage(1, cursor))
					if err != nil {
						t.Fatal(err)
					}
					for _, e := range page.Items {
						paged = append(paged, e.Action)
					}
					if page.NextCursor == nil {
						break
					}
					cursor = *page.NextCursor
				}
				if diff := cmp.Diff([][]string{tt.want, tt.want}, [][]string{all, paged}); diff != "" {
					t.Error(diff)
				}
			})
		}
	})
}

func BenchmarkRecord(b *testing.B) {
	for name, open1 := range map[string]func(b *testing.B) *database.DB{
		"file":     func(b *testing.B) *database.DB { return databasetest.File(b) },
		"postgres": func(b *testing.B) *database.DB { return databasetest.Postgres(b) },
	} {
		b.Run(name, func(b *testing.B) {
			a := open(b, open1(b))
			ctx := capability.WithRequestInfo(context.Background(), &capability.RequestInfo{
				RequestID: "01jnq3k5f8", Method: http.MethodPost, Route: "/ledger/:currency/credit",
				Caller: capability.Caller{Strategy: capability.StrategyBearer, UserID: "ada"},
				IP:     "203.0.113.7", UserAgent: "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0",
			})
			e := audit.Event{Action: "ledger/credited", Subject: audit.Target{Type: "account", ID: "ada"},
				Detail: map[string]any{"currency": "coins", "amount": 5}}
			b.SetParallelism(32) // times two cores is 64 callers
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					if err := a.Record(ctx, e); err != nil {
						b.Error(err)
						return
					}
				}
			})
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "events/s")
		})
	}
}
