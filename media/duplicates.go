package media

import (
	"cmp"
	"context"
	"math/bits"
	"slices"
	"strconv"
	"strings"

	"github.com/kitbackend/kit/capability"
)

const (
	defaultDistance = 8
	defaultMatches  = 20
	looksAtOnce     = 5000
)

// Duplicates returns the ready items of an owner that have the same bytes or look alike. It reads
// the hashes of all of the owner's pictures from an index. Refuses with media/not_found,
// media/not_ready for an item that is not processed, and kit/invalid_request.
func (m *Media) Duplicates(ctx context.Context, ownerID string, l Look) (Matches, error) {
	none := Matches{Matches: []Match{}}
	q, err := m.question(ctx, ownerID, l)
	if err != nil {
		return none, err
	}
	var found []match
	exact := map[string]bool{}
	for _, sum := range q.sums {
		same, err := m.store.allBySum(ctx, ownerID, sum, q.but, q.limit)
		if err != nil {
			return none, err
		}
		for _, i := range same {
			if !exact[i.ID] {
				exact[i.ID] = true
				found = append(found, match{id: i.ID, exact: true})
			}
		}
	}
	if q.phash != 0 {
		if found, err = m.alike(ctx, ownerID, q, exact, found); err != nil {
			return none, err
		}
	}
	return m.matches(ctx, best(found, q.limit))
}

// match is an item that matches.
type match struct {
	id       string
	distance int
	exact    bool
}

// best returns the best matches, exact ones before others.
func best(found []match, limit int) []match {
	slices.SortFunc(found, func(a, b match) int {
		if a.exact != b.exact {
			if a.exact {
				return -1
			}
			return 1
		}
		return cmp.Or(cmp.Compare(a.distance, b.distance), strings.Compare(a.id, b.id))
	})
	return found[:min(len(found), limit)]
}

// question is a checked Look.
type question struct {
	sums     []string
	phash    uint64
	but      string // the item to compare with
	distance int
	limit    int
}

func (m *Media) question(ctx context.Context, ownerID string, l Look) (q question, err error) {
	q.distance, q.limit = defaultDistance, cmp.Or(l.Limit, defaultMatches)
	if l.MaxDistance != nil {
		q.distance = *l.MaxDistance
	}
	given := 0
	for _, text := range []string{l.ID, l.SHA256, l.PHash} {
		if text != "" {
			given++
		}
	}
	switch {
	case given != 1:
		return q, capability.ErrInvalidRequest.Saying("Send one of id, sha256 and phash.")
	case q.distance < 0 || q.distance > MaxDistance:
		return q, capability.ErrInvalidRequest.Saying("maxDistance is 0 to %d.", MaxDistance)
	case q.limit < 1 || q.limit > MaxMatches:
		return q, capability.ErrInvalidRequest.Saying("limit is 1 to %d.", MaxMatches)
	case l.SHA256 != "":
		if err := capability.CheckText("sha256", l.SHA256, 64, 64); err != nil {
			return q, err
		}
		q.sums = []string{strings.ToLower(l.SHA256)}
		return q, nil
	case l.PHash != "":
		q.phash, err = strconv.ParseUint(l.PHash, 16, 64)
		if err != nil || len(l.PHash) != 16 {
			return q, capability.ErrInvalidRequest.Saying("phash has 16 hexadecimal digits.")
		}
		return q, nil
	}
	i, err := m.own(ctx, ownerID, l.ID)
	if err != nil {
		return q, err
	}
	if i.Status != StatusReady {
		return q, ErrNotReady
	}
	q.but, q.phash, q.sums = i.ID, i.phash, []string{i.source}
	if i.sum != i.source {
		q.sums = append(q.sums, i.sum)
	}
	return q, nil
}

// alike adds the items whose hashes differ by at most the distance.
func (m *Media) alike(ctx context.Context, ownerID string, q question, exact map[string]bool, found []match) ([]match, error) {
	for after := ""; ; {
		page, err := m.store.looks(ctx, ownerID, after, looksAtOnce)
		if err != nil || len(page) == 0 {
			return found, err
		}
		for _, l := range page {
			distance := bits.OnesCount64(l.phash ^ q.phash)
			if distance <= q.distance && l.id != q.but && !exact[l.id] {
				found = append(found, match{id: l.id, distance: distance})
			}
		}
		found = best(found, q.limit)
		after = page[len(page)-1].id
	}
}

// matches returns the items of matches, in their order.
func (m *Media) matches(ctx context.Context, found []match) (Matches, error) {
	out := Matches{Matches: []Match{}}
	ids := make([]string, 0, len(found))
	for _, f := range found {
		ids = append(ids, f.id)
	}
	items, err := m.store.items(ctx, ids)
	if err != nil {
		return out, err
	}
	if err := m.complete(ctx, items); err != nil {
		return out, err
	}
	byID := make(map[string]Item, len(items))
	for _, i := range items {
		byID[i.ID] = i
	}
	for _, f := range found {
		if i, ok := byID[f.id]; ok && i.Status == StatusReady {
			out.Matches = append(out.Matches, Match{Item: i, Distance: f.distance, Exact: f.exact})
		}
	}
	return out, nil
}
