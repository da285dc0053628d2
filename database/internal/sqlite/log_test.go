package sqlite_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kitbackend/kit/database/internal/sqlite"
)

// openLogged opens a file whose connection has so small a cache that long transactions write pages before they commit,
// and the same page again.
func openLogged(t *testing.T, path, sync string) *sqlite.Conn {
	t.Helper()
	c, err := sqlite.Open("file:" + path + "?vfs=" + sqlite.FileVFS)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := c.Script(context.Background(), "PRAGMA journal_mode = WAL; PRAGMA synchronous = "+sync+
		"; PRAGMA cache_size = 10; PRAGMA wal_autocheckpoint = 300; CREATE TABLE IF NOT EXISTS t (id INTEGER PRIMARY KEY, body TEXT NOT NULL)"); err != nil {
		t.Fatal(err)
	}
	return c
}

// recovered returns the rows that a process finds that opens the files as they are now.
func recovered(t *testing.T, path string) map[int]string {
	t.Helper()
	copied := filepath.Join(t.TempDir(), "copy.db")
	for _, end := range []string{"", "-wal"} {
		content, err := os.ReadFile(path + end)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(copied+end, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return rows(t, openLogged(t, copied, "FULL"))
}

func rows(t *testing.T, c *sqlite.Conn) map[int]string {
	t.Helper()
	var found string
	if err := row(c, `PRAGMA integrity_check`, nil, &found); err != nil || found != "ok" {
		t.Fatalf("integrity: %s %v, want ok", found, err)
	}
	s, err := c.Prepare(`SELECT id, body FROM t`)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Reset()
	if err := s.Bind(context.Background(), nil); err != nil {
		t.Fatal(err)
	}
	all := map[int]string{}
	for {
		more, err := s.Step()
		if err != nil {
			t.Fatal(err)
		}
		if !more {
			return all
		}
		var id int
		var body string
		if err := s.Scan([]any{&id, &body}); err != nil {
			t.Fatal(err)
		}
		all[id] = body[:min(len(body), 20)]
	}
}

// put writes the rows id and id+1, each of about a page. If it fails, SQLite can undo it alone.
func put(c *sqlite.Conn, id int, body string) error {
	s, err := c.Prepare(`INSERT INTO t (id, body) VALUES ($1, $2 || hex(zeroblob(1500))), ($1 + 1, $2 || hex(zeroblob(1500)))
		ON CONFLICT (id) DO UPDATE SET body = excluded.body`)
	if err != nil {
		return err
	}
	defer s.Reset()
	if err := s.Bind(context.Background(), []any{id, fmt.Sprintf("%-20s", body)}); err != nil {
		return err
	}
	_, err = s.Step()
	return err
}

// TestLogHoldsWhatCommitted runs random transactions on a disk that is full now and then. Whatever has committed, and
// nothing else, is what another connection reads at once, and what is found after a kill at any time.
func TestLogHoldsWhatCommitted(t *testing.T) {
	for _, sync := range []string{"FULL", "NORMAL", "OFF"} {
		t.Run(sync, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "app.db")
			c, other := openLogged(t, path, sync), openLogged(t, path, sync)
			tap, err := c.TapLog()
			if err != nil {
				t.Fatal(err)
			}
			random := rand.New(rand.NewPCG(7, uint64(len(sync))))
			committed, undone := map[int]string{}, 0
			for n := range 40 {
				changed := maps.Clone(committed)
				err := c.Script(context.Background(), "BEGIN IMMEDIATE")
				for step := range random.IntN(40) {
					id, body := random.IntN(80), fmt.Sprintf("%d in %d", step, n)
					tap.Full = n%2 == 1 && random.IntN(10) == 0
					if failed := put(c, id, body); failed == nil {
						changed[id], changed[id+1] = fmt.Sprintf("%-20s", body), fmt.Sprintf("%-20s", body)
					} else if c.InTransaction() {
						undone++
					} else {
						err = failed
						break // SQLite has undone all of it
					}
				}
				tap.Full = n%2 == 1 && random.IntN(3) == 0
				end := "COMMIT"
				if random.IntN(5) == 0 {
					end = "ROLLBACK"
				}
				if c.InTransaction() {
					err = errors.Join(err, c.Script(context.Background(), end))
				}
				if c.InTransaction() {
					err = errors.Join(err, c.Script(context.Background(), "ROLLBACK"))
				}
				if tap.Full = false; err == nil && end == "COMMIT" {
					committed = changed
				}
				for _, conn := range []*sqlite.Conn{other, c} {
					if diff := cmp.Diff(committed, rows(t, conn)); diff != "" {
						t.Fatalf("transaction %d, %s (%v), read (-want +got):\n%s", n, end, err, diff)
					}
				}
				if n%8 != 0 && err == nil {
					continue
				}
				if diff := cmp.Diff(committed, recovered(t, path)); diff != "" {
					t.Fatalf("transaction %d, %s (%v), recovered (-want +got):\n%s", n, end, err, diff)
				}
			}
			if undone == 0 {
				t.Error("no statement was undone alone")
			}
		})
	}
}

