// Package processtest is for tests that run processes of their own: a child to
// kill, and databases that several processes share.
package processtest

import (
	"bufio"
	"context"
	"crypto/rand"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/database/postgres"
)

// patience bounds the life of a child.
const patience = time.Minute

// Kill runs a child until it has printed n lines, each an acknowledgement,
// kills it, and returns all lines. A child that ends by itself, or takes longer
// than a minute, fails the test.
func Kill(t testing.TB, child *exec.Cmd, n int) (acknowledged []string) {
	t.Helper()
	child.Stderr = os.Stderr
	output, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	late := time.AfterFunc(patience, func() { _ = child.Process.Kill() })
	defer late.Stop()
	for lines := bufio.NewScanner(output); lines.Scan(); {
		acknowledged = append(acknowledged, lines.Text())
		if len(acknowledged) == n {
			if err := child.Process.Kill(); err != nil {
				t.Error(err)
			}
		}
	}
	if err := child.Wait(); len(acknowledged) < n || err == nil {
		t.Fatalf("the child ended after %d acknowledgements, want %d: %v", len(acknowledged), n, err)
	}
	return acknowledged
}

// Listening waits until a process listens at the address, for a minute at most.
func Listening(t testing.TB, address string) {
	t.Helper()
	look := time.NewTicker(10 * time.Millisecond)
	defer look.Stop()
	for began := time.Now(); time.Since(began) < patience; <-look.C {
		if conn, err := net.Dial("tcp", address); err == nil {
			_ = conn.Close()
			return
		}
	}
	t.Fatalf("nobody listens at %s", address)
}

// Again returns a child that runs the test binary with one more variable, which
// its TestMain looks for.
func Again(variable, value string) *exec.Cmd {
	child := exec.Command(os.Args[0])
	child.Env = append(os.Environ(), variable+"="+value)
	return child
}

// Each runs a test with the address of an SQLite file and with that of a
// PostgreSQL database, see [Open].
func Each(t *testing.T, test func(t *testing.T, address string)) {
	t.Run("file", func(t *testing.T) { test(t, filepath.Join(t.TempDir(), "kit.db")) })
	t.Run("postgres", func(t *testing.T) {
		address, _ := Database(t)
		test(t, address)
	})
}

// Open opens the database at an address of [Each].
func Open(address string) (*database.DB, error) {
	if strings.HasPrefix(address, "postgres") {
		return postgres.Open(context.Background(), address, postgres.WithConnections(8))
	}
	return database.OpenFile(address)
}

// Database makes a PostgreSQL database, dropped after the test; deadlocks waits
// until its last connection has ended and reported, then counts. Without
// KIT_TEST_POSTGRES it skips.
func Database(t testing.TB) (address string, deadlocks func() int64) {
	t.Helper()
	ctx, base := context.Background(), os.Getenv("KIT_TEST_POSTGRES")
	if base == "" {
		t.Skip("KIT_TEST_POSTGRES is not set")
	}
	admin, err := postgres.Open(ctx, base, postgres.WithConnections(1))
	if err != nil {
		t.Fatal(err)
	}
	name := "kit_test_" + strings.ToLower(rand.Text())
	if _, err := admin.Exec(ctx, "CREATE DATABASE "+name); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if _, err := admin.Exec(ctx, "DROP DATABASE "+name+" WITH (FORCE)"); err != nil {
			t.Error(err)
		}
		if err := admin.Close(); err != nil {
			t.Error(err)
		}
	})
	own, err := url.Parse(base)
	if err != nil {
		t.Fatal(err)
	}
	own.Path = "/" + name
	return own.String(), func() (n int64) {
		for connections := 1; connections > 0; {
			if err := admin.QueryRow(ctx, `SELECT COUNT(*) FROM pg_stat_activity WHERE datname = $1`, name).Scan(&connections); err != nil {
				t.Fatal(err)
			}
		}
		if err := admin.QueryRow(ctx, `SELECT deadlocks FROM pg_stat_database WHERE datname = $1`, name).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
}
