package audit

import (
	"context"
	"testing"

	"github.com/kitbackend/kit/database/databasetest"
)

// TestTwoNodesCutAtOnceAtDifferentCheckpoints checks that the proof of the later cut covers both.
func TestTwoNodesCutAtOnceAtDifferentCheckpoints(t *testing.T) {
	dbs := databasetest.Shared(t, 2)
	tr := newTrail(t, dbs[0])
	ctx := context.Background()
	other := newTrail(t, dbs[1])
	tr.record(1)
	tr.seal()
	first, err := tr.Checkpoint(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := tr.Record(ctx, Event{Action: "test/done", Subject: Target{"board", "daily"}}); err != nil {
		t.Fatal(err)
	}
	tr.seal()
	second, err := tr.Checkpoint(ctx)
	if err != nil || second.Seq != 2 {
		t.Fatal(second.Seq, err)
	}
	later := make(chan error, 1)
	if err := dbs[0].InTx(ctx, func(ctx context.Context) error {
		if err := tr.setCut(ctx, first); err != nil {
			return err
		}
		go func() { later <- other.setCut(context.Background(), second) }()
		return databasetest.Waits(ctx, dbs[0], later)
	}); err != nil {
		t.Fatal(err)
	}
	if err := <-later; err != nil {
		t.Fatal(err)
	}
	if report, err := tr.Verify(ctx); err != nil || report.Break != nil {
		t.Errorf("%v %v, want a whole trail", report.Break, err)
	}
}
