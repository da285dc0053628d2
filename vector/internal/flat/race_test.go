package flat

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
)

// TestReadersAndWriters runs searches, a training and changes concurrently; rows whose removal was
// published are not found.
func TestReadersAndWriters(t *testing.T) {
	rows, asked := clustered(rand.New(rand.NewPCG(5, 6)), MinTrained+1000, 64)
	s := fill(Cosine, rows[:MinTrained])
	var wg sync.WaitGroup
	wg.Go(func() {
		for i, row := range rows[MinTrained:] {
			id, revision := fmt.Sprintf("new-%d", i), int64(MinTrained+2*i+1)
			s.Apply([]Row{{ID: id, Revision: revision, Vector: row}}, nil)
			s.Publish()
			if i%2 == 0 {
				continue
			}
			s.Apply(nil, []Removal{{ID: id, Revision: revision + 1}})
			s.Publish()
			hits, _ := s.View().Search(row, 3, nil, false)
			if slices.ContainsFunc(hits, func(h Hit) bool { return h.ID == id }) {
				t.Errorf("%s was removed and is found", id)
			}
		}
	})
	wg.Go(func() { s.Train() })
	for _, query := range asked[:8] {
		wg.Go(func() {
			for range 5 {
				if hits, _ := s.View().Search(query, 10, nil, false); len(hits) != 10 {
					t.Errorf("%d hits", len(hits))
				}
			}
		})
	}
	wg.Wait()
	if v := s.View(); v.Len() != MinTrained+500 || v.Len() != v.All().Count() {
		t.Errorf("%d rows live, %d by the bitmap", v.Len(), v.All().Count())
	}
}
