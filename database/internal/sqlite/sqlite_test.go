package sqlite_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kitbackend/kit/database/internal/sqlite"
)

func open(t *testing.T) *sqlite.Conn {
	t.Helper()
	c, err := sqlite.Open("file:/" + t.Name() + "?vfs=memdb")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

// row runs a query and scans its first row.
func row(c *sqlite.Conn, query string, args []any, dest ...any) error {
	s, err := c.Prepare(query)
	if err != nil {
		return err
	}
	defer s.Reset()
	if err := s.Bind(context.Background(), args); err != nil {
		return err
	}
	if found, err := s.Step(); err != nil || !found {
		return errors.Join(err, errors.New("no row"))
	}
	return s.Scan(dest)
}

func TestArguments(t *testing.T) {
	c := open(t)
	type name string
	text := "some"
	for _, test := range []struct {
		query string
		args  []any
		want  []any
	}{
		{`SELECT $2, $1, $2`, []any{1, "two"}, []any{"two", int64(1), "two"}},
		{`SELECT $1, $2, $3, $4, $5`, []any{nil, true, 1.5, []byte{7}, int8(-3)}, []any{nil, int64(1), 1.5, []byte{7}, int64(-3)}},
		{`SELECT $1, $2, $3, $4`, []any{name("n"), &text, (*string)(nil), []byte(nil)}, []any{"n", "some", nil, nil}},
		{`SELECT $1, $2, typeof($2), length($3)`, []any{"", []byte{}, strings.Repeat("x", 100_000)}, []any{"", []byte{}, "blob", int64(100_000)}},
	} {
		for range 2 { // the second from the cache
			got := make([]any, len(test.want))
			dest := make([]any, len(got))
			for i := range got {
				dest[i] = &got[i]
			}
			if err := row(c, test.query, test.args, dest...); err != nil {
				t.Errorf("%s: %v", test.query, err)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("%s: %s", test.query, diff)
			}
		}
	}
	for _, args := range [][]any{{}, {1, 2}, {"a\x00"}, {"\xff"}, {time.Now()}, {uint64(1 << 63)}, {struct{}{}}} {
		if err := row(c, `SELECT $1`, args, new(any)); err == nil {
			t.Errorf("%v: no error", args)
		}
	}
	for _, query := range []string{`SELECT ?`, `SELECT :a`, `SELECT $a`} {
		if _, err := c.Prepare(query); err == nil {
			t.Errorf("%s: no error", query)
		}
	}
}

func TestScan(t *testing.T) {
	c := open(t)
	type number int
	type word string
	type data []byte
	for _, test := range []struct {
		query string
		dest  any
		want  any // nil: an error
	}{
		{`SELECT 7`, new(int64), int64(7)},
		{`SELECT 7`, new(int), 7},
		{`SELECT 7`, new(int8), int8(7)},
		{`SELECT 700`, new(int8), nil},
		{`SELECT 7`, new(uint16), uint16(7)},
		{`SELECT -7`, new(uint16), nil},
		{`SELECT 7`, new(number), number(7)},
		{`SELECT 7`, new(float64), 7.0},
		{`SELECT 7.5`, new(float32), float32(7.5)},
		{`SELECT 1e300`, new(float32), nil},
		{`SELECT 7.5`, new(int64), nil},
		{`SELECT '7'`, new(int64), nil},
		{`SELECT 7`, new(string), nil},
		{`SELECT 'a'`, new(string), "a"},
		{`SELECT ''`, new(string), ""},
		{`SELECT 'a'`, new(word), word("a")},
		{`SELECT 'a'`, new([]byte), []byte("a")},
		{`SELECT x'0001'`, new([]byte), []byte{0, 1}},
		{`SELECT x'0001'`, new(data), data{0, 1}},
		{`SELECT x''`, new([]byte), []byte{}},
		{`SELECT NULL`, new([]byte), []byte(nil)},
		{`SELECT 1`, new([]byte), nil},
		{`SELECT x'61'`, new(string), nil},
		{`SELECT 1`, new(bool), true},
		{`SELECT NULL`, new(bool), nil},
		{`SELECT NULL`, new(string), nil},
		{`SELECT NULL`, new(*string), (*string)(nil)},
		{`SELECT NULL`, new(any), any(nil)},
		{`SELECT 1`, new(time.Time), nil},
		{`SELECT 1, 2`, new(int), nil},
	} {
		err := row(c, test.query, nil, test.dest)
		if test.want == nil && fmt.Sprintf("%T", test.dest) != "*interface {}" {
			if err == nil {
				t.Errorf("%s into %T: no error", test.query, test.dest)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s into %T: %v", test.query, test.dest, err)
		}
		if got := reflect.ValueOf(test.dest).Elem().Interface(); !cmp.Equal(got, test.want) {
			t.Errorf("%s into %T: %v, want %v", test.query, test.dest, got, test.want)
		}
	}
}

func TestStatements(t *testing.T) {
	c := open(t)
	ctx := context.Background()
	for _, query := range []string{`SELECT 1; SELECT 2`, ``, `-- nothing`} {
		if _, err := c.Prepare(query); err != sqlite.ErrScript {
			t.Errorf("%q: %v", query, err)
		}
	}
	for _, query := range []string{`SELECT 1;`, "SELECT 1; -- the end", "SELECT 1 -- the end\n;\n"} {
		var n int
		if err := row(c, query, nil, &n); err != nil || n != 1 {
			t.Errorf("%q: %d %v", query, n, err)
		}
	}
	if err := c.Script(ctx, `CREATE TABLE t (id INTEGER PRIMARY KEY); INSERT INTO t VALUES (1), (2), (3); BEGIN`); err != nil || !c.InTransaction() {
		t.Fatal(err)
	}
	var e *sqlite.Error
	if err := c.Script(ctx, `INSERT INTO t VALUES (1)`); !errors.As(err, &e) || e.Code != sqlite.ConstraintPrimaryKey {
		t.Error(err)
	}
	if err := c.Script(ctx, `ROLLBACK`); err != nil || c.InTransaction() {
		t.Error(err)
	}

	// A statement outlives a change of its table.
	var id int
	if err := row(c, `SELECT * FROM t`, nil, &id); err != nil || id != 1 {
		t.Error(id, err)
	}
	if err := c.Script(ctx, `ALTER TABLE t ADD COLUMN n INTEGER DEFAULT 7`); err != nil {
		t.Fatal(err)
	}
	var n int
	if err := row(c, `SELECT * FROM t`, nil, &id, &n); err != nil || id != 1 || n != 7 {
		t.Error(id, n, err)
	}

	// The same query inside itself gets a statement of its own.
	outer, err := c.Prepare(`SELECT id FROM t ORDER BY id`)
	if err != nil {
		t.Fatal(err)
	}
	defer outer.Reset()
	if err := outer.Bind(ctx, nil); err != nil {
		t.Fatal(err)
	}
	for want := 1; want <= 3; want++ {
		if found, err := outer.Step(); err != nil || !found {
			t.Fatal(found, err)
		}
		var n, first int
		if err := outer.Scan([]any{&n}); err != nil || n != want {
			t.Fatal(n, err)
		}
		if err := row(c, `SELECT id FROM t ORDER BY id`, nil, &first); err != nil || first != 1 {
			t.Fatal(first, err)
		}
	}
}

func TestInterruption(t *testing.T) {
	const forever = `WITH RECURSIVE c (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c) SELECT count(*) FROM c`
	c := open(t)
	ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
	defer cancel()
	if err := c.Script(ctx, forever); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
	c.Until(time.Now().Add(time.Millisecond))
	if err := row(c, forever, nil, new(int)); !errors.Is(err, sqlite.ErrDeadline) {
		t.Error(err)
	}
	if err := row(c, `SELECT 1`, nil, new(int)); !errors.Is(err, sqlite.ErrDeadline) {
		t.Error(err)
	}
	c.Until(time.Time{})
	if err := row(c, `SELECT 1`, nil, new(int)); err != nil {
		t.Error(err)
	}
}

func TestOpenFails(t *testing.T) {
	if c, err := sqlite.Open("file:///nowhere/at/all.db"); err == nil {
		t.Error("no error")
		c.Close()
	}
}

// A statement is planned once, whatever values it gets.
func TestValuesDoNotExpireThePlan(t *testing.T) {
	c := open(t)
	if err := c.Script(context.Background(), `CREATE TABLE t (n INTEGER PRIMARY KEY, state TEXT); CREATE INDEX open ON t (n) WHERE state = 'open'`); err != nil {
		t.Fatal(err)
	}
	s, err := c.Prepare(`SELECT n FROM t WHERE state = $1 ORDER BY n LIMIT $2`)
	if err != nil {
		t.Fatal(err)
	}
	for n := range 5 {
		if err := s.Bind(context.Background(), []any{fmt.Sprint("state", n), n}); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Step(); err != nil {
			t.Fatal(err)
		}
		s.Reset()
	}
	if s.Parsed() != 0 {
		t.Errorf("parsed %d times more", s.Parsed())
	}
}
