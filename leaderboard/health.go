package leaderboard

import (
	"context"

	"github.com/kitbackend/kit/capability"
)

const (
	// maxHealth is how many boards, the first of the configuration, are in the health values.
	maxHealth = 24
	// maxBars is the largest number of bars of a histogram.
	maxBars = 32
	// maxScan bounds the counts that a histogram is computed from.
	maxScan = 512
)

// Histogram is the distribution of the scores of the visible entries of an open window: Entries[i]
// of them are in the range from From[i] up to From[i+1]. Bars have the same width up to 1024 on
// either side of zero, and grow with the scores beyond.
type Histogram struct {
	From    []int64 `json:"from"`
	Entries []int64 `json:"entries"`
}

func (l *Leaderboard) health() []capability.HealthKey {
	boards := l.cfg.Boards[:min(len(l.cfg.Boards), maxHealth)]
	keys := []capability.HealthKey{{Key: "entries", Read: func(ctx context.Context) (any, error) {
		totals := make(map[string]int64, len(boards))
		for _, cfg := range boards {
			n, err := l.store.total(ctx, cfg.Key, l.boards[cfg.Key].openedAt(l.host.DB.Now(ctx)))
			if err != nil {
				return nil, err
			}
			totals[cfg.Key] = n
		}
		return totals, nil
	}}}
	for _, cfg := range boards {
		b := l.boards[cfg.Key]
		keys = append(keys, capability.HealthKey{Key: "scores." + b.Key, Read: func(ctx context.Context) (any, error) {
			return l.histogram(ctx, b)
		}})
	}
	return keys
}

// histogram merges the counts of the finest level that has few enough buckets into bars.
func (l *Leaderboard) histogram(ctx context.Context, b *board) (h Histogram, err error) {
	h = Histogram{From: []int64{}, Entries: []int64{}}
	window, ok, err := l.store.windowID(ctx, b.Key, b.openedAt(l.host.DB.Now(ctx)))
	if err != nil || !ok {
		return h, err
	}
	first, last, ok, err := l.store.extent(ctx, window)
	if err != nil || !ok {
		return h, err
	}
	level := lastLevel
	for level > 0 && (last-first)>>levelShift(level) >= maxScan {
		level--
	}
	shift := levelShift(level)
	counts, err := l.store.filled(ctx, window, level, first>>shift, last>>shift)
	if err != nil {
		return h, err
	}
	width := (last>>shift-first>>shift)/maxBars + 1
	bars := (last>>shift-first>>shift)/width + 1
	h.From, h.Entries = make([]int64, bars), make([]int64, bars)
	for i := range h.From {
		h.From[i] = max(-MaxScore, firstKey((first>>shift+int64(i)*width)<<shift))
	}
	for bucket, n := range counts {
		h.Entries[(bucket-first>>shift)/width] += n
	}
	if b.sign() < 0 {
		h.turn(min(MaxScore+1, firstKey((first>>shift+bars*width)<<shift)))
	}
	return h, nil
}

// turn converts a histogram of keys, which end before an end, to one of scores.
func (h *Histogram) turn(end int64) {
	n := len(h.From)
	from, entries := make([]int64, n), make([]int64, n)
	for i := range n {
		until := end
		if i+1 < n {
			until = h.From[i+1]
		}
		from[n-1-i], entries[n-1-i] = 1-until, h.Entries[i]
	}
	h.From, h.Entries = from, entries
}
