//go:build linux || darwin

package soak

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kitbackend/kit/database"
)

// acknowledged is what nodes have printed: refs by the kind of effect.
type acknowledged map[string][]string

func (a acknowledged) add(t *testing.T, line string) {
	t.Helper()
	kind, ref, ok := strings.Cut(line, " ")
	if !ok || kind == "fault" {
		t.Errorf("a node says %q", line)
		return
	}
	a[kind] = append(a[kind], ref)
}

func (a acknowledged) count() (n int) {
	for _, refs := range a {
		n += len(refs)
	}
	return n
}

// check starts a node on what the others left and looks for every effect that
// was acknowledged, once and whole.
func check(t *testing.T, address string, acked acknowledged) {
	t.Helper()
	skew := new(atomic.Int64)
	skew.Store(int64(2 * time.Minute)) // the leases of the dead have ended
	n, err := start(address, skew)
	if err != nil {
		t.Fatalf("a node does not start on what was left: %v", err)
	}
	defer func() {
		if err := n.stop(); err != nil {
			t.Error(err)
		}
	}()
	ctx := context.Background()
	if _, err := n.Jobs().RunDue(ctx); err != nil {
		t.Fatal(err)
	}
	moves := n.counts(t, `SELECT ref, count(*) FROM ledger_transaction GROUP BY ref`)
	for kind, suffix := range map[string]string{"credit": "", "transfer": "", "capture": "#capture", "http": ""} {
		for _, ref := range acked[kind] {
			if got := moves[ref+suffix]; got != 1 {
				t.Errorf("%s %s was acknowledged and is there %d times", kind, ref, got)
			}
		}
	}
	events := n.counts(t, `SELECT subject_id, count(*) FROM audit_event WHERE action = 'soak/done' GROUP BY subject_id`)
	rows := n.counts(t, `SELECT ref, count(*) FROM soak_effect WHERE kind = 'event' GROUP BY ref`)
	n.exactlyOnce(t, "event", acked["event"], rows)
	for ref, got := range events {
		if got != 1 || rows[ref] != 1 {
			t.Errorf("half a transaction: %s is %d times in the trail, its row %d times", ref, got, rows[ref])
		}
	}
	if len(events) != len(rows) {
		t.Errorf("half a transaction: %d events, %d rows", len(events), len(rows))
	}
	n.exactlyOnce(t, "job", acked["job"], n.counts(t, `SELECT ref, count(*) FROM soak_effect WHERE kind = 'job' GROUP BY ref`))
	for _, ref := range acked["key"] {
		if value, ok, err := n.kv.Get(ctx, ref); err != nil || !ok || string(value) != ref {
			t.Errorf("key %s was acknowledged and is %q, %v, %v", ref, value, ok, err)
		}
	}
	if report, err := n.Ledger().Verify(ctx); err != nil || report.Err() != nil {
		t.Errorf("the ledger does not add up: %v, %v", err, report.Err())
	}
	if report, err := n.Audit().Verify(ctx); err != nil || report.Break != nil {
		t.Errorf("the trail is broken: %v, %v", err, report.Break)
	}
}

// exactlyOnce holds each effect to once, those that nobody acknowledged as well.
func (n *node) exactlyOnce(t *testing.T, kind string, refs []string, found map[string]int) {
	t.Helper()
	for _, ref := range refs {
		if found[ref] == 0 {
			t.Errorf("%s %s was acknowledged and is lost", kind, ref)
		}
	}
	for ref, times := range found {
		if times != 1 {
			t.Errorf("%s %s took effect %d times", kind, ref, times)
		}
	}
}

// counts reads names with a number each.
func (n *node) counts(t *testing.T, query string) map[string]int {
	t.Helper()
	type named struct {
		name string
		n    int
	}
	list, err := database.All(context.Background(), n.db, func(s database.Scanner) (r named, err error) {
		return r, s.Scan(&r.name, &r.n)
	}, query)
	if err != nil {
		t.Fatal(err)
	}
	found := make(map[string]int, len(list))
	for _, r := range list {
		found[r.name] = r.n
	}
	return found
}
