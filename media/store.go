package media

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/internal/optional"
)

// store is the SQL of media.
type store struct{ db *database.DB }

const columns = `id, owner_id, kind, status, visibility, filename, content_type, size, object_id, source_sha256, sha256,
	phash, width, height, caption, metadata, facts, error_code, attempts, created_at, updated_at, ready_at, recipe`

// keptFacts are the facts as stored in a row.
type keptFacts struct {
	Facts
	Wanted Kind `json:"wanted,omitempty"`
}

func scanItem(row database.Scanner) (i Item, err error) {
	var metadata, facts string
	var phash, created, updated, ready int64
	if err := row.Scan(&i.ID, &i.OwnerID, &i.Kind, &i.Status, &i.Visibility, &i.Filename, &i.ContentType, &i.Size, &i.ObjectID,
		&i.source, &i.sum, &phash, &i.Width, &i.Height, &i.Caption, &metadata, &facts, &i.failure, &i.attempts,
		&created, &updated, &ready, &i.recipe); err != nil {
		return i, err
	}
	var kept keptFacts
	if err := json.Unmarshal([]byte(facts), &kept); err != nil {
		return i, err
	}
	i.Facts = kept.Facts
	i.wanted = kept.Wanted
	if err := json.Unmarshal([]byte(metadata), &i.Metadata); err != nil {
		return i, err
	}
	i.phash = uint64(phash)
	i.SHA256, i.SourceSHA256, i.PHash = optional.Text(i.sum), optional.Text(i.source), nil
	if i.phash != 0 {
		i.PHash = optional.Text(fmt.Sprintf("%016x", i.phash))
	}
	if i.failure != "" {
		i.Error = &Failure{i.failure, failure(i.failure).Message}
	}
	i.Derivatives = []Derivative{}
	i.CreatedAt, i.UpdatedAt = capability.Millis(created), capability.Millis(updated)
	i.ReadyAt = optional.Time(ready)
	return i, nil
}

func (i Item) encoded() (metadata, facts string, err error) {
	m, err := json.Marshal(i.Metadata)
	if err != nil {
		return "", "", err
	}
	f, err := json.Marshal(keptFacts{i.Facts, i.wanted})
	return string(m), string(f), err
}

// lockOwner takes the lock that is needed to count the items of an owner.
func (s store) lockOwner(ctx context.Context, owner string) error {
	if _, err := s.db.Exec(ctx, `INSERT INTO media_owner (owner_id) VALUES ($1) ON CONFLICT DO NOTHING`, owner); err != nil {
		return err
	}
	return s.db.QueryRow(ctx, `SELECT owner_id FROM media_owner WHERE owner_id = $1 `+database.ForUpdate, owner).Scan(&owner)
}

func (s store) countPending(ctx context.Context, owner string) (n int64, err error) {
	err = s.db.QueryRow(ctx, `SELECT COUNT(*) FROM media_item WHERE owner_id = $1 AND status = 'pending'`, owner).Scan(&n)
	return n, err
}

func (s store) insert(ctx context.Context, i Item) error {
	metadata, facts, err := i.encoded()
	if err != nil {
		return err
	}
	_, err = s.db.Exec(ctx, `INSERT INTO media_item (`+columns+`)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, '', '', 0, 0, 0, $10, $11, $12, '', 0, $13, $13, 0, '')`,
		i.ID, i.OwnerID, string(i.Kind), string(i.Status), string(i.Visibility), i.Filename, i.ContentType, i.Size, i.ObjectID,
		i.Caption, metadata, facts, i.CreatedAt.UnixMilli())
	return err
}

const selectItem = `SELECT ` + columns + ` FROM media_item WHERE id = $1`

func (s store) item(ctx context.Context, id string) (Item, bool, error) {
	return database.Get(ctx, s.db, scanItem, selectItem, id)
}

func (s store) lockItem(ctx context.Context, id string) (Item, bool, error) {
	return database.Get(ctx, s.db, scanItem, selectItem+` `+database.ForUpdate, id)
}

// update writes all columns of an item that can change.
func (s store) update(ctx context.Context, i Item) error {
	_, facts, err := i.encoded()
	if err != nil {
		return err
	}
	ready := int64(0)
	if i.ReadyAt != nil {
		ready = i.ReadyAt.UnixMilli()
	}
	_, err = s.db.Exec(ctx, `UPDATE media_item SET kind = $2, status = $3, content_type = $4, size = $5, object_id = $6,
		source_sha256 = $7, sha256 = $8, phash = $9, width = $10, height = $11, facts = $12, error_code = $13, attempts = $14,
		updated_at = $15, ready_at = $16, recipe = $17 WHERE id = $1`,
		i.ID, string(i.Kind), string(i.Status), i.ContentType, i.Size, i.ObjectID, i.source, i.sum, int64(i.phash),
		i.Width, i.Height, facts, i.failure, i.attempts, s.db.Now(ctx).UnixMilli(), ready, i.recipe)
	return err
}

func (s store) remove(ctx context.Context, id string) (bool, error) {
	n, err := s.db.Exec(ctx, `DELETE FROM media_item WHERE id = $1`, id)
	return n == 1, err
}

// removePending is remove for an item whose upload was given up, unless it has been finalized in
// the meantime.
func (s store) removePending(ctx context.Context, id string) error {
	_, err := s.db.Exec(ctx, `DELETE FROM media_item WHERE id = $1 AND status = 'pending'`, id)
	return err
}