func TestPagesOfATransactionAreWrittenTogether(t *testing.T) {
	path := filepath.Join(t.TempDir(), "app.db")
	c := openLogged(t, path, "FULL")
	if err := c.Script(context.Background(), "PRAGMA cache_size = -8000; BEGIN"); err != nil {
		t.Fatal(err)
	}
	for id := range 60 {
		if err := put(c, 2*id, "row"); err != nil {
			t.Fatal(err)
		}
	}
	tap, err := c.TapLog()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Script(context.Background(), "COMMIT"); err != nil {
		t.Fatal(err)
	}
	if tap.Writes == 0 || tap.Writes > 6 {
		t.Errorf("%d writes for some 120 pages, want 6 at most", tap.Writes)
	}
}

// TestRolledBackPagesAreNotWritten lets another program write the log after a transaction that was too large for the
// cache was rolled back.
func TestRolledBackPagesAreNotWritten(t *testing.T) {
	path := filepath.Join(t.TempDir(), "app.db")
	kit, tool := openLogged(t, path, "FULL"), openLogged(t, path, "FULL")
	want := map[int]string{}
	add := func(c *sqlite.Conn, id int, body string) {
		t.Helper()
		if err := put(c, id, body); err != nil {
			t.Fatal(err)
		}
		want[id] = fmt.Sprintf("%-20s", body)
		want[id+1] = want[id]
	}
	for i := range 60 {
		add(kit, 1000+2*i, "old")
	}
	if err := kit.Script(context.Background(), "PRAGMA wal_checkpoint(TRUNCATE); BEGIN IMMEDIATE; "+
		"UPDATE t SET body = replace(body, 'old', 'new') WHERE id < 1031; ROLLBACK"); err != nil {
		t.Fatal(err)
	}
	for i := range 40 {
		add(tool, 200+2*i, "tool")
	}
	add(kit, 10, "second")
	if diff := cmp.Diff(want, recovered(t, path)); diff != "" {
		t.Errorf("rows after a kill (-want +got):\n%s", diff)
	}
}

// TestATransactionTooLargeForTheDiskLeavesRoomForOthers fills the disk by one transaction; smaller ones go on.
func TestATransactionTooLargeForTheDiskLeavesRoomForOthers(t *testing.T) {
	c := openLogged(t, filepath.Join(t.TempDir(), "app.db"), "FULL")
	if err := put(c, 1, "first"); err != nil {
		t.Fatal(err)
	}
	tap, err := c.TapLog()
	if err != nil {
		t.Fatal(err)
	}
	tap.Room = 1 << 20
	err = c.Script(context.Background(), "BEGIN IMMEDIATE; INSERT INTO t VALUES (50, hex(zeroblob(3000000))); COMMIT")
	if refused := new(sqlite.Error); !errors.As(err, &refused) || refused.Code != sqlite.Full {
		t.Fatalf("a transaction of 6 MB on a disk of 1: %v, want a full disk", err)
	}
	if err := put(c, 10, "second"); err != nil {
		t.Errorf("a small transaction after it: %v", err)
	}
	if err := c.Script(context.Background(), "PRAGMA wal_checkpoint(PASSIVE)"); err != nil {
		t.Errorf("a checkpoint after it: %v", err)
	}
}
