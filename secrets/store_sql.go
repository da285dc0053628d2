package secrets

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/database"
)

// SQL stores secrets in the kit's database. Each version is encrypted with a key of its own, which
// a master key wraps. A row that was moved or swapped cannot be decrypted. SQL keeps the newest
// version and the previous one; older ones are destroyed. Inside a transaction of the database it
// joins it.
type SQL struct {
	db     *database.DB
	sealer capability.Sealer
}

// NewSQL returns the provider on a database that has the capability's schema.
func NewSQL(db *database.DB, sealer capability.Sealer) *SQL { return &SQL{db, sealer} }

// Name returns "sql".
func (s *SQL) Name() string { return "sql" }

// ReadOnly returns false.
func (s *SQL) ReadOnly() bool { return false }

// sealedRow is a row of secrets_version.
type sealedRow struct {
	name      string
	version   int64
	sealed    []byte
	createdAt int64
}

const sealedColumns = `SELECT name, version, sealed, created_at FROM secrets_version `

func scanSealed(row database.Scanner) (r sealedRow, err error) {
	return r, row.Scan(&r.name, &r.version, &r.sealed, &r.createdAt)
}

// Read returns a version. The error of one that does not open with the master keys is a
// [seal.ErrNotOpened]; the returned number and time are then those of the version.
func (s *SQL) Read(ctx context.Context, name string, version int64) (Stored, error) {
	query, args := sealedColumns+`WHERE name = $1 ORDER BY version DESC LIMIT 1`, []any{name}
	if version != 0 {
		query, args = sealedColumns+`WHERE name = $1 AND version = $2`, []any{name, version}
	}
	row, found, err := database.Get(ctx, s.db, scanSealed, query, args...)
	if err != nil || !found {
		return Stored{Version: version}, err
	}
	stored := Stored{Version: row.version, CreatedAt: time.UnixMilli(row.createdAt).UTC()}
	if row.sealed == nil {
		return stored, nil
	}
	text, err := s.sealer.Open(sealContext(name, row.version), row.sealed)
	if err != nil {
		return stored, fmt.Errorf("secrets: %s version %d: %w", name, row.version, err)
	}
	stored.Payload = NewValue(string(text))
	return stored, nil
}

// Write adds a version and destroys those before the previous one.
func (s *SQL) Write(ctx context.Context, name string, after int64, payload Value) (version int64, err error) {
	err = s.db.InTx(ctx, func(ctx context.Context) error {
		var newest int64
		row := s.db.QueryRow(ctx, `SELECT COALESCE(max(version), 0) FROM secrets_version WHERE name = $1`, name)
		if err := row.Scan(&newest); err != nil {
			return err
		}
		if newest != after {
			return ErrVersionConflict
		}
		version = after + 1
		n, err := s.db.Exec(ctx, `INSERT INTO secrets_version (name, version, sealed, created_at) VALUES ($1, $2, $3, $4)
			ON CONFLICT DO NOTHING`, name, version, s.sealer.Seal(sealContext(name, version), []byte(payload.Reveal())),
			s.db.Now(ctx).UnixMilli())
		if err == nil && n == 0 {
			err = ErrVersionConflict
		}
		if err != nil {
			return err
		}
		_, err = s.db.Exec(ctx, `DELETE FROM secrets_version WHERE name = $1 AND version < $2`, name, after)
		return err
	})
	if err != nil {
		return 0, err
	}
	return version, nil
}

// Delete removes all versions.
func (s *SQL) Delete(ctx context.Context, name string) error {
	_, err := s.db.Exec(ctx, `DELETE FROM secrets_version WHERE name = $1`, name)
	return err
}

// rewrapBatch is the number of rows that one transaction rewraps.
const rewrapBatch = 100

// Rewrap wraps every key with the first master key, so that older master keys can be removed, and
// returns how many it changed. A version that cannot be decrypted does not stop it and is named by
// the error. Concurrent reads and writes are allowed.
func (s *SQL) Rewrap(ctx context.Context) (changed int, err error) {
	name, version := "", int64(0)
	var unopened []error
	for {
		rows, err := database.All(ctx, s.db, scanSealed, sealedColumns+`WHERE (name, version) > ($1, $2) AND sealed IS NOT NULL
			ORDER BY name, version LIMIT $3`, name, version, rewrapBatch)
		if err != nil {
			return changed, errors.Join(append(unopened, err)...)
		}
		n, failed, err := s.rewrap(ctx, rows)
		changed, unopened = changed+n, append(unopened, failed...)
		if err != nil || len(rows) < rewrapBatch {
			return changed, errors.Join(append(unopened, err)...)
		}
		name, version = rows[len(rows)-1].name, rows[len(rows)-1].version
	}
}

// rewrap rewraps some rows in one transaction. It does not overwrite concurrent writes of another
// node.
func (s *SQL) rewrap(ctx context.Context, rows []sealedRow) (changed int, unopened []error, err error) {
	err = s.db.InTx(ctx, func(ctx context.Context) error {
		changed, unopened = 0, nil
		for _, row := range rows {
			sealed, different, err := s.sealer.Rewrap(sealContext(row.name, row.version), row.sealed)
			if err != nil {
				unopened = append(unopened, fmt.Errorf("secrets: %s version %d: %w", row.name, row.version, err))
				continue
			}
			if !different {
				continue
			}
			n, err := s.db.Exec(ctx, `UPDATE secrets_version SET sealed = $3 WHERE name = $1 AND version = $2 AND sealed = $4`,
				row.name, row.version, sealed, row.sealed)
			if err != nil {
				return err
			}
			changed += int(n)
		}
		return nil
	})
	return changed, unopened, err
}

// sealContext returns the context that binds a version to its row.
func sealContext(name string, version int64) string {
	return fmt.Sprintf("secrets/%s/%d", name, version)
}
