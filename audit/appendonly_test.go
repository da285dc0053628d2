package audit_test

import (
	"context"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kitbackend/kit/audit"
	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/database/databasetest"
)

// forged is the columns of a forged event, without its id.
const forged = `occurred_at, action, actor_kind, actor_id, actor_key_id, subject_type, subject_id, targets, outcome,
	code, request_id, route, environment, detail, commitment, hash`

func TestEventsAreAppendOnly(t *testing.T) {
	both := []string{
		`UPDATE audit_event SET action = 'test/forged'`,
		`UPDATE audit_event SET action = 'test/forged' WHERE id = $1`,
		`DELETE FROM audit_event`,
		`DELETE FROM audit_event WHERE id = $1`,
		`INSERT INTO audit_event (id, ` + forged + `) SELECT id, ` + forged + ` FROM audit_event WHERE id = $1
			ON CONFLICT (id) DO UPDATE SET action = 'test/forged'`,
	}
	only := map[database.Dialect][]string{
		database.SQLite: {
			`UPDATE OR REPLACE audit_event SET action = 'test/forged' WHERE id = $1`,
			`UPDATE OR IGNORE audit_event SET action = 'test/forged' WHERE id = $1`,
			`UPDATE OR ROLLBACK audit_event SET action = 'test/forged' WHERE id = $1`,
			`UPDATE OR FAIL audit_event SET id = 'moved' WHERE id = $1`,
			`REPLACE INTO audit_event (id, ` + forged + `) SELECT id, ` + forged + ` FROM audit_event WHERE id = $1`,
			`INSERT OR REPLACE INTO audit_event (id, ` + forged + `) SELECT id, ` + forged + ` FROM audit_event`,
			`INSERT OR REPLACE INTO audit_event (rowid, id, ` + forged + `) SELECT rowid, 'other', ` + forged + ` FROM audit_event WHERE id = $1`,
			`INSERT OR REPLACE INTO audit_event (_rowid_, id, ` + forged + `) SELECT rowid, 'other', ` + forged + ` FROM audit_event`,
		},
		database.PostgreSQL: {
			`TRUNCATE audit_event`,
			`TRUNCATE audit_event, audit_personal CASCADE`,
			`MERGE INTO audit_event e USING (SELECT 1) AS one ON true WHEN MATCHED THEN UPDATE SET action = 'test/forged'`,
			`MERGE INTO audit_event e USING (SELECT 1) AS one ON true WHEN MATCHED THEN DELETE`,
			`WITH gone AS (DELETE FROM audit_event RETURNING id) SELECT count(*) FROM gone`,
			`SET LOCAL session_replication_role = replica; DELETE FROM audit_event`,
			`SET LOCAL session_replication_role = replica; TRUNCATE audit_event`,
		},
	}
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		a := open(t, db)
		ctx := context.Background()
		recordFrom(t, a, "203.0.113.7")
		recordFrom(t, a, "203.0.113.8")
		before := events(t, a, audit.Filter{})
		for _, query := range append(both, only[db.Dialect()]...) {
			var args []any
			if strings.Contains(query, "$1") {
				args = []any{before[0].ID}
			}
			if _, err := db.Exec(ctx, query, args...); err == nil {
				t.Errorf("not refused: %s", query)
			}
			if diff := cmp.Diff(before, events(t, a, audit.Filter{})); diff != "" {
				t.Fatalf("%s changed the trail:\n%s", query, diff)
			}
		}
	})
}

func TestPersonalDataIsErasable(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		a := open(t, db)
		recordFrom(t, a, "203.0.113.7")
		before := events(t, a, audit.Filter{})[0]
		if n, err := db.Exec(context.Background(), `DELETE FROM audit_personal WHERE event_id = $1`, before.ID); n != 1 || err != nil {
			t.Fatal(n, err)
		}
		want := before
		want.IP, want.UserAgent = "", ""
		if diff := cmp.Diff([]audit.Entry{want}, events(t, a, audit.Filter{})); diff != "" {
			t.Error(diff)
		}
	})
}

func recordFrom(t *testing.T, a *audit.Audit, ip string) {
	t.Helper()
	ctx := capability.WithRequestInfo(context.Background(), &capability.RequestInfo{IP: ip, UserAgent: "Firefox"})
	if err := a.Record(ctx, audit.Event{Action: "test/done"}); err != nil {
		t.Fatal(err)
	}
}
