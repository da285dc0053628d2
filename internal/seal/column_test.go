package seal_test

import (
	"fmt"
	"strconv"
	"testing"
	"testing/fstest"

	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/database/databasetest"
	"github.com/kitbackend/kit/internal/seal"
)

// TestRewrapColumn rewraps more rows than are read together, whatever their key,
// and leaves alone what is empty or does not open.
func TestRewrapColumn(t *testing.T) {
	const schema = `CREATE TABLE kept (name TEXT PRIMARY KEY, number BIGINT NOT NULL UNIQUE, sealed BYTEA);`
	old := must(t, capability.Production, key("k1", 1))
	both := must(t, capability.Production, key("k2", 2)+","+key("k1", 1))
	renewed := must(t, capability.Production, key("k2", 2))
	names := seal.Column[string]{Table: "kept", Key: "name", Column: "sealed", Context: func(name string) string { return "kept/" + name }}
	numbers := seal.Column[int64]{Table: "kept", Key: "number", Column: "sealed", Context: func(number int64) string { return fmt.Sprintf("kept/%d", number) }}
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		ctx := t.Context()
		if err := db.Migrate(ctx, database.Migrations{Name: "kept", FS: fstest.MapFS{"0001_kept.sql": {Data: []byte(schema)}}}); err != nil {
			t.Fatal(err)
		}
		put := func(i int, sealed []byte) {
			if _, err := db.Exec(ctx, `INSERT INTO kept (name, number, sealed) VALUES ($1, $2, $3)`, strconv.Itoa(i), i, sealed); err != nil {
				t.Fatal(err)
			}
		}
		const rows = 1203
		for i := 1; i <= rows; i++ {
			put(i, old.Seal(fmt.Sprintf("kept/%d", i), []byte("secret")))
		}
		put(rows+1, nil)
		put(rows+2, []byte{})
		put(rows+3, []byte("never sealed"))
		put(rows+4, old.Seal("elsewhere", []byte("secret")))
		put(rows+5, renewed.Seal(fmt.Sprintf("kept/%d", rows+5), []byte("secret")))

		for _, c := range []struct {
			name   string
			rewrap func() (int, error)
			want   int
		}{
			{"without the old key", func() (int, error) { return numbers.Rewrap(ctx, db, renewed) }, 0},
			{"by number", func() (int, error) { return numbers.Rewrap(ctx, db, both) }, rows},
			{"again, by name", func() (int, error) { return names.Rewrap(ctx, db, both) }, 0},
			{"back, by name", func() (int, error) {
				return names.Rewrap(ctx, db, must(t, capability.Production, key("k1", 1)+","+key("k2", 2)))
			}, rows + 1},
		} {
			if n, err := c.rewrap(); n != c.want || err != nil {
				t.Errorf("%s: %d %v, want %d", c.name, n, err, c.want)
			}
		}
		var sealed []byte
		if err := db.QueryRow(ctx, `SELECT sealed FROM kept WHERE number = $1`, rows).Scan(&sealed); err != nil {
			t.Fatal(err)
		}
		if got, err := old.Open(fmt.Sprintf("kept/%d", rows), sealed); err != nil || string(got) != "secret" {
			t.Errorf("%q %v", got, err)
		}
	})
}
