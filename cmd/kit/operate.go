package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"

	"github.com/kitbackend/kit"
	"github.com/kitbackend/kit/audit"
	"github.com/kitbackend/kit/auth"
	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/database/postgres"
	"github.com/kitbackend/kit/ledger"
	"github.com/kitbackend/kit/operate"
)

// operate works on a database without its application. Changes are recorded by audit, but the
// application's hooks do not run. An erasure is only requested here: a node of the application
// performs it, with all that it composes.
func (p *program) operate(flags *flag.FlagSet) func(context.Context, []string) error {
	at := flags.String("database", os.Getenv("KIT_DATABASE"), "the `file` or postgres:// address; by default KIT_DATABASE")
	schema := flags.String("schema", "", "the `schema` on PostgreSQL")
	as := flags.String("as", cmp.Or(os.Getenv("SUDO_USER"), os.Getenv("USER")), "the operator's `name` in the audit trail")
	usage := flags.Usage
	flags.Usage = func() {
		usage()
		fmt.Fprintln(p.stderr, operate.Usage)
	}
	return func(ctx context.Context, args []string) error {
		if *at == "" {
			return errors.New("operate needs -database, or KIT_DATABASE")
		}
		db, err := openDatabase(ctx, *at, *schema)
		if err != nil {
			return err
		}
		k, err := compose(ctx, db)
		if err != nil {
			return errors.Join(err, db.Close())
		}
		err = operate.Run(ctx, k, operate.Options{As: *as, Out: p.stdout}, args)
		return errors.Join(err, k.Close(ctx), db.Close())
	}
}

// openDatabase opens an existing database: a wrong name must not create one.
func openDatabase(ctx context.Context, at, schema string) (*database.DB, error) {
	if strings.HasPrefix(at, "postgres://") || strings.HasPrefix(at, "postgresql://") {
		opts := []postgres.Option{postgres.WithConnections(2)}
		if schema != "" {
			opts = append(opts, postgres.WithSchema(schema))
		}
		return postgres.Open(ctx, at, opts...)
	}
	if _, err := os.Stat(at); err != nil {
		return nil, err
	}
	return database.OpenFile(at)
}

// compose returns a kit of those of audit, auth and ledger that have tables in the database; it
// runs no migrations.
func compose(ctx context.Context, db *database.DB) (*kit.Kit, error) {
	scan := func(row database.Scanner) (text string, err error) { return text, row.Scan(&text) }
	lines, err := database.All(ctx, db, scan, `SELECT DISTINCT capability FROM kit_migrations`)
	if err != nil {
		return nil, fmt.Errorf("this is not the database of a kit: %w", err)
	}
	opts := []kit.Option{kit.WithDatabase(db), kit.WithoutMigrations(), kit.WithLogger(slog.New(slog.DiscardHandler)), kit.WithEnvironment("operator")}
	if slices.Contains(lines, audit.Name) {
		opts = append(opts, kit.WithAudit(audit.Config{}))
	}
	if slices.Contains(lines, auth.Name) {
		opts = append(opts, kit.WithAuth(auth.Config{}))
	}
	if slices.Contains(lines, ledger.Name) {
		codes, err := database.All(ctx, db, scan, `SELECT DISTINCT currency FROM ledger_account ORDER BY currency LIMIT 1000`)
		if err != nil {
			return nil, err
		}
		var cfg ledger.Config
		for _, code := range codes {
			cfg.Currencies = append(cfg.Currencies, ledger.Currency{Code: code})
		}
		if len(codes) > 0 { // without accounts there is nothing to move
			opts = append(opts, kit.WithLedger(cfg))
		}
	}
	return kit.New(opts...)
}
