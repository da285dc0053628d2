package audit

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"time"

	"github.com/kitbackend/kit/database"
)

// link is one seal of a shard's chain.
type link struct {
	seq        int64
	eventID    string
	prev, hash []byte
}

// waitingEvent is an event without a seal.
type waitingEvent struct {
	id   string
	hash []byte
}

// lockShard returns the last link of a shard and locks the shard until the transaction ends; ok is
// false if another sealer has locked it.
func (s store) lockShard(ctx context.Context, shard int64) (Head, bool, error) {
	return database.Get(ctx, s.db, scanHead,
		`SELECT shard, seq, hash FROM audit_shard WHERE shard = $1 `+database.SkipLocked, shard)
}

// heads returns the last link of every shard, in one snapshot.
func (s store) heads(ctx context.Context) ([]Head, error) {
	return database.All(ctx, s.db, scanHead, `SELECT shard, seq, hash FROM audit_shard ORDER BY shard`)
}

func scanHead(row database.Scanner) (h Head, err error) {
	return h, row.Scan(&h.Shard, &h.Seq, &h.Hash)
}

// waiting returns unsealed events in the order of their ids.
func (s store) waiting(ctx context.Context, shard int64, limit int) ([]waitingEvent, error) {
	return database.All(ctx, s.db, func(row database.Scanner) (w waitingEvent, err error) {
		return w, row.Scan(&w.id, &w.hash)
	}, `SELECT u.event_id, e.hash FROM audit_unsealed u JOIN audit_event e ON e.id = u.event_id
		WHERE u.shard = $1 ORDER BY u.event_id LIMIT $2`, shard, limit)
}

// appendSeals adds links to the shard locked by lockShard, and removes their events from the queue.
func (s store) appendSeals(ctx context.Context, shard int64, seals []link) error {
	rows, ids := make([][4]any, len(seals)), make([]string, len(seals))
	for i, l := range seals {
		rows[i] = [4]any{l.seq, l.eventID, hex.EncodeToString(l.prev), hex.EncodeToString(l.hash)}
		ids[i] = l.eventID
	}
	list, err := json.Marshal(rows)
	if err != nil {
		return err
	}
	if _, err := s.db.Exec(ctx, `INSERT INTO audit_seal (shard, seq, event_id, prev, hash)
		SELECT CAST($1 AS BIGINT), CAST(n.value ->> 0 AS BIGINT), n.value ->> 1,
			`+database.Text(`unhex(n.value ->> 2), unhex(n.value ->> 3)`, `decode(n.value ->> 2, 'hex'), decode(n.value ->> 3, 'hex')`)+`
		FROM `+database.Text(`json_each($2) AS n`, `jsonb_array_elements($2::jsonb) AS n (value)`), shard, string(list)); err != nil {
		return err
	}
	if _, err := s.db.Exec(ctx, `DELETE FROM audit_unsealed WHERE shard = $1 AND event_id `+database.InList(2),
		shard, database.List(ids)); err != nil {
		return err
	}
	last := seals[len(seals)-1]
	_, err = s.db.Exec(ctx, `UPDATE audit_shard SET seq = $2, hash = $3 WHERE shard = $1`, shard, last.seq, last.hash)
	return err
}

// sealOf returns the seal of an event.
func (s store) sealOf(ctx context.Context, eventID string) (Seal, bool, error) {
	return database.Get(ctx, s.db, func(row database.Scanner) (l Seal, err error) {
		return l, row.Scan(&l.Shard, &l.Seq, &l.Prev, &l.Hash)
	}, `SELECT shard, seq, prev, hash FROM audit_seal WHERE event_id = $1`, eventID)
}

