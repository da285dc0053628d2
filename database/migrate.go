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

// MigrationFault is one reason why a set of migrations is refused.
type MigrationFault struct {
	Set    string
	File   string // the file, or the name of the migration without ending; empty for the whole set
	Reason string
	Fix    string // what to change
}

func (f *MigrationFault) Error() string {
	return "database: migration " + path.Join(f.Set, f.File) + ": " + f.Reason + " (" + f.Fix + ")"
}

var migrationName = regexp.MustCompile(`^((\d{4})_[a-z0-9_]+)(?:\.(sqlite|postgres))?\.sql$`)

// Migrate brings the schema up to date, set after set, each file in a transaction of its own. Nodes that start at once
// wait for one another. It refuses file numbers with gaps or duplicates, and files that changed after they were applied,
// with at least one [*MigrationFault] for each set at fault.
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

// CheckMigrations returns what [DB.Migrate] would refuse of the sets whatever is applied. It does no I/O on the database.
func (d *DB) CheckMigrations(sets ...Migrations) error {
	_, err := d.filesOf(sets)
	return err
}

// filesOf returns the files of every set.
func (d *DB) filesOf(sets []Migrations) ([][]migration, error) {
	files := make([][]migration, len(sets))
	seen := map[string]bool{}
	var errs []error
	for i, set := range sets {
		if seen[set.Name] {
			errs = append(errs, &MigrationFault{set.Name, "", "is given twice", "give each set a name of its own"})
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
	byName, err := m.byName()
	if err != nil {
		return nil, err
	}
	var list []migration
	for i, name := range slices.Sorted(maps.Keys(byName)) {
		if want := fmt.Sprintf("%04d", i+1); name[:4] != want {
			return nil, m.fault(name, "has the number "+name[:4]+" instead of "+want, "number the files from 0001, without gap or duplicate")
		}
		file, err := m.file(dialect, name, byName[name])
		if err != nil {
			return nil, err
		}
		list = append(list, file)
	}
	return list, nil
}

// byName returns the paths of the files by name, then by dialect, "" for both.
func (m Migrations) byName() (map[string]map[string]string, error) {
	names := map[string]map[string]string{}
	none := m.fault("", "holds no files", "embed them: //go:embed migrations/*.sql")
	if m.FS == nil {
		return nil, none
	}
	var faults []error
	err := fs.WalkDir(m.FS, ".", func(file string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || path.Ext(file) != ".sql" {
			return err
		}
		parts := migrationName.FindStringSubmatch(path.Base(file))
		if parts == nil {
			faults = append(faults, m.fault(path.Base(file), "is not named like NNNN_name.sql, NNNN_name.sqlite.sql or NNNN_name.postgres.sql", "rename it"))
			return nil
		}
		texts := names[parts[1]]
		if texts == nil {
			texts = map[string]string{}
			names[parts[1]] = texts
		}
		if _, twice := texts[parts[3]]; twice {
			faults = append(faults, m.fault(path.Base(file), "is given twice", "keep one of the two"))
		}
		texts[parts[3]] = file
		return nil
	})
	switch {
	case err != nil:
		faults = append(faults, fmt.Errorf("database: migrations %s: %w", m.Name, err))
	case len(names) == 0 && len(faults) == 0:
		faults = append(faults, none)
	}
	return names, errors.Join(faults...)
}

func (m Migrations) fault(file, reason, fix string) error {
	return &MigrationFault{m.Name, file, reason, fix}
}

func (m Migrations) file(dialect Dialect, name string, texts map[string]string) (migration, error) {
	file, both := texts[""]
	if !both {
		file = texts[dialect.String()]
	}
	if both != (len(texts) == 1) || len(texts) > 2 {
		return migration{}, m.fault(name, "is neither one file nor a pair .sqlite.sql and .postgres.sql", "write one file for both databases, or one for each")
	}
	text, err := fs.ReadFile(m.FS, file)
	if err != nil {
		return migration{}, fmt.Errorf("database: migrations %s: %w", m.Name, err)
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
			errs = append(errs, m.fault(file.name, "has changed since it was applied", "restore it, and write the change in a new file"))
		case done != (i < len(applied)):
			errs = append(errs, m.fault(file.name, "is new, but later ones are applied", "give it the number after the last"))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(applied)) {
		if !known[name] && !tolerated(name, len(files)) {
			errs = append(errs, m.fault(name, "is applied but unknown to this version, which is older", "run the version that applied it, or a newer one"))
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