// bySum returns the oldest ready item of an owner with a checksum.
func (s store) bySum(ctx context.Context, owner, sum string) (Item, bool, error) {
	list, err := s.allBySum(ctx, owner, sum, "", 1)
	if err != nil || len(list) == 0 {
		return Item{}, false, err
	}
	return list[0], true, nil
}

// allBySum lists the ready items with a checksum, of the uploaded or of the stored bytes.
func (s store) allBySum(ctx context.Context, owner, sum, but string, limit int) ([]Item, error) {
	return database.All(ctx, s.db, scanItem, `SELECT `+columns+` FROM media_item
		WHERE owner_id = $1 AND status = 'ready' AND id <> $3 AND id IN (
			SELECT id FROM media_item WHERE owner_id = $1 AND source_sha256 = $2 AND source_sha256 <> ''
			UNION SELECT id FROM media_item WHERE owner_id = $1 AND sha256 = $2 AND sha256 <> '')
		ORDER BY id LIMIT $4`, owner, sum, but, limit)
}

// list pages through the items of an owner, the newest first.
func (s store) list(ctx context.Context, f Filter, before string, limit int) ([]Item, error) {
	args := []any{f.OwnerID}
	where := `owner_id = $1`
	add := func(column, value, is string) {
		if value != "" {
			args = append(args, value)
			where += fmt.Sprintf(" AND %s %s $%d", column, is, len(args))
		}
	}
	add("kind", string(f.Kind), "=")
	add("status", string(f.Status), "=")
	add("id", before, "<")
	args = append(args, limit)
	return database.All(ctx, s.db, scanItem, fmt.Sprintf(`SELECT `+columns+` FROM media_item WHERE %s ORDER BY id DESC LIMIT $%d`,
		where, len(args)), args...)
}

var selectItems = `SELECT ` + columns + ` FROM media_item WHERE id ` + database.InList(1)

func (s store) items(ctx context.Context, ids []string) ([]Item, error) {
	return database.All(ctx, s.db, scanItem, selectItems, database.List(ids))
}

// look is the perceptual hash of an item.
type look struct {
	id    string
	phash uint64
}

// looks lists the hashes of the items of an owner, by pages.
func (s store) looks(ctx context.Context, owner, after string, limit int) ([]look, error) {
	return database.All(ctx, s.db, func(row database.Scanner) (l look, err error) {
		var phash int64
		err = row.Scan(&l.id, &phash)
		l.phash = uint64(phash)
		return l, err
	}, `SELECT id, phash FROM media_item WHERE owner_id = $1 AND id > $2 AND phash <> 0 ORDER BY id LIMIT $3`, owner, after, limit)
}

func (s store) addDerivative(ctx context.Context, item string, d Derivative) error {
	_, err := s.db.Exec(ctx, `INSERT INTO media_derivative (item_id, name, object_id, content_type, width, height, size)
		VALUES ($1, $2, $3, $4, $5, $6, $7)`, item, d.Name, d.objectID, d.ContentType, d.Width, d.Height, d.Size)
	return err
}

func (s store) removeDerivatives(ctx context.Context, item string) error {
	_, err := s.db.Exec(ctx, `DELETE FROM media_derivative WHERE item_id = $1`, item)
	return err
}

// owned is a derivative and its item.
type owned struct {
	item string
	Derivative
}

var selectDerivatives = `SELECT item_id, name, object_id, content_type, width, height, size FROM media_derivative
	WHERE item_id ` + database.InList(1) + ` ORDER BY item_id, width, name`

func (s store) derivatives(ctx context.Context, items []string) ([]owned, error) {
	return database.All(ctx, s.db, func(row database.Scanner) (o owned, err error) {
		return o, row.Scan(&o.item, &o.Name, &o.objectID, &o.ContentType, &o.Width, &o.Height, &o.Size)
	}, selectDerivatives, database.List(items))
}

// unfinished lists items that did not change since an instant, by pages.
func (s store) unfinished(ctx context.Context, status Status, before int64, after string, limit int) ([]Item, error) {
	return database.All(ctx, s.db, scanItem, `SELECT `+columns+` FROM media_item
		WHERE status = $1 AND updated_at < $2 AND id > $3 ORDER BY id LIMIT $4`, string(status), before, after, limit)
}

// stale lists ready items that were made by another recipe, in arbitrary order.
func (s store) stale(ctx context.Context, recipe string, limit int) ([]string, error) {
	return database.All(ctx, s.db, func(row database.Scanner) (id string, err error) { return id, row.Scan(&id) },
		`SELECT id FROM (SELECT id FROM media_item WHERE status = 'ready' AND recipe < $1 ORDER BY recipe, id LIMIT $2) AS older
		UNION ALL SELECT id FROM (SELECT id FROM media_item WHERE status = 'ready' AND recipe > $1 ORDER BY recipe, id LIMIT $2) AS newer`,
		recipe, limit)
}

func (s store) ownedBy(ctx context.Context, owner, after string, limit int) ([]Item, error) {
	return database.All(ctx, s.db, scanItem, `SELECT `+columns+` FROM media_item
		WHERE owner_id = $1 AND id > $2 ORDER BY id LIMIT $3`, owner, after, limit)
}

func (s store) removeOwner(ctx context.Context, owner string) error {
	_, err := s.db.Exec(ctx, `DELETE FROM media_owner WHERE owner_id = $1`, owner)
	return err
}

func (s store) countProcessing(ctx context.Context) (n int64, err error) {
	err = s.db.QueryRow(ctx, `SELECT COUNT(*) FROM media_item WHERE status = 'processing'`).Scan(&n)
	return n, err
}
