package database_test

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/database/databasetest"
)

// noteStore is what a generator of code for database/sql makes.
type noteStore struct {
	db interface {
		ExecContext(context.Context, string, ...any) (sql.Result, error)
		PrepareContext(context.Context, string) (*sql.Stmt, error)
		QueryContext(context.Context, string, ...any) (*sql.Rows, error)
		QueryRowContext(context.Context, string, ...any) *sql.Row
	}
}

func (s noteStore) add(ctx context.Context, id string, stars int64) (int64, error) {
	result, err := s.db.ExecContext(ctx, `INSERT INTO lent_note (id, stars, done, weight, body) VALUES ($1, $2, $3, $4, $5)`,
		id, stars, stars > 1, 0.5, []byte(id))
	if err != nil {
		return 0, err
	}
	return result.RowsAffected()
}

type lentNote struct {
	ID     string
	Stars  sql.NullInt64
	Done   bool
	Weight float64
	Body   []byte
}

func (s noteStore) list(ctx context.Context, least int) ([]lentNote, error) {
	rows, err := s.db.QueryContext(ctx, `SELECT id, stars, done, weight, body FROM lent_note WHERE stars >= $1 ORDER BY id`, least)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var list []lentNote
	for rows.Next() {
		var n lentNote
		if err := rows.Scan(&n.ID, &n.Stars, &n.Done, &n.Weight, &n.Body); err != nil {
			return nil, err
		}
		list = append(list, n)
	}
	return list, rows.Err()
}

func lentTable(t *testing.T, db *database.DB) {
	t.Helper()
	if _, err := db.Exec(t.Context(), database.Text(
		`CREATE TABLE lent_note (id TEXT PRIMARY KEY, stars INTEGER, done INTEGER NOT NULL, weight REAL NOT NULL, body BLOB NOT NULL)`,
		`CREATE TABLE lent_note (id TEXT PRIMARY KEY, stars BIGINT, done BOOLEAN NOT NULL, weight DOUBLE PRECISION NOT NULL, body BYTEA NOT NULL)`)); err != nil {
		t.Fatal(err)
	}
}

func lentCount(t *testing.T, db *database.DB) (n int) {
	t.Helper()
	if err := db.QueryRow(t.Context(), `SELECT COUNT(*) FROM lent_note`).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

func TestLentTransactionIsTheCurrentOne(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		lentTable(t, db)
		var list []lentNote
		write := func(fail error) error {
			return db.InTx(t.Context(), func(ctx context.Context) error {
				tx, err := db.SQL(ctx)
				if err != nil {
					return err
				}
				again, err := db.SQL(ctx)
				if err != nil || again != tx {
					t.Errorf("a second one: %v", err)
				}
				notes := noteStore{tx}
				if n, err := notes.add(ctx, "a", 1); err != nil || n != 1 {
					return errors.Join(err, errors.New("added none"))
				}
				if _, err := db.Exec(ctx, `INSERT INTO lent_note (id, stars, done, weight, body) VALUES ('b', 2, $1, 1, $2)`, true, []byte{0}); err != nil {
					return err
				}
				if list, err = notes.list(ctx, 1); err != nil {
					return err
				}
				stmt, err := notes.db.PrepareContext(ctx, `SELECT id FROM lent_note WHERE stars IS NULL OR id = $1`)
				if err != nil {
					return err
				}
				defer stmt.Close()
				var id string
				if err := stmt.QueryRowContext(ctx, "b").Scan(&id); err != nil || id != "b" {
					return errors.Join(err, errors.New("the prepared statement found "+id))
				}
				if err := tx.QueryRowContext(ctx, `SELECT id FROM lent_note WHERE id = 'c'`).Scan(&id); !errors.Is(err, sql.ErrNoRows) {
					return errors.Join(err, errors.New("want no row"))
				}
				return fail
			})
		}
		refused := errors.New("no")
		if err := write(refused); !errors.Is(err, refused) || lentCount(t, db) != 0 {
			t.Fatalf("%v, %d rows; want all of it rolled back", err, lentCount(t, db))
		}
		if err := write(nil); err != nil || lentCount(t, db) != 2 {
			t.Fatalf("%v, %d rows; want both committed", err, lentCount(t, db))
		}
		if len(list) != 2 || list[0].ID != "a" || list[0].Stars.Int64 != 1 || list[0].Done || !list[1].Done || list[0].Weight != 0.5 || string(list[0].Body) != "a" {
			t.Errorf("read %+v", list)
		}
		if err := db.Read(t.Context(), func(ctx context.Context) error {
			tx, err := db.SQL(ctx)
			if err != nil {
				return err
			}
			list, err = noteStore{tx}.list(ctx, 2)
			return err
		}); err != nil || len(list) != 1 {
			t.Errorf("inside Read: %+v %v", list, err)
		}
	})
}

