package storage

import (
	"context"
	"encoding/json"

	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/internal/optional"
	"github.com/kitbackend/kit/storage/bucket/file"
)

// store is the SQL of storage. Methods that change an owner's objects run inside a transaction that
// has locked the owner's usage first.
type store struct{ db *database.DB }

const columns = `id, namespace, owner_id, path, object_key, state, size, content_type, visibility, sha256, metadata,
	upload_id, part_size, stored, created_at, updated_at, completed_at, expires_at, writable_until`

func scanObject(row database.Scanner) (o Object, err error) {
	var sha, metadata string
	var created, updated, completed int64
	if err := row.Scan(&o.ID, &o.Namespace, &o.OwnerID, &o.Path, &o.key, &o.State, &o.Size, &o.ContentType, &o.Visibility,
		&sha, &metadata, &o.uploadID, &o.partSize, &o.stored, &created, &updated, &completed, &o.expires, &o.writableUntil); err != nil {
		return o, err
	}
	if err := json.Unmarshal([]byte(metadata), &o.Metadata); err != nil {
		return o, err
	}
	o.ETag = file.ETag(o.key)
	o.SHA256 = optional.Text(sha)
	o.CreatedAt, o.UpdatedAt, o.CompletedAt = capability.Millis(created), capability.Millis(updated), optional.Time(completed)
	if o.State == StatePending {
		o.ExpiresAt = optional.Time(o.expires)
	}
	return o, nil
}

// lockUsage takes the lock of an owner, and adds the row if there is none.
func (s store) lockUsage(ctx context.Context, owner string) error {
	for {
		if _, err := s.db.Exec(ctx, `INSERT INTO storage_usage (owner_id, used, reserved) VALUES ($1, 0, 0) ON CONFLICT DO NOTHING`, owner); err != nil {
			return err
		}
		// The previous holder of the lock may have removed the row.
		_, found, err := database.Get(ctx, s.db, scanText, `SELECT owner_id FROM storage_usage WHERE owner_id = $1 `+database.ForUpdate, owner)
		if err != nil || found {
			return err
		}
	}
}

// reserve reserves space, or returns false if there is not enough.
func (s store) reserve(ctx context.Context, owner string, size, quota int64) (bool, error) {
	n, err := s.db.Exec(ctx, `UPDATE storage_usage SET reserved = reserved + $2
		WHERE owner_id = $1 AND ($3 = 0 OR used + reserved + $2 <= $3)`, owner, size, quota)
	return n == 1, err
}

// account adds to the used and reserved space of an owner.
func (s store) account(ctx context.Context, owner string, used, reserved int64) error {
	_, err := s.db.Exec(ctx, `UPDATE storage_usage SET used = used + $2, reserved = reserved + $3 WHERE owner_id = $1`, owner, used, reserved)
	return err
}

func (s store) usage(ctx context.Context, owner string) (u Usage, err error) {
	u, _, err = database.Get(ctx, s.db, func(row database.Scanner) (u Usage, err error) {
		return u, row.Scan(&u.Used, &u.Reserved)
	}, `SELECT used, reserved FROM storage_usage WHERE owner_id = $1`, owner)
	return u, err
}

func (s store) countPending(ctx context.Context, owner string) (n int64, err error) {
	err = s.db.QueryRow(ctx, `SELECT COUNT(*) FROM storage_object WHERE owner_id = $1 AND state = 'pending'`, owner).Scan(&n)
	return n, err
}

// insert adds an object, which is pending or whose path is free.
func (s store) insert(ctx context.Context, o Object) error {
	metadata, err := json.Marshal(o.Metadata)
	if err != nil {
		return err
	}
	sha, completed := "", int64(0)
	if o.SHA256 != nil {
		sha = *o.SHA256
	}
	if o.CompletedAt != nil {
		completed = o.CompletedAt.UnixMilli()
	}
	_, err = s.db.Exec(ctx, `INSERT INTO storage_object (`+columns+`)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19)`,
		o.ID, o.Namespace, o.OwnerID, o.Path, o.key, string(o.State), o.Size, o.ContentType, string(o.Visibility), sha, string(metadata),
		o.uploadID, o.partSize, o.stored, o.CreatedAt.UnixMilli(), o.UpdatedAt.UnixMilli(), completed, o.expires, o.writableUntil)
	return err
}

