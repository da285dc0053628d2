package controlplane_test

import (
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/controlplane/controlplanetest"
	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/database/databasetest"
)

// BenchmarkVerify measures the verification and claim of one call, without HTTP and without the
// audit event; p50-us is the median in microseconds. commit is a bare insert on the same database,
// for comparison with the file.
func BenchmarkVerify(b *testing.B) {
	for name, open := range map[string]func() *database.DB{
		"memory": func() *database.DB {
			db, err := database.OpenMemory()
			if err != nil {
				b.Fatal(err)
			}
			b.Cleanup(func() { _ = db.Close() })
			return db
		},
		"file": func() *database.DB { return databasetest.File(b) },
	} {
		b.Run(name, func(b *testing.B) { benchVerify(b, open()) })
		b.Run(name+"/commit", func(b *testing.B) { benchCommit(b, open()) })
	}
}

func benchVerify(b *testing.B, db *database.DB) {
	w := controlplanetest.New(b, db, controlplanetest.Options{Others: []capability.Capability{things()}})
	f, machines := forger{w.Identity}, w.Machines()
	tokens := make([]string, b.N)
	for i := range tokens {
		tokens[i] = f.sign(f.header(), f.claims(w.Clock.Now()))
	}
	median(b, func(i int) {
		r := httptest.NewRequest("GET", target, nil)
		r = r.WithContext(capability.WithRequestInfo(r.Context(), &capability.RequestInfo{Method: "GET", Route: target}))
		r.Header.Set("Authorization", "Bearer "+tokens[i])
		if _, err := machines.Verify(r, func() ([]byte, error) { return nil, nil }); err != nil {
			b.Fatal(err)
		}
	})
}

func benchCommit(b *testing.B, db *database.DB) {
	if _, err := db.Exec(b.Context(), `CREATE TABLE bare (id BIGINT PRIMARY KEY)`); err != nil {
		b.Fatal(err)
	}
	median(b, func(i int) {
		if _, err := db.Exec(b.Context(), `INSERT INTO bare (id) VALUES ($1)`, i); err != nil {
			b.Fatal(err)
		}
	})
}

func median(b *testing.B, op func(i int)) {
	took := make([]time.Duration, b.N)
	b.ResetTimer()
	for i := range b.N {
		start := time.Now()
		op(i)
		took[i] = time.Since(start)
	}
	b.StopTimer()
	slices.Sort(took)
	b.ReportMetric(float64(took[b.N/2].Nanoseconds())/1000, "p50-us")
}
