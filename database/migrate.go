package database

import (
	"bytes"
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"regexp"
	"slices"
	"strconv"
)

// Migrations is the schema of one capability: the SQL files anywhere in FS, named NNNN_name.sql and numbered from 0001
// without a gap. Where one text cannot serve both databases, NNNN_name.sqlite.sql and NNNN_name.postgres.sql stand in
// for it. A file that has been applied somewhere never changes again; there is no way back but a further file.
type Migrations struct {
	Name string
	FS   fs.FS
}

// migration is one file, as this database runs it.
type migration struct {
	name     string // without folder, dialect and .sql
	checksum string
	text     string
}

var migrationName = regexp.MustCompile(`^((\d{4})_[a-z0-9_]+)(?:\.(sqlite|postgres))?\.sql$`)

// Migrate brings the schema up to date, set after set, each file in a transaction of its own. Nodes that start at once
// wait for one another. It refuses file numbers with gaps or duplicates, and files that changed after they were applied.
//
// A database may be newer: while a new version is rolled out, nodes of the old one run, and start, on its schema. So a
// new file changes nothing that the version before reads or writes: it adds tables and indexes, and columns with a
// default. One that must, such as one that drops what has not been used since file 0007, says so by the end of its name,
// _needs_0007: then Migrate refuses on nodes that do not know file 0007.
//
// Table definitions are adapted: on SQLite every table becomes STRICT and BIGINT, SMALLINT, BOOLEAN, DOUBLE PRECISION
// and BYTEA become the types SQLite has; on PostgreSQL TEXT columns get COLLATE "C", the order of bytes.
func (d *DB) Migrate(ctx context.Context, sets ...Migrations) error {
	if d.InTransaction(ctx) {
		return errors.New("database: Migrate inside a transaction")
	}
	if err := d.outside(); err != nil {
		return err
	}
	files, err := d.filesOf(sets)
	if err != nil {
		return err
	}
	if d.fromImage(ctx, sets, files) {
		return nil
	}
	return d.migrate(ctx, sets, files)
}

func (d *DB) migrate(ctx context.Context, sets []Migrations, files [][]migration) error {
	if err := d.exclusive(ctx, createMigrations); err != nil {
		return fmt.Errorf("database: migrate: %w", err)
	}
	applied, err := d.applied(ctx)
	if err != nil {
		return fmt.Errorf("database: migrate: %w", err)
	}
	if err := verifyAll(sets, files, applied); err != nil {
		return err
	}
	for i, set := range sets {
		for _, file := range files[i][min(len(files[i]), len(applied[set.Name])):] {
			if err := d.apply(ctx, set, file); err != nil {
				return fmt.Errorf("database: migration %s/%s: %w", set.Name, file.name, err)
			}
		}
	}
	return nil
}

// filesOf returns the files of every set.
func (d *DB) filesOf(sets []Migrations) ([][]migration, error) {
	files := make([][]migration, len(sets))
	seen := map[string]bool{}
	var errs []error
	for i, set := range sets {
		if seen[set.Name] {
			errs = append(errs, fmt.Errorf("database: migrations %s: given twice", set.Name))
		}
		seen[set.Name] = true
		var err error
		if files[i], err = set.files(d.Dialect()); err != nil {
			errs = append(errs, err)
		}
	}
	return files, errors.Join(errs...)
}

func verifyAll(sets []Migrations, files [][]migration, applied map[string]map[string]string) error {
	var errs []error
	for i, set := range sets {
		errs = append(errs, set.verify(files[i], applied[set.Name]))
	}
	return errors.Join(errs...)
}

// Pending lists what [DB.Migrate] would apply, as set/name in its order. It changes nothing and refuses what Migrate
// refuses.
func (d *DB) Pending(ctx context.Context, sets ...Migrations) ([]string, error) {
	files, err := d.filesOf(sets)
	if err != nil {
		return nil, err
	}
	var there bool
	if err := d.QueryRow(ctx, Text(`SELECT count(*) > 0 FROM sqlite_schema WHERE name = 'kit_migrations'`,
		`SELECT to_regclass('kit_migrations') IS NOT NULL`)).Scan(&there); err != nil {
		return nil, fmt.Errorf("database: pending migrations: %w", err)
	}
	applied := map[string]map[string]string{}
	if there {
		if applied, err = d.applied(ctx); err != nil {
			return nil, fmt.Errorf("database: pending migrations: %w", err)
		}
	}
	if err := verifyAll(sets, files, applied); err != nil {
		return nil, err
	}
	var names []string
	for i, set := range sets {
		for _, file := range files[i][min(len(files[i]), len(applied[set.Name])):] {
			names = append(names, set.Name+"/"+file.name)
		}
	}
	return names, nil
}

// files returns the files for a dialect in the order of their numbers.
func (m Migrations) files(dialect Dialect) ([]migration, error) {
	byName := map[string]map[string]string{} // name to dialect, or "" for both, to path
	err := fs.WalkDir(m.FS, ".", func(file string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || path.Ext(file) != ".sql" {
			return err
		}
		parts := migrationName.FindStringSubmatch(path.Base(file))
		if parts == nil {
			return fmt.Errorf("%s: want NNNN_name.sql, NNNN_name.sqlite.sql or NNNN_name.postgres.sql", file)
		}
		texts := byName[parts[1]]
		if texts == nil {
			texts = map[string]string{}
			byName[parts[1]] = texts
		}
		if _, twice := texts[parts[3]]; twice {
			return fmt.Errorf("%s: given twice", file)
		}
		texts[parts[3]] = file
		return nil
	})
	var list []migration
	for i, name := range slices.Sorted(maps.Keys(byName)) {
		if err != nil {
			break
		}
		var file migration
		if file, err = m.file(dialect, name, byName[name]); err != nil {
			break
		}
		if number, _ := strconv.Atoi(name[:4]); number != i+1 {
			err = fmt.Errorf("%s: want number %04d; numbers run from 0001 without gap or duplicate", name, i+1)
		}
		list = append(list, file)
	}
	if err != nil {
		return nil, fmt.Errorf("database: migrations %s: %w", m.Name, err)
	}
	return list, nil
}

