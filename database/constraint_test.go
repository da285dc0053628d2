package database_test

import (
	"context"
	"errors"
	"testing"

	"github.com/kitbackend/kit/database"
)

func TestConstraintKinds(t *testing.T) {
	tests := []struct {
		name       string
		query      string
		kind       database.ConstraintKind
		constraint string // on PostgreSQL; on SQLite for CHECK only
	}{
		{"primary key", `INSERT INTO account (id, balance) VALUES ('taken', 1)`, database.Unique, "account_pkey"},
		{"unique", `INSERT INTO account (id, balance, name) VALUES ('b', 1, 'taken')`, database.Unique, "account_name_unique"},
		{"check", `UPDATE account SET balance = -1`, database.Check, "account_balance_not_negative"},
		{"not null", `INSERT INTO account (id, balance) VALUES ('b', NULL)`, database.NotNull, ""},
		{"foreign key", `INSERT INTO child (id, parent) VALUES ('c', 'none')`, database.ForeignKey, "child_parent"},
		{"deferred foreign key", `INSERT INTO child (id, parent, later) VALUES ('c', 'p', 'none')`, database.ForeignKey, "child_later"},
		{"returning", `INSERT INTO child (id, parent) VALUES ('c', 'none') RETURNING id`, database.ForeignKey, "child_parent"},
	}
	ways := map[string]func(ctx context.Context, db *database.DB, query string) error{
		"Exec": func(ctx context.Context, db *database.DB, query string) error {
			_, err := db.Exec(ctx, query)
			return err
		},
		"Exec inside InTx": func(ctx context.Context, db *database.DB, query string) error {
			return db.InTx(ctx, func(ctx context.Context) error {
				_, err := db.Exec(ctx, query)
				return err
			})
		},
		"QueryRow inside InTx": func(ctx context.Context, db *database.DB, query string) error {
			return db.InTx(ctx, func(ctx context.Context) error {
				_, _, err := database.Get(ctx, db, scanText, query)
				return err
			})
		},
		"Query inside InTx": func(ctx context.Context, db *database.DB, query string) error {
			return db.InTx(ctx, func(ctx context.Context) error {
				_, err := database.All(ctx, db, scanText, query)
				return err
			})
		},
	}
	each(t, func(t *testing.T, db *database.DB) {
		ctx := t.Context()
		execute(t, db, ctx, `INSERT INTO account (id, balance, name) VALUES ('taken', 1, 'taken')`)
		execute(t, db, ctx, `INSERT INTO parent (id) VALUES ('p')`)
		for _, test := range tests {
			for way, run := range ways {
				var violation *database.ConstraintError
				if err := run(ctx, db, test.query); !errors.As(err, &violation) || violation.Kind != test.kind {
					t.Errorf("%s by %s: %v", test.name, way, err)
					continue
				}
				if (db.Dialect() == database.PostgreSQL || test.kind == database.Check) && violation.Name != test.constraint {
					t.Errorf("%s by %s: constraint %q", test.name, way, violation.Name)
				}
			}
		}
		if n := count(t, db, ctx, `SELECT count(*) FROM child`); n != 0 {
			t.Errorf("%d children", n)
		}
	})
}

func TestNoConstraintError(t *testing.T) {
	each(t, func(t *testing.T, db *database.DB) {
		_, err := db.Exec(t.Context(), `INSERT INTO nowhere VALUES (1)`)
		var violation *database.ConstraintError
		if err == nil || errors.As(err, &violation) {
			t.Error(err)
		}
	})
}