const selectObject = `SELECT ` + columns + ` FROM storage_object WHERE id = $1 AND namespace = $2`

func (s store) object(ctx context.Context, namespace, id string) (Object, bool, error) {
	return database.Get(ctx, s.db, scanObject, selectObject, id, namespace)
}

func (s store) lockObject(ctx context.Context, namespace, id string) (Object, bool, error) {
	return database.Get(ctx, s.db, scanObject, selectObject+` `+database.ForUpdate, id, namespace)
}

var selectObjects = `SELECT ` + columns + ` FROM storage_object WHERE id ` + database.InList(1) + ` AND namespace = $2 ORDER BY id`

func (s store) objects(ctx context.Context, namespace string, ids []string) ([]Object, error) {
	return database.All(ctx, s.db, scanObject, selectObjects, database.List(ids), namespace)
}

func (s store) byKey(ctx context.Context, key string) (Object, bool, error) {
	return database.Get(ctx, s.db, scanObject, `SELECT `+columns+` FROM storage_object WHERE object_key = $1`, key)
}

func (s store) atPath(ctx context.Context, namespace, owner, path string) (Object, bool, error) {
	return database.Get(ctx, s.db, scanObject, `SELECT `+columns+` FROM storage_object
		WHERE namespace = $1 AND owner_id = $2 AND path = $3 AND state = 'ready'`, namespace, owner, path)
}

// from returns where a page begins: one bound, with which the index scan starts.
func from(prefix, after string) (operator, bound string) {
	if after < prefix || after == "" {
		return ">=", prefix
	}
	return ">", after
}

// below lists the ready objects whose paths begin with a prefix, by path.
func (s store) below(ctx context.Context, namespace, owner, prefix, after string, limit int) ([]Object, error) {
	operator, bound := from(prefix, after)
	return database.All(ctx, s.db, scanObject, `SELECT `+columns+` FROM storage_object
		WHERE namespace = $1 AND owner_id = $2 AND state = 'ready' AND path `+operator+` $3 AND path < $4 ORDER BY path LIMIT $5`,
		namespace, owner, bound, prefix+highest, limit)
}

// highest sorts after every continuation of a path: no path contains it.
const highest = "\U0010FFFF"

// entry is an object's path, or a common prefix of paths, which ends in a slash.
type entry struct{ path, prefix string }

// after returns the position after which the next entry sorts.
func (e entry) after() string {
	if e.prefix != "" {
		return e.prefix + highest
	}
	return e.path
}

// The recursive query steps from one entry to the next by the index: below a common prefix it reads
// only one row.
func folderSQL(operator string) string {
	return `WITH RECURSIVE walk (n, path) AS (
	SELECT 1, (SELECT o.path FROM storage_object AS o
		WHERE o.namespace = $1 AND o.owner_id = $2 AND o.state = 'ready' AND o.path ` + operator + ` $4 AND o.path < $5 ORDER BY o.path LIMIT 1)
	UNION ALL
	SELECT walk.n + 1, (SELECT o.path FROM storage_object AS o
		WHERE o.namespace = $1 AND o.owner_id = $2 AND o.state = 'ready' AND o.path < $5
			AND o.path > CASE WHEN ` + cutSQL("walk.path") + ` = 0 THEN walk.path ELSE substr(walk.path, 1, ` + cutSQL("walk.path") + `) || $7 END
		ORDER BY o.path LIMIT 1) FROM walk WHERE walk.n < $6 AND walk.path IS NOT NULL
) SELECT path, ` + cutSQL("path") + ` FROM walk WHERE path IS NOT NULL ORDER BY n`
}

