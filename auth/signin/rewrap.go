package signin

import (
	"context"

	"github.com/kitbackend/kit/database"
)

// sealedColumn holds what is sealed for the row of a key.
type sealedColumn struct {
	table, key, column string
	context            func(key string) string
}

var sealedColumns = []sealedColumn{
	{"signin_two_factor", "user_id", "totp", totpContext},
	{"signin_two_factor", "user_id", "totp_pending", totpContext},
	{"signin_two_factor", "user_id", "backup_key", backupContext},
	{"signin_provider_token", "account_id", "sealed", tokenContext},
}

// rewrap wraps what the library has sealed with the first master key and answers
// how many values it changed. What opens with none of the master keys is left
// alone, and so is what changes meanwhile: it is sealed with the first one.
func (l *library) rewrap(ctx context.Context) (changed int, err error) {
	for _, column := range sealedColumns {
		n, err := l.rewrapColumn(ctx, column)
		if changed += n; err != nil {
			return changed, err
		}
	}
	return changed, nil
}

func (l *library) rewrapColumn(ctx context.Context, in sealedColumn) (changed int, err error) {
	for after := ""; ; {
		rows, err := l.store.sealed(ctx, in, after)
		if err != nil || len(rows) == 0 {
			return changed, err
		}
		for _, row := range rows {
			after = row.key
			fresh, different, err := l.auth.Keys().Rewrap(in.context(row.key), row.sealed)
			if err != nil || !different {
				continue
			}
			replaced, err := l.store.replaceSealed(ctx, in, row, fresh)
			if err != nil {
				return changed, err
			}
			if replaced {
				changed++
			}
		}
	}
}

// sealedRow is what one row holds in a sealedColumn.
type sealedRow struct {
	key    string
	sealed []byte
}

// sealed lists a batch of rows that hold something, after a key.
func (s store) sealed(ctx context.Context, in sealedColumn, after string) ([]sealedRow, error) {
	return database.All(ctx, s.db, func(row database.Scanner) (r sealedRow, err error) {
		return r, row.Scan(&r.key, &r.sealed)
	}, `SELECT `+in.key+`, `+in.column+` FROM `+in.table+` WHERE `+in.key+` > $1 AND length(`+in.column+`) > 0
		ORDER BY `+in.key+` LIMIT $2`, after, sweepBatch)
}

// replaceSealed answers false when the row has changed meanwhile.
func (s store) replaceSealed(ctx context.Context, in sealedColumn, row sealedRow, fresh []byte) (replaced bool, err error) {
	n, err := s.db.Exec(ctx, `UPDATE `+in.table+` SET `+in.column+` = $3 WHERE `+in.key+` = $1 AND `+in.column+` = $2`,
		row.key, row.sealed, fresh)
	return n == 1, err
}
