package rating

import (
	"context"
	"encoding/json"
	"math"

	"github.com/kitbackend/kit/capability"
)

// maxBuckets bounds the histogram of a pool.
const maxBuckets = 32

// distribution is the number of players in a pool and the histogram of their skills.
type distribution struct {
	Players int64 `json:"players"`
	// Min and Max are the bounds of the histogram, whose buckets have the same width.
	Min       float64 `json:"min"`
	Max       float64 `json:"max"`
	Histogram []int64 `json:"histogram"`
	// AsOf is when the players were counted, if that was not now.
	AsOf capability.Time `json:"asOf,omitzero"`
}

// maxCounted is how many players of a pool are counted when health is read. A job counts those of
// larger pools.
const maxCounted = 10_000

// health returns the distribution of each pool.
func (r *Rating) health() []capability.HealthKey {
	var keys []capability.HealthKey
	for _, name := range r.poolNames() {
		keys = append(keys, capability.HealthKey{Key: "pool." + name, Read: func(ctx context.Context) (any, error) {
			return r.shown(ctx, r.pools[name])
		}})
	}
	return keys
}

// shown returns the distribution of a pool without reading more than maxCounted+1 rows.
func (r *Rating) shown(ctx context.Context, p *pool) (d distribution, err error) {
	n, err := r.store.players(ctx, p, maxCounted+1)
	if err != nil || n <= maxCounted {
		if err == nil {
			d, err = r.distribution(ctx, p)
		}
		return d, err
	}
	d = distribution{Players: n, Histogram: []int64{}} // a lower bound, until the job has run
	if _, err := r.store.check(ctx, p); err != nil {
		return d, err
	}
	kept, err := r.store.keptDistribution(ctx, p.name)
	if err != nil || kept == "" {
		return d, err
	}
	return d, json.Unmarshal([]byte(kept), &d)
}

// count is the job that counts the players of large pools.
func (r *Rating) count(ctx context.Context) error {
	for _, name := range r.poolNames() {
		p := r.pools[name]
		n, err := r.store.players(ctx, p, maxCounted+1)
		if err != nil {
			return err
		}
		if n <= maxCounted {
			continue
		}
		at := r.db.Now(ctx)
		d, err := r.distribution(ctx, p)
		if err != nil {
			return err
		}
		d.AsOf = capability.Millis(at.UnixMilli())
		value, err := json.Marshal(d)
		if err != nil {
			return err
		}
		if err := r.store.keepDistribution(ctx, name, string(value)); err != nil {
			return err
		}
	}
	return nil
}

// distribution counts bucket by bucket, so that no snapshot of a large pool is held that would
// delay its cleanup: players whose skill changes meanwhile may be counted twice or not at all.
func (r *Rating) distribution(ctx context.Context, p *pool) (distribution, error) {
	d := distribution{Histogram: []int64{}}
	if _, err := r.store.check(ctx, p); err != nil {
		return d, err
	}
	least, greatest, ok, err := r.store.extent(ctx, p)
	if err != nil || !ok {
		return d, err
	}
	d.Min, d.Max = least, greatest
	edges := d.edges()
	for i, from := range edges[:len(edges)-1] {
		n, err := r.store.count(ctx, p, from, edges[i+1])
		if err != nil {
			return d, err
		}
		d.Histogram = append(d.Histogram, n)
		d.Players += n
	}
	return d, nil
}

// edges returns the bounds of the buckets; the first and the last bucket are unbounded.
func (d distribution) edges() []float64 {
	edges := []float64{math.Inf(-1)}
	if d.Max > d.Min {
		for i := 1; i < maxBuckets; i++ {
			edges = append(edges, d.Min+(d.Max-d.Min)*float64(i)/maxBuckets)
		}
	}
	return append(edges, math.Inf(1))
}
