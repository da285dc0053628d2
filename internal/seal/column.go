package seal

import (
	"context"
	"fmt"

	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/database"
)

const columnChunk = 500 // rows read together

// Column is a column of sealed values, in rows with a key.
type Column[K string | int64] struct {
	Table, Key, Column string
	// Context returns the context for which the value of a row is sealed.
	Context func(key K) string
}

// Rewrap wraps the values of a column with the first master key and returns how
// many it changed. It skips values that open with none of the master keys, and values that change
// meanwhile, which are sealed under the first key.
func (c Column[K]) Rewrap(ctx context.Context, db *database.DB, keys capability.Sealer) (changed int, err error) {
	var after K
	for {
		rows, err := c.read(ctx, db, after)
		if err != nil || len(rows) == 0 {
			return changed, err
		}
		for _, row := range rows {
			after = row.key
			sealed, different, err := keys.Rewrap(c.Context(row.key), row.sealed)
			if err != nil || !different {
				continue
			}
			n, err := db.Exec(ctx, fmt.Sprintf(`UPDATE %s SET %s = $3 WHERE %s = $1 AND %[2]s = $2`, c.Table, c.Column, c.Key),
				row.key, row.sealed, sealed)
			if err != nil {
				return changed, err
			}
			changed += int(n)
		}
	}
}

type columnRow[K string | int64] struct {
	key    K
	sealed []byte
}

// read lists the rows after a key whose value is not empty.
func (c Column[K]) read(ctx context.Context, db *database.DB, after K) ([]columnRow[K], error) {
	return database.All(ctx, db, func(row database.Scanner) (r columnRow[K], err error) {
		return r, row.Scan(&r.key, &r.sealed)
	}, fmt.Sprintf(`SELECT %s, %s FROM %s WHERE %[1]s > $1 AND length(%[2]s) > 0 ORDER BY %[1]s LIMIT $2`, c.Key, c.Column, c.Table),
		after, columnChunk)
}
