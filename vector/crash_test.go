package vector_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/internal/processtest"
	"github.com/kitbackend/kit/vector"
)

var killed = vector.Config{Indexes: []vector.Index{{Name: "x", Dimensions: 2, VectorsOnly: true}}}

const crashVariable = "VECTOR_TEST_CRASH"

// TestMain makes the test binary the node that is killed, if an environment variable is set.
func TestMain(m *testing.M) {
	if address := os.Getenv(crashVariable); address != "" {
		write(processtest.Open(address))
	}
	os.Exit(m.Run())
}

// write upserts and deletes until it is killed, and prints what was acknowledged: three documents
// at a time, of which the last is deleted again.
func write(db *database.DB, err error) {
	var v *vector.Vector
	if err == nil {
		v, err = vector.New(capability.Host{DB: db, Now: time.Now, Log: slog.New(slog.DiscardHandler)}, killed, vector.Peers{})
	}
	for i, run := 0, time.Now().UnixNano(); err == nil; i++ {
		ctx, space := context.Background(), vector.Space{Index: "x", OwnerID: "ada"}
		id := func(n int) string { return fmt.Sprintf("%d-%d-%d", run, i, n) }
		var list []vector.Document
		for n := range 3 {
			list = append(list, vector.Document{ID: id(n), Vector: []float32{1, float32(i + 1)}})
		}
		if _, err = v.Upsert(ctx, space, list...); err == nil {
			fmt.Println("put", id(0))
			if err = v.Delete(ctx, space, id(2)); err == nil {
				fmt.Println("deleted", id(2))
			}
		}
	}
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

// TestKilled checks that the acknowledged writes of a killed node are found, its deletions are not,
// and no upsert is stored in part.
func TestKilled(t *testing.T) { processtest.Each(t, survives) }

func survives(t *testing.T, address string) {
	with := func(fn func(n *node)) {
		db := must(processtest.Open(address))(t)
		fn(open(t, db, killed, vector.Peers{}))
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
	}
	with(func(*node) {})
	var lines []string
	for range 3 {
		lines = append(lines, processtest.Kill(t, processtest.Again(crashVariable, address), 20)...)
	}
	with(func(n *node) {
		ctx, space := t.Context(), vector.Space{Index: "x", OwnerID: "ada"}
		for _, line := range lines {
			what, id, _ := strings.Cut(line, " ")
			group := strings.TrimSuffix(id, id[len(id)-1:])
			_, err := n.Get(ctx, space, id)
			switch what {
			case "put":
				if second, err2 := n.Get(ctx, space, group+"1"); err != nil || err2 != nil {
					t.Errorf("%s was acknowledged: %v, %v", id, err, err2)
				} else if a := must(n.Query(ctx, space, vector.Query{Vector: second.Vector, TopK: 12}))(t); !slices.Contains(ids(a), id) {
					t.Errorf("%s is not found", id)
				}
			case "deleted":
				want(t, err, vector.ErrDocumentNotFound)
			}
		}
		if count, found := must(n.Count(ctx, space, nil))(t), len(lines); count < int64(found) {
			t.Errorf("%d documents after %d acknowledgements", count, found)
		}
		var counted int64
		if err := n.db.QueryRow(ctx, `SELECT documents FROM vector_partition`).Scan(&counted); err != nil || counted != must(n.Count(ctx, space, nil))(t) {
			t.Errorf("the partition counts %d: %v", counted, err)
		}
	})
}
