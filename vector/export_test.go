package vector

import (
	"context"
	"time"

	"github.com/kitbackend/kit/vector/internal/flat"
)

// KeepRemovals is keepRemovals.
const KeepRemovals = keepRemovals

// PreparePause is preparePause.
const PreparePause = preparePause

// ByFilter returns which of some metadata a filter matches: as evaluated by the engine, and by a
// walk through documents.
func ByFilter(f Filter, keys []string, metadata []map[string]any) (fast, slow []bool, err error) {
	c, err := parseFilter(f, keys)
	if err != nil || c == nil {
		return nil, nil, err
	}
	set := flat.New(flat.Cosine, 1, len(keys))
	var rows []flat.Row
	for i, m := range metadata {
		rows = append(rows, flat.Row{ID: string(rune('a' + i)), Revision: 1, Vector: []float32{1}, Values: valuesOf(m, keys)})
		slow = append(slow, c.holds(valuesOf(m, keys)))
	}
	set.Apply(rows, nil)
	set.Publish()
	among := c.rows(set.View())
	for i := range metadata {
		fast = append(fast, among[i/64]>>(i%64)&1 == 1)
	}
	return fast, slow, nil
}

// WithoutWaiting returns a remote embedder that reports its pauses instead of waiting.
func WithoutWaiting(e Embedder, pause func(time.Duration)) Embedder {
	e.(*remote).wait = func(ctx context.Context, d time.Duration) error { pause(d); return ctx.Err() }
	return e
}
