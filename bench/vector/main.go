// Vector compares the vector engine with other vector search: a naive loop, chromem-go, sqlite-vec
// on the same SQLite library, and pgvector if -pgvector names a PostgreSQL database that has it. It
// is a separate module, so that these are not dependencies of the kit.
//
//	cd bench/vector && go run .
//	go run . -data hard -n 1000000 -parts kit,naive
//
// Times are the latency of one caller, and the processor time of the program, which a busy machine
// affects less. Those of the kit are of Vector.Query: reading the revision of the partition,
// searching, and reading the results.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/kitbackend/kit/internal/processor"
)

const dimensions, wanted = 384, 10

var (
	count       = flag.Int("n", 100_000, "vectors")
	kind        = flag.String("data", "clustered,hard", "kinds of data: clustered, hard, gaussian, uniform")
	parts       = flag.String("parts", "naive,kit,chromem,sqlite-vec,pgvector", "what to measure")
	seconds     = flag.Float64("seconds", 2, "how long a measurement of the kit lasts")
	slow        = flag.Int("slow", 5, "how many queries the slower rivals get")
	pgvectorURL = flag.String("pgvector", "", "URL of an empty PostgreSQL database with pgvector")
	file        = flag.String("file", "", "database file of the kit; empty is a temporary one")
)

// rival is one implementation of vector search.
type rival interface {
	name() string
	// load stores the vectors; row i has the metadata n = i % 100.
	load(ctx context.Context, rows [][]float32) error
	// search returns the rows nearest by cosine. If below is not 0, it returns only rows with a
	// smaller n.
	search(ctx context.Context, query []float32, below int) ([]int, error)
	// quick reports whether a search takes about a millisecond.
	quick() bool
	close()
}

func main() {
	flag.Parse()
	load, _ := os.ReadFile("/proc/loadavg")
	fmt.Printf("%d x %d, load of the machine %s", *count, dimensions, load)
	for kind := range strings.SplitSeq(*kind, ",") {
		if err := compare(context.Background(), kind); err != nil {
			log.Fatal(err)
		}
	}
}

func compare(ctx context.Context, kind string) error {
	rows, queries, err := data(kind, *count)
	if err != nil {
		return err
	}
	truth := make([]float64, len(queries))
	for i, q := range queries {
		truth[i] = last(rows, q)
	}
	fmt.Printf("\n%-22s %10s %10s %10s %8s %10s\n", kind, "load s", "wait ms", "cpu ms", "recall", "B/document")
	for _, r := range rivals() {
		if !slices.Contains(strings.Split(*parts, ","), r.name()) {
			continue
		}
		if err := measure(ctx, r, rows, queries, truth); err != nil {
			return fmt.Errorf("%s: %w", r.name(), err)
		}
		r.close()
	}
	return nil
}

func measure(ctx context.Context, r rival, rows, queries [][]float32, truth []float64) error {
	before := heap()
	began := time.Now()
	if err := r.load(ctx, rows); err != nil {
		return err
	}
	if _, err := r.search(ctx, queries[0], 0); err != nil { // loads what the first query loads
		return err
	}
	loaded := time.Since(began)
	bytes := float64(heap()-before) / float64(len(rows))
	found, asked := 0, queries
	if !r.quick() {
		asked = queries[:min(*slow, len(queries))]
	}
	for i, q := range asked {
		ids, err := r.search(ctx, q, 0)
		if err != nil {
			return err
		}
		for _, id := range ids {
			if dot(rows[id], q) >= truth[i]-1e-6 {
				found++
			}
		}
	}
	wait, used, err := timed(r, func(i int) error {
		_, err := r.search(ctx, asked[i%len(asked)], 0)
		return err
	}, len(asked))
	if err != nil {
		return err
	}
	fmt.Printf("%-22s %10.1f %10.3f %10.3f %8.4f %10.0f\n", r.name(), loaded.Seconds(), ms(wait), ms(used),
		float64(found)/float64(wanted*len(asked)), bytes)
	for _, below := range []int{1, 10, 50} {
		wait, used, err := timed(r, func(i int) error {
			_, err := r.search(ctx, asked[i%len(asked)], below)
			return err
		}, len(asked))
		if err != nil {
			return err
		}
		fmt.Printf("%-22s %10s %10.3f %10.3f\n", fmt.Sprintf("  filter keeps %d %%", below), "", ms(wait), ms(used))
	}
	if !r.quick() {
		return nil
	}
	perSecond, err := callers(8, func(i int) error {
		_, err := r.search(ctx, asked[i%len(asked)], 0)
		return err
	})
	if err != nil {
		return err
	}
	fmt.Printf("%-22s %.0f queries/s\n", "  8 callers", perSecond)
	if w, ok := r.(*kitRival); ok {
		return w.upserts(ctx, rows)
	}
	return nil
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// timed calls fn sequentially and returns the median wall time and the mean processor time of a
// call.
func timed(r rival, fn func(i int) error, least int) (wait, used time.Duration, err error) {
	began, from := time.Now(), processor.Spent()
	var waits []time.Duration
	for i := 0; i < least || r.quick() && time.Since(began).Seconds() < *seconds; i++ {
		at := time.Now()
		if err := fn(i); err != nil {
			return 0, 0, err
		}
		waits = append(waits, time.Since(at))
	}
	used = (processor.Spent() - from) / time.Duration(len(waits))
	slices.Sort(waits)
	return waits[len(waits)/2], used, nil
}

// callers calls fn from n goroutines and returns the number of calls per second.
func callers(n int, fn func(i int) error) (float64, error) {
	began := time.Now()
	var wg sync.WaitGroup
	calls, errs := make([]int, n), make([]error, n)
	for c := range n {
		wg.Go(func() {
			for i := c; time.Since(began).Seconds() < *seconds && errs[c] == nil; i++ {
				errs[c] = fn(i)
				calls[c]++
			}
		})
	}
	wg.Wait()
	total := 0
	for c := range n {
		if errs[c] != nil {
			return 0, errs[c]
		}
		total += calls[c]
	}
	return float64(total) / time.Since(began).Seconds(), nil
}
