package rating

import "context"

// sweepChunk bounds the keys that one statement removes.
const sweepChunk = 1000

// sweep removes the keys whose time has passed.
func (s store) sweep(ctx context.Context) error {
	for {
		rows, err := s.db.Exec(ctx, `DELETE FROM rating_key WHERE (game, key) IN
			(SELECT game, key FROM rating_key WHERE expires_at <= $1 LIMIT $2)`, s.db.Now(ctx).UnixMilli(), sweepChunk)
		if err != nil || rows < sweepChunk {
			return err
		}
	}
}