// chain returns the links of a shard with numbers after one and until another, in order.
func (s store) chain(ctx context.Context, shard, after, until int64, limit int) ([]link, error) {
	return database.All(ctx, s.db, func(row database.Scanner) (l link, err error) {
		return l, row.Scan(&l.seq, &l.eventID, &l.prev, &l.hash)
	}, `SELECT seq, event_id, prev, hash FROM audit_seal WHERE shard = $1 AND seq > $2 AND seq <= $3
		ORDER BY seq LIMIT $4`, shard, after, until, limit)
}

// records returns the existing events with the ids.
func (s store) records(ctx context.Context, ids []string) (map[string]record, error) {
	rows, err := database.All(ctx, s.db, scanRecord,
		`SELECT `+recordColumns+` WHERE e.id `+database.InList(1), database.List(ids))
	byID := make(map[string]record, len(rows))
	for _, r := range rows {
		byID[r.ID] = r
	}
	return byID, err
}

// queued returns the ids of unsealed events, after one.
func (s store) queued(ctx context.Context, shard int64, after string, limit int) ([]string, error) {
	return database.All(ctx, s.db, scanText,
		`SELECT event_id FROM audit_unsealed WHERE shard = $1 AND event_id > $2 ORDER BY event_id LIMIT $3`, shard, after, limit)
}

func scanText(row database.Scanner) (text string, err error) { return text, row.Scan(&text) }

// countWaiting returns the number of unsealed events, up to a limit.
func (s store) countWaiting(ctx context.Context, limit int) (n int64, err error) {
	err = s.db.QueryRow(ctx, `SELECT count(*) FROM (SELECT 1 FROM audit_unsealed LIMIT $1) AS waiting`, limit).Scan(&n)
	return n, err
}

// strays checks limit events after an id in one snapshot: n is their number, last the last of them,
// and stray the first that is neither sealed nor queued, or "".
func (s store) strays(ctx context.Context, after string, limit int) (n int, last, stray string, err error) {
	err = s.db.QueryRow(ctx, `SELECT count(*), COALESCE(max(e.id), ''), COALESCE(min(CASE
			WHEN EXISTS (SELECT 1 FROM audit_seal s WHERE s.event_id = e.id) THEN NULL
			WHEN EXISTS (SELECT 1 FROM audit_shard h JOIN audit_unsealed u ON u.shard = h.shard WHERE u.event_id = e.id) THEN NULL
			ELSE e.id END), '')
		FROM (SELECT id FROM audit_event WHERE id > $1 ORDER BY id LIMIT $2) AS e`, after, limit).Scan(&n, &last, &stray)
	return n, last, stray, err
}

// strayLink returns a link outside of the chains, whose shards are numbered from 0.
func (s store) strayLink(ctx context.Context) (Head, bool, error) {
	return database.Get(ctx, s.db, scanHead, `
		SELECT s.shard, s.seq, s.hash FROM audit_shard h JOIN audit_seal s ON s.shard = h.shard AND s.seq > h.seq
		UNION ALL SELECT shard, seq, hash FROM audit_seal WHERE shard < 0
		UNION ALL SELECT shard, seq, hash FROM audit_seal WHERE shard > (SELECT max(shard) FROM audit_shard)
		LIMIT 1`)
}

type signingKey struct {
	id     string
	sealed []byte
}

func (s store) signingKeys(ctx context.Context) ([]signingKey, error) {
	return database.All(ctx, s.db, func(row database.Scanner) (k signingKey, err error) {
		return k, row.Scan(&k.id, &k.sealed)
	}, `SELECT id, sealed FROM audit_key ORDER BY id DESC`)
}

func (s store) insertKey(ctx context.Context, k signingKey, now time.Time) error {
	_, err := s.db.Exec(ctx, `INSERT INTO audit_key (id, sealed, created_at) VALUES ($1, $2, $3)`, k.id, k.sealed, now.UnixMilli())
	return err
}

func (s store) replaceKey(ctx context.Context, k signingKey, sealed []byte) error {
	_, err := s.db.Exec(ctx, `UPDATE audit_key SET sealed = $3 WHERE id = $1 AND sealed = $2`, k.id, k.sealed, sealed)
	return err
}