func TestLentTransactionFailsTheWhole(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		lentTable(t, db)
		var kept *sql.Tx
		for name, misuse := range map[string]func(context.Context, *sql.Tx) error{
			"Commit":   func(_ context.Context, tx *sql.Tx) error { return tx.Commit() },
			"Rollback": func(_ context.Context, tx *sql.Tx) error { return tx.Rollback() },
			"COMMIT": func(ctx context.Context, tx *sql.Tx) error {
				_, err := tx.ExecContext(ctx, "COMMIT")
				return errors.Join(err, errors.New("stop"))
			},
			"a refused statement": func(ctx context.Context, tx *sql.Tx) error {
				_, err := noteStore{tx}.add(ctx, "a", 1)
				return err
			},
			"rows left open": func(ctx context.Context, tx *sql.Tx) error {
				rows, err := tx.QueryContext(ctx, `SELECT id FROM lent_note`)
				if err != nil {
					return err
				}
				defer rows.Close()
				_, err = noteStore{tx}.add(ctx, "b", 1)
				return errors.Join(err, rows.Err())
			},
		} {
			err := db.InTx(t.Context(), func(ctx context.Context) error {
				tx, err := db.SQL(ctx)
				if err != nil {
					return err
				}
				if _, err := (noteStore{tx}).add(ctx, "a", 1); err != nil {
					return err
				}
				kept = tx
				if err := misuse(ctx, tx); err == nil {
					t.Errorf("%s: no error", name)
				} else if name != "Commit" && name != "Rollback" {
					return err
				}
				return nil
			})
			if err == nil || lentCount(t, db) != 0 {
				t.Errorf("%s: %v, %d rows, want the whole to fail", name, err, lentCount(t, db))
			}
		}
		if _, err := kept.ExecContext(t.Context(), `DELETE FROM lent_note`); !errors.Is(err, sql.ErrTxDone) {
			t.Errorf("after the callback: %v", err)
		}
		if _, err := db.SQL(t.Context()); err == nil {
			t.Error("lent outside a transaction")
		}
	})
}

// Constraint violations are told apart as elsewhere, and what PostgreSQL has more
// types for comes as database/sql knows it.
func TestLentTypes(t *testing.T) {
	db := databasetest.Postgres(t)
	err := db.InTx(t.Context(), func(ctx context.Context) error {
		tx, err := db.SQL(ctx)
		if err != nil {
			return err
		}
		var at time.Time
		var number, list, document, id string
		var small int64
		err = tx.QueryRowContext(ctx, `SELECT TIMESTAMPTZ '2026-01-02 03:04:05+00', 12.50::numeric, ARRAY['a','b'], '{"a": 1}'::jsonb,
			'00000000-0000-0000-0000-000000000001'::uuid, 7::smallint`).Scan(&at, &number, &list, &document, &id, &small)
		if err != nil {
			return err
		}
		if !at.Equal(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)) || number != "12.50" || list != "{a,b}" || document != `{"a": 1}` || !strings.HasSuffix(id, "1") || small != 7 {
			t.Errorf("got %v %s %s %s %s %d", at, number, list, document, id, small)
		}
		if _, err := tx.ExecContext(ctx, `CREATE TABLE lent_one (id TEXT PRIMARY KEY, tags TEXT[])`); err != nil {
			return err
		}
		for range 2 {
			if _, err = tx.ExecContext(ctx, `INSERT INTO lent_one (id, tags) VALUES ($1, $2)`, "a", []string{"x"}); err != nil {
				break
			}
		}
		return err
	})
	var violation *database.ConstraintError
	if !errors.As(err, &violation) || violation.Kind != database.Unique {
		t.Errorf("got %v, want the violation", err)
	}
}

// A conflict that only the lent transaction has met runs the callback again.
func TestLentConflictRunsAgain(t *testing.T) {
	db := databasetest.Postgres(t)
	runs := 0
	err := db.InTx(t.Context(), func(ctx context.Context) error {
		tx, err := db.SQL(ctx)
		if runs++; err != nil || runs > 1 {
			return err
		}
		_, err = tx.ExecContext(ctx, `DO $$ BEGIN RAISE EXCEPTION 'again' USING ERRCODE = '40001'; END $$`)
		return err
	})
	if err != nil || runs != 2 {
		t.Errorf("%d runs, %v, want two", runs, err)
	}
}
