package audit

import (
	"context"
	"testing"
	"time"

	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/database/databasetest"
)

func TestCheckpointsGoOnAfterAClockThatWasAhead(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		tr := newTrail(t, db)
		tr.now = tr.now.AddDate(1, 0, 0)
		tr.record(1)
		tr.seal()
		tr.now = tr.now.AddDate(-1, 0, 0)
		tr.record(1)
		tr.seal()
		c, _, err := tr.store.lastCheckpoint(context.Background())
		if err != nil || c.Seq != 2 {
			t.Errorf("checkpoint %d, %v, want the second", c.Seq, err)
		}
	})
}

func TestCutDoesNotBelieveAClockThatWasBehind(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		tr := newTrail(t, db)
		tr.record(1)
		tr.seal()
		today := tr.now
		tr.now = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)
		tr.record(1)
		tr.seal()
		if _, err := tr.Checkpoint(context.Background()); err != nil {
			t.Fatal(err)
		}
		tr.now = today.Add(time.Hour)
		if n, err := tr.Cut(context.Background(), tr.now.AddDate(-1, 0, 0)); n != 0 || err != nil {
			t.Errorf("%d events of today are gone, %v", n, err)
		}
	})
}