const checkpointColumns = `SELECT seq, created_at, prev, key_id, signature FROM audit_checkpoint `

func scanCheckpoint(row database.Scanner) (c Checkpoint, err error) {
	return c, row.Scan(&c.Seq, &c.createdAt, &c.Prev, &c.KeyID, &c.Signature)
}

// checkpoints returns the checkpoints after a number, in order.
func (s store) checkpoints(ctx context.Context, after int64, limit int) ([]Checkpoint, error) {
	list, err := database.All(ctx, s.db, scanCheckpoint, checkpointColumns+`WHERE seq > $1 ORDER BY seq LIMIT $2`, after, limit)
	for i := range list {
		if err == nil {
			list[i].Heads, err = s.headsOf(ctx, list[i].Seq)
		}
	}
	return list, err
}

// checkpointAt returns a checkpoint by its number.
func (s store) checkpointAt(ctx context.Context, seq int64) (Checkpoint, bool, error) {
	return s.checkpointWhere(ctx, `WHERE seq = $1`, seq)
}

// lastCheckpoint returns the newest checkpoint.
func (s store) lastCheckpoint(ctx context.Context) (Checkpoint, bool, error) {
	return s.checkpointWhere(ctx, `ORDER BY seq DESC LIMIT 1`)
}

// checkpointBefore returns the newest checkpoint signed at or before a time. One that follows a
// checkpoint with a time after it was signed later, by a clock that was behind; checkpoints with a
// time in the future, of a clock that was ahead, prove nothing about their successors.
func (s store) checkpointBefore(ctx context.Context, until, now int64) (Checkpoint, bool, error) {
	return s.checkpointWhere(ctx, `WHERE created_at <= $1 AND seq < COALESCE(
		(SELECT min(seq) FROM audit_checkpoint WHERE created_at > $1 AND created_at <= $2), $3) ORDER BY seq DESC LIMIT 1`,
		until, now, forever)
}

func (s store) checkpointWhere(ctx context.Context, where string, args ...any) (Checkpoint, bool, error) {
	c, found, err := database.Get(ctx, s.db, scanCheckpoint, checkpointColumns+where, args...)
	if found && err == nil {
		c.Heads, err = s.headsOf(ctx, c.Seq)
	}
	return c, found, err
}

func (s store) headsOf(ctx context.Context, checkpoint int64) ([]Head, error) {
	return database.All(ctx, s.db, scanHead,
		`SELECT shard, seq, hash FROM audit_checkpoint_head WHERE checkpoint = $1 ORDER BY shard`, checkpoint)
}

// insertCheckpoint returns false if another node has already inserted this one.
func (s store) insertCheckpoint(ctx context.Context, c Checkpoint) (inserted bool, err error) {
	n, err := s.db.Exec(ctx, `INSERT INTO audit_checkpoint (seq, created_at, prev, key_id, signature)
		VALUES ($1, $2, $3, $4, $5) ON CONFLICT DO NOTHING`, c.Seq, c.createdAt, c.Prev, c.KeyID, c.Signature)
	if err != nil || n == 0 {
		return false, err
	}
	for _, h := range c.Heads {
		if _, err := s.db.Exec(ctx, `INSERT INTO audit_checkpoint_head (checkpoint, shard, seq, hash) VALUES ($1, $2, $3, $4)`,
			c.Seq, h.Shard, h.Seq, h.Hash); err != nil {
			return false, err
		}
	}
	return true, nil
}

// sealedAt returns the existing links that a checkpoint refers to.
func (s store) sealedAt(ctx context.Context, checkpoint int64) ([]Head, error) {
	return database.All(ctx, s.db, scanHead, `SELECT s.shard, s.seq, s.hash FROM audit_seal s
		JOIN audit_checkpoint_head h ON h.shard = s.shard AND h.seq = s.seq WHERE h.checkpoint = $1`, checkpoint)
}

