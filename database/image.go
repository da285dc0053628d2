package database

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"sync"

	"github.com/kitbackend/kit/database/internal/sqlite"
)

// A new SQLite database begins, where it can, as a copy of one that was migrated with the same files before: the tests
// of an application compose it again and again, and most of what a start takes is SQLite's parser making the same tables.

// imagesKept is how many schemas a process keeps copies of.
const imagesKept = 4

var images struct {
	sync.Mutex
	list []*image // the one used last comes last
}

// image is a migrated database without rows but those of kit_migrations.
type image struct {
	key   [sha256.Size]byte
	once  sync.Once
	bytes []byte
	err   error
}

// imageOf returns the image for some files; it makes it if it is not there.
func imageOf(ctx context.Context, sets []Migrations, files [][]migration) ([]byte, error) {
	i := keptImage(imageKey(sets, files))
	i.once.Do(func() { i.bytes, i.err = makeImage(context.WithoutCancel(ctx), sets, files) })
	return i.bytes, i.err
}

func keptImage(key [sha256.Size]byte) *image {
	images.Lock()
	defer images.Unlock()
	found := &image{key: key}
	rest := images.list[:0]
	for _, i := range images.list {
		if i.key == key {
			found = i
		} else {
			rest = append(rest, i)
		}
	}
	images.list = append(rest[max(0, len(rest)+1-imagesKept):], found)
	return found
}

func imageKey(sets []Migrations, files [][]migration) (key [sha256.Size]byte) {
	h := sha256.New()
	for i, set := range sets {
		for _, file := range files[i] {
			fmt.Fprintf(h, "%q %q %s\n", set.Name, file.name, file.checksum)
		}
	}
	h.Sum(key[:0])
	return key
}

func makeImage(ctx context.Context, sets []Migrations, files [][]migration) (bytes []byte, err error) {
	d, err := OpenMemory()
	if err != nil {
		return nil, err
	}
	w := d.engine.(*sqliteEngine).writer
	err = w.bare(ctx, func(conn *sqlite.Conn) error {
		return conn.Script(ctx, "PRAGMA auto_vacuum = INCREMENTAL") // as files are made
	})
	if err == nil {
		err = d.migrate(ctx, sets, files)
	}
	if err == nil {
		err = w.bare(ctx, func(conn *sqlite.Conn) error {
			bytes, err = conn.Image()
			return err
		})
	}
	return bytes, errors.Join(err, d.Close())
}

// errNotEmpty reports a database that an image must not replace.
var errNotEmpty = errors.New("database: it is not empty")

// empty returns an error unless the database is known to be new: without tables, settings and rows.
func (w *writer) empty() error {
	for name, most := range map[string]int64{"schema_version": 0, "user_version": 0, "application_id": 0, "page_count": 1} {
		switch value, err := w.setting(name); {
		case err != nil:
			return err
		case value > most || value < 0:
			return errNotEmpty
		}
	}
	return nil
}

// fromImage turns an empty SQLite database into a migrated one, in one transaction, and reports
// whether it did. Its errors are dropped: applying the migrations one by one meets them again.
func (d *DB) fromImage(ctx context.Context, sets []Migrations, files [][]migration) bool {
	e, ok := d.engine.(*sqliteEngine)
	if !ok {
		return false
	}
	whenEmpty := func(fn func(*sqlite.Conn) error) error {
		return e.writer.bare(ctx, func(conn *sqlite.Conn) error {
			if err := e.writer.empty(); err != nil {
				return err
			}
			return fn(conn)
		})
	}
	if whenEmpty(func(*sqlite.Conn) error { return nil }) != nil {
		return false
	}
	bytes, err := imageOf(ctx, sets, files)
	if err == nil {
		err = whenEmpty(func(conn *sqlite.Conn) error {
			if e.memory {
				return conn.Fill(bytes)
			}
			return conn.Restore(bytes)
		})
	}
	if err == nil {
		_, err = d.Exec(ctx, `UPDATE kit_migrations SET applied_at = $1`, d.Now(ctx).UnixMilli())
	}
	return err == nil
}