func (m Migrations) file(dialect Dialect, name string, texts map[string]string) (migration, error) {
	file, both := texts[""]
	if !both {
		file = texts[dialect.String()]
	}
	if both != (len(texts) == 1) || len(texts) > 2 {
		return migration{}, fmt.Errorf("%s: want either one file or a pair .sqlite.sql and .postgres.sql", name)
	}
	text, err := fs.ReadFile(m.FS, file)
	if err != nil {
		return migration{}, err
	}
	text = bytes.ReplaceAll(text, []byte("\r\n"), []byte("\n")) // a checkout may have changed line ends
	sum := sha256.Sum256(text)
	return migration{name: name, checksum: hex.EncodeToString(sum[:]), text: string(text)}, nil
}

// verify holds what was applied, name to checksum, against the files: it must be their beginning, unchanged.
func (m Migrations) verify(files []migration, applied map[string]string) error {
	var errs []error
	known := map[string]bool{}
	for i, file := range files {
		known[file.name] = true
		switch checksum, done := applied[file.name]; {
		case done && checksum != file.checksum:
			errs = append(errs, fmt.Errorf("database: migration %s/%s has changed since it was applied", m.Name, file.name))
		case done != (i < len(applied)):
			errs = append(errs, fmt.Errorf("database: migration %s/%s is new, but later ones are applied", m.Name, file.name))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(applied)) {
		if !known[name] && !tolerated(name, len(files)) {
			errs = append(errs, fmt.Errorf("database: migration %s/%s is applied but unknown to this version, which is older", m.Name, name))
		}
	}
	return errors.Join(errs...)
}

var migrationNeeds = regexp.MustCompile(`_needs_(\d{4})$`)

// tolerated reports whether a version with this many files may work on a database that has a file of a newer one.
func tolerated(name string, files int) bool {
	if number, err := strconv.Atoi(name[:min(len(name), 4)]); err != nil || number <= files {
		return false
	}
	needs := migrationNeeds.FindStringSubmatch(name)
	if needs == nil {
		return true
	}
	least, _ := strconv.Atoi(needs[1])
	return least <= files
}

func createMigrations(ctx context.Context, d *DB) error {
	_, err := d.Exec(ctx, adapt(d.Dialect(), `CREATE TABLE IF NOT EXISTS kit_migrations (
		capability TEXT NOT NULL,
		name       TEXT NOT NULL,
		checksum   TEXT NOT NULL,
		applied_at BIGINT NOT NULL,
		PRIMARY KEY (capability, name)
	)`))
	return err
}

// applied returns the checksums of the applied migrations by capability and name.
func (d *DB) applied(ctx context.Context) (map[string]map[string]string, error) {
	rows, err := All(ctx, d, func(s Scanner) (row [3]string, err error) {
		err = s.Scan(&row[0], &row[1], &row[2])
		return row, err
	}, `SELECT capability, name, checksum FROM kit_migrations`)
	applied := map[string]map[string]string{}
	for _, row := range rows {
		if applied[row[0]] == nil {
			applied[row[0]] = map[string]string{}
		}
		applied[row[0]][row[1]] = row[2]
	}
	return applied, err
}

// apply runs a file, unless another node has done so in the meantime.
func (d *DB) apply(ctx context.Context, set Migrations, file migration) error {
	return d.exclusive(ctx, func(ctx context.Context, d *DB) error {
		var checksum string
		switch err := d.QueryRow(ctx, `SELECT checksum FROM kit_migrations WHERE capability = $1 AND name = $2`,
			set.Name, file.name).Scan(&checksum); {
		case err == nil && checksum != file.checksum:
			return errors.New("another version of it was applied at the same time")
		case err != sql.ErrNoRows:
			return err
		}
		if _, err := d.Exec(ctx, adapt(d.Dialect(), file.text)); err != nil {
			return err
		}
		_, err := d.Exec(ctx, `INSERT INTO kit_migrations (capability, name, checksum, applied_at) VALUES ($1, $2, $3, $4)`,
			set.Name, file.name, file.checksum, d.Now(ctx).UnixMilli())
		return err
	})
}

// exclusive runs fn in a transaction which no other node's overlaps: on SQLite by nature, on PostgreSQL by a lock of
// the schema.
func (d *DB) exclusive(ctx context.Context, fn func(context.Context, *DB) error) error {
	if err := d.outside(); err != nil {
		return err
	}
	return d.write(ctx, true, &transaction{db: d}, func(ctx context.Context) error {
		var locked int
		if err := d.QueryRow(ctx, `SELECT 1 /*pg FROM pg_advisory_xact_lock(
			hashtextextended('kit_migrations ' || current_schema(), 0)) */`).Scan(&locked); err != nil {
			return err
		}
		return fn(ctx, d)
	})
}