// cuts returns the newest cut of every shard that has one.
func (s store) cuts(ctx context.Context) (map[int64]Head, error) {
	list, err := database.All(ctx, s.db, scanHead, `SELECT shard, seq, hash FROM audit_cut c
		WHERE NOT EXISTS (SELECT 1 FROM audit_cut d WHERE d.shard = c.shard AND d.seq > c.seq)`)
	cuts := make(map[int64]Head, len(list))
	for _, h := range list {
		cuts[h.Shard] = h
	}
	return cuts, err
}

func (s store) insertCut(ctx context.Context, h Head) (inserted bool, err error) {
	n, err := s.db.Exec(ctx, `INSERT INTO audit_cut (shard, seq, hash) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING`, h.Shard, h.Seq, h.Hash)
	return n == 1, err
}

// proof returns the newest proof of the cuts.
func (s store) proof(ctx context.Context) (cutProof, bool, error) {
	return database.Get(ctx, s.db, func(row database.Scanner) (p cutProof, err error) {
		return p, row.Scan(&p.checkpoint, &p.createdAt, &p.eventID, &p.keyID, &p.signature)
	}, `SELECT checkpoint, created_at, event_id, key_id, signature FROM audit_cut_proof ORDER BY checkpoint DESC LIMIT 1`)
}

func (s store) insertProof(ctx context.Context, p cutProof) error {
	_, err := s.db.Exec(ctx, `INSERT INTO audit_cut_proof (checkpoint, created_at, event_id, key_id, signature)
		VALUES ($1, $2, $3, $4, $5)`, p.checkpoint, p.createdAt, p.eventID, p.keyID, p.signature)
	return err
}

// purge deletes up to limit events and seals that the cut of a shard covers.
func (s store) purge(ctx context.Context, cut Head, limit int) (deleted int, err error) {
	seals, err := s.chain(ctx, cut.Shard, 0, cut.Seq, limit)
	if err != nil || len(seals) == 0 {
		return 0, err
	}
	ids := make([]string, len(seals))
	for i, l := range seals {
		ids[i] = l.eventID
	}
	list := database.List(ids)
	if _, err := s.db.Exec(ctx, `DELETE FROM audit_personal WHERE event_id `+database.InList(1), list); err != nil {
		return 0, err
	}
	if _, err := s.db.Exec(ctx, `DELETE FROM audit_event WHERE id `+database.InList(1), list); err != nil {
		return 0, err
	}
	_, err = s.db.Exec(ctx, `DELETE FROM audit_seal WHERE event_id `+database.InList(1), list)
	return len(seals), err
}

// exported is an event of an export with its seal.
type exported struct {
	record
	seal *Seal
}

// export returns events after an id, in the order of their ids.
func (s store) export(ctx context.Context, f Filter, after string, limit int) ([]exported, error) {
	where := f.conditions()
	where.Add("e.id > $%d", after)
	rows, err := database.All(ctx, s.db, scanRecord,
		fmt.Sprintf(`SELECT `+recordColumns+` WHERE %s ORDER BY e.id LIMIT $%d`, where.Text(), where.Next()), where.Args(limit)...)
	if err != nil || len(rows) == 0 {
		return nil, err
	}
	ids := make([]string, len(rows))
	for i, r := range rows {
		ids[i] = r.ID
	}
	seals := make(map[string]*Seal, len(rows))
	if _, err := database.All(ctx, s.db, func(row database.Scanner) (id string, err error) {
		l := new(Seal)
		err = row.Scan(&id, &l.Shard, &l.Seq, &l.Prev, &l.Hash)
		seals[id] = l
		return id, err
	}, `SELECT event_id, shard, seq, prev, hash FROM audit_seal WHERE event_id `+database.InList(1), database.List(ids)); err != nil {
		return nil, err
	}
	list := make([]exported, len(rows))
	for i, r := range rows {
		list[i] = exported{r, seals[r.ID]}
	}
	return list, nil
}
