package audit_test

import (
	"context"
	"testing"

	"github.com/kitbackend/kit/audit"
	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/database/databasetest"
)

// TestErasedPersonStaysAsPseudonym checks that events remain under the user id and verify, while
// addresses and user agents are gone, including those of the erasing request.
func TestErasedPersonStaysAsPseudonym(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		a := open(t, db)
		part := a.Capability()
		ada := capability.WithRequestInfo(context.Background(), &capability.RequestInfo{
			Caller: capability.Caller{Strategy: capability.StrategyBearer, UserID: "ada"}, IP: "203.0.113.7", UserAgent: "Firefox"})
		stranger := capability.WithRequestInfo(context.Background(), &capability.RequestInfo{IP: "203.0.113.8", UserAgent: "curl"})
		for _, record := range []struct {
			ctx context.Context
			e   audit.Event
		}{
			{ada, audit.Event{Action: "test/done", Subject: audit.Target{Type: "user", ID: "ada"}}},
			{ada, audit.Event{Action: "test/done", Subject: audit.Target{Type: "board", ID: "b"}}},
			{stranger, audit.Event{Action: "test/sign_in_failed", Subject: audit.Target{Type: "user", ID: "ada"}}},
			{stranger, audit.Event{Action: "test/done", Subject: audit.Target{Type: "user", ID: "bob"}}},
		} {
			if err := a.Record(record.ctx, record.e); err != nil {
				t.Fatal(err)
			}
		}
		exported := 0
		person := capability.Person{ID: "ada", Emails: []string{"ada@example.com"}}
		if err := part.Export(ada, person, func(kind string, record any) error {
			exported++
			if e := record.(audit.Entry); kind != "audit_event" || e.IP == "" {
				t.Errorf("%s %+v", kind, e)
			}
			return nil
		}); err != nil || exported != 3 {
			t.Errorf("%d events exported, want 3: %v", exported, err)
		}
		for _, want := range []int64{3, 0} { // the second run follows a process that was killed
			if erased, err := part.Erase(ada, person); err != nil || erased.Removed != want || len(erased.Kept) == 0 {
				t.Errorf("%+v %v, want %d removed", erased, err, want)
			}
		}
		list := events(t, a, audit.Filter{})
		if len(list) != 5 {
			t.Errorf("%d events, want the four and one of the erasure", len(list))
		}
		for _, e := range list {
			if mine := e.Actor.ID == "ada" || e.Subject.ID == "ada"; mine && e.IP+e.UserAgent != "" {
				t.Errorf("%s keeps %s %s", e.Action, e.IP, e.UserAgent)
			} else if !mine && e.IP == "" {
				t.Errorf("another person's %s lost its origin", e.Action)
			}
		}
		if report, err := a.Verify(t.Context()); err != nil || report.Break != nil {
			t.Errorf("%v %v", report.Break, err)
		}
	})
}

// TestExportTellsNothingOfOthers checks that the export of a person has no origin of the actions of
// other users and staff.
func TestExportTellsNothingOfOthers(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		a := open(t, db)
		for _, actor := range []audit.Actor{{Kind: audit.ActorUser, ID: "bob"}, {Kind: audit.ActorControlPlane, ID: "c"}, {Kind: audit.ActorOperator, ID: "eve"}} {
			ctx := capability.WithRequestInfo(t.Context(), &capability.RequestInfo{IP: "203.0.113.9", UserAgent: "Lynx"})
			if err := a.Record(ctx, audit.Event{Action: "test/done", Actor: actor, Subject: audit.Target{Type: "user", ID: "ada"}}); err != nil {
				t.Fatal(err)
			}
		}
		var list []audit.Entry
		err := a.Capability().Export(t.Context(), capability.Person{ID: "ada"}, func(_ string, record any) error {
			list = append(list, record.(audit.Entry))
			return nil
		})
		if err != nil || len(list) != 3 {
			t.Fatalf("%d events exported, want 3: %v", len(list), err)
		}
		for _, e := range list {
			if e.IP+e.UserAgent != "" {
				t.Errorf("the export tells where %s %s was: %s %s", e.Actor.Kind, e.Actor.ID, e.IP, e.UserAgent)
			}
		}
	})
}

func TestErasureThatIsKilledIsOnTheTrail(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		a := open(t, db)
		ctx, ada := t.Context(), capability.Person{ID: "ada"}
		exec := func(query string) {
			t.Helper()
			if _, err := db.Exec(ctx, query); err != nil {
				t.Fatal(err)
			}
		}
		by := capability.WithRequestInfo(ctx, &capability.RequestInfo{
			Caller: capability.Caller{Strategy: capability.StrategyBearer, UserID: "ada"}, IP: "203.0.113.7"})
		if err := a.Record(by, audit.Event{Action: "test/done"}); err != nil {
			t.Fatal(err)
		}
		exec(database.Text(`CREATE TRIGGER killed BEFORE INSERT ON audit_event BEGIN SELECT RAISE(ABORT, 'killed'); END`,
			`CREATE FUNCTION killed() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'killed'; END $$;
			CREATE TRIGGER killed BEFORE INSERT ON audit_event FOR EACH ROW EXECUTE FUNCTION killed()`))
		if erased, err := a.Capability().Erase(ctx, ada); err == nil || erased.Removed != 0 {
			t.Fatalf("%+v %v, want it killed", erased, err)
		}
		exec(database.Text(`DROP TRIGGER killed`, `DROP TRIGGER killed ON audit_event`))
		if erased, err := a.Capability().Erase(ctx, ada); err != nil || erased.Removed != 1 {
			t.Fatalf("%+v %v", erased, err)
		}
		items, err := a.ListEvents(ctx, audit.Filter{Action: "audit/personal_data_erased"}, capability.NewPage(0, ""))
		if err != nil || len(items.Items) != 1 {
			t.Errorf("%d events of the erasure, %v, want one", len(items.Items), err)
		}
	})
}
