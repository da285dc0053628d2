package rating

import (
	"context"
	"math"

	"github.com/kitbackend/kit/capability"
)

// maxBuckets bounds the histogram of a pool.
const maxBuckets = 32

// distribution is how many players a pool has, and of which skill.
type distribution struct {
	Players int64 `json:"players"`
	// Min and Max are the skills that the histogram reaches from and to, in
	// steps of one width.
	Min       float64 `json:"min"`
	Max       float64 `json:"max"`
	Histogram []int64 `json:"histogram"`
}

// health tells of each pool how many players it has and how skilled they are.
func (r *Rating) health() []capability.HealthKey {
	var keys []capability.HealthKey
	for _, name := range r.poolNames() {
		keys = append(keys, capability.HealthKey{Key: "pool." + name, Read: func(ctx context.Context) (any, error) {
			return r.distribution(ctx, r.pools[name])
		}})
	}
	return keys
}

// distribution counts bucket by bucket, without keeping a snapshot of a large
// pool from being cleaned up: players who move meanwhile may be counted twice
// or not at all.
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

// edges are where the buckets meet; the outer two are open.
func (d distribution) edges() []float64 {
	edges := []float64{math.Inf(-1)}
	if d.Max > d.Min {
		for i := 1; i < maxBuckets; i++ {
			edges = append(edges, d.Min+(d.Max-d.Min)*float64(i)/maxBuckets)
		}
	}
	return append(edges, math.Inf(1))
}