// cutSQL is the length up to the first slash after the prefix, 0 if there is none.
func cutSQL(path string) string {
	rest := `substr(` + path + `, length(CAST($3 AS TEXT)) + 1)`
	at := database.Text(`instr(`+rest+`, '/')`, `strpos(`+rest+`, '/')`)
	return `CASE WHEN ` + at + ` = 0 THEN 0 ELSE length(CAST($3 AS TEXT)) + ` + at + ` END`
}

// folder lists the entries directly below a prefix.
func (s store) folder(ctx context.Context, namespace, owner, prefix, after string, limit int) ([]entry, error) {
	operator, bound := from(prefix, after)
	return database.All(ctx, s.db, func(row database.Scanner) (e entry, err error) {
		var cut int
		if err := row.Scan(&e.path, &cut); err != nil || cut == 0 {
			return e, err
		}
		e.prefix = string([]rune(e.path)[:cut])
		return e, nil
	}, folderSQL(operator), namespace, owner, prefix, bound, prefix+highest, limit, highest)
}

var atPathsSQL = `SELECT ` + columns + ` FROM storage_object
	WHERE namespace = $1 AND owner_id = $2 AND state = 'ready' AND path ` + database.InList(3) + ` ORDER BY path`

func (s store) atPaths(ctx context.Context, namespace, owner string, paths []string) ([]Object, error) {
	return database.All(ctx, s.db, scanObject, atPathsSQL, namespace, owner, database.List(paths))
}

// setUpload sets the ID of the multipart upload of a pending object.
func (s store) setUpload(ctx context.Context, id, upload string) (bool, error) {
	n, err := s.db.Exec(ctx, `UPDATE storage_object SET upload_id = $2 WHERE id = $1 AND state = 'pending'`, id, upload)
	return n == 1, err
}

func (s store) setWritable(ctx context.Context, id string, until int64) (pending bool, err error) {
	n, err := s.db.Exec(ctx, `UPDATE storage_object SET writable_until = CASE WHEN writable_until < $2 THEN $2 ELSE writable_until END
		WHERE id = $1 AND state = 'pending'`, id, until)
	return n == 1, err
}

// setSize changes how much a pending object reserves.
func (s store) setSize(ctx context.Context, id string, size int64) (pending bool, err error) {
	n, err := s.db.Exec(ctx, `UPDATE storage_object SET size = $2 WHERE id = $1 AND state = 'pending'`, id, size)
	return n == 1, err
}

// setStored records that the bytes of a pending object are in the bucket.
func (s store) setStored(ctx context.Context, id string, size int64, sha string) error {
	_, err := s.db.Exec(ctx, `UPDATE storage_object SET stored = TRUE, size = $2, sha256 = $3 WHERE id = $1 AND state = 'pending'`, id, size, sha)
	return err
}

// setReady makes a pending object readable.
func (s store) setReady(ctx context.Context, id string, now int64) error {
	_, err := s.db.Exec(ctx, `UPDATE storage_object SET state = 'ready', stored = TRUE, upload_id = '', part_size = 0,
		updated_at = $2, completed_at = $2, expires_at = 0 WHERE id = $1 AND state = 'pending'`, id, now)
	return err
}

func (s store) setAborted(ctx context.Context, id string, now int64) error {
	_, err := s.db.Exec(ctx, `UPDATE storage_object SET state = 'aborted', updated_at = $2 WHERE id = $1 AND state = 'pending'`, id, now)
	return err
}

func (s store) update(ctx context.Context, o Object) error {
	metadata, err := json.Marshal(o.Metadata)
	if err != nil {
		return err
	}
	_, err = s.db.Exec(ctx, `UPDATE storage_object SET path = $2, visibility = $3, metadata = $4, updated_at = $5, content_type = $6 WHERE id = $1`,
		o.ID, o.Path, string(o.Visibility), string(metadata), o.UpdatedAt.UnixMilli(), o.ContentType)
	return err
}

func (s store) remove(ctx context.Context, id string) error {
	_, err := s.db.Exec(ctx, `DELETE FROM storage_object WHERE id = $1`, id)
	return err
}

// lapsed lists the expired uploads of an owner; those that hold a reservation come before the
// aborted ones.
func (s store) lapsed(ctx context.Context, owner string, now int64, limit int) ([]Object, error) {
	return database.All(ctx, s.db, scanObject, `SELECT `+columns+` FROM storage_object
		WHERE owner_id = $1 AND state <> 'ready' AND expires_at <= $2 ORDER BY state DESC, expires_at LIMIT $3 `+database.ForUpdate, owner, now, limit)
}

// lapsedOwners lists owners who have expired uploads.
func (s store) lapsedOwners(ctx context.Context, now int64, limit int) ([]string, error) {
	return database.All(ctx, s.db, scanText, `SELECT DISTINCT owner_id FROM (SELECT owner_id FROM storage_object
		WHERE state <> 'ready' AND expires_at <= $1 ORDER BY expires_at LIMIT $2) AS o`, now, limit)
}

func scanText(row database.Scanner) (text string, err error) { return text, row.Scan(&text) }

// garbage is bytes to remove.
type garbage struct {
	key, upload        string
	due, writableUntil int64
}

func (s store) addGarbage(ctx context.Context, g garbage) error {
	_, err := s.db.Exec(ctx, `INSERT INTO storage_garbage (object_key, upload_id, due_at, writable_until) VALUES ($1, $2, $3, $4)
		ON CONFLICT DO NOTHING`, g.key, g.upload, g.due, g.writableUntil)
	return err
}

func (s store) dueGarbage(ctx context.Context, now int64, limit int) ([]garbage, error) {
	return database.All(ctx, s.db, func(row database.Scanner) (g garbage, err error) {
		return g, row.Scan(&g.key, &g.upload, &g.due, &g.writableUntil)
	}, `SELECT object_key, upload_id, due_at, writable_until FROM storage_garbage WHERE due_at <= $1 ORDER BY due_at LIMIT $2`, now, limit)
}

func (s store) deferGarbage(ctx context.Context, key string, due int64) error {
	_, err := s.db.Exec(ctx, `UPDATE storage_garbage SET due_at = $2 WHERE object_key = $1`, key, due)
	return err
}

func (s store) removeGarbage(ctx context.Context, key string) error {
	_, err := s.db.Exec(ctx, `DELETE FROM storage_garbage WHERE object_key = $1`, key)
	return err
}

// ownedBy lists objects of an owner in every namespace and state, after an id.
func (s store) ownedBy(ctx context.Context, owner, after string, limit int) ([]Object, error) {
	return database.All(ctx, s.db, scanObject, `SELECT `+columns+` FROM storage_object
		WHERE owner_id = $1 AND id > $2 ORDER BY id LIMIT $3 `+database.ForUpdate, owner, after, limit)
}

// readOwnedBy is ownedBy without locks.
func (s store) readOwnedBy(ctx context.Context, owner, after string, limit int) ([]Object, error) {
	return database.All(ctx, s.db, scanObject, `SELECT `+columns+` FROM storage_object
		WHERE owner_id = $1 AND id > $2 ORDER BY id LIMIT $3`, owner, after, limit)
}

// removeUsage removes the row of an owner if it is all zeros: a missing row means the same.
func (s store) removeUsage(ctx context.Context, owner string) error {
	_, err := s.db.Exec(ctx, `DELETE FROM storage_usage WHERE owner_id = $1 AND used = 0 AND reserved = 0`, owner)
	return err
}

func (s store) totals(ctx context.Context) (used, reserved float64, err error) {
	err = s.db.QueryRow(ctx, `SELECT COALESCE(SUM(CAST(used AS DOUBLE PRECISION)), 0), COALESCE(SUM(CAST(reserved AS DOUBLE PRECISION)), 0)
		FROM storage_usage`).Scan(&used, &reserved)
	return used, reserved, err
}

func (s store) countGarbage(ctx context.Context) (n int64, err error) {
	err = s.db.QueryRow(ctx, `SELECT COUNT(*) FROM storage_garbage`).Scan(&n)
	return n, err
}
