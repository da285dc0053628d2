package leaderboard

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/kitbackend/kit/jobs"
)

const (
	// MaxFindings bounds the findings in a [Report].
	MaxFindings = 100

	verifySchedule = "41 3 * * *"
	rangeLevel     = levels     // in findings
	entryLevel     = levels + 1 // in findings
)

// Report is the result of [Leaderboard.Verify] or [Leaderboard.Rebuild].
type Report struct {
	Windows, Entries int64
	// Repaired counts the buckets that Rebuild has repaired.
	Repaired int64
	// Findings are the counts that were wrong, at most [MaxFindings].
	Findings []Finding
}

// Finding is one wrong count.
type Finding struct {
	Board string
	// Window is empty on a board without windows.
	Window string
	// Level is the level of the count table, from 0; one more than the last level for a range, two
	// more for an entry.
	Level int
	// Bucket is the bucket, or the bucket of the range or entry.
	Bucket int64
	// Stored is the stored count, Actual the number of entries, which for a range is counted to at
	// most one more than Stored; for an entry, they are the stored and the correct bucket.
	Stored, Actual int64
}

// Err returns the findings as one error, nil if there are none.
func (r Report) Err() error {
	if len(r.Findings) == 0 {
		return nil
	}
	return fmt.Errorf("leaderboard: %d findings, the first: %+v", len(r.Findings), r.Findings[0])
}

// Verify checks the counts of all boards and windows against the entries. It reads everything in
// chunks, each on one snapshot, so it may run concurrently with submissions.
func (l *Leaderboard) Verify(ctx context.Context) (Report, error) {
	var report Report
	for _, cfg := range l.cfg.Boards {
		windows, err := l.store.rankedWindows(ctx, cfg.Key)
		if err != nil {
			return report, err
		}
		for _, w := range windows {
			if err := l.examine(ctx, &examination{board: cfg.Key, window: w.id, openedAt: w.openedAt, report: &report}); err != nil {
				return report, err
			}
		}
	}
	return report, nil
}

// Rebuild recomputes the counts of a window that do not match its entries, as after rows were
// copied into the tables. It works in chunks with pauses between them, concurrently with reads and
// submissions; until it has ended, ranks are computed from the stored counts. Refuses with
// leaderboard/board_not_found.
func (l *Leaderboard) Rebuild(ctx context.Context, in View) (Report, error) {
	var report Report
	v, err := l.view(ctx, in)
	if err != nil {
		return report, err
	}
	id, ok, err := l.store.windowID(ctx, v.Key, v.openedAt)
	if err != nil {
		return report, err
	}
	if !ok {
		return report, l.missing(ctx, v, nil)
	}
	err = l.examine(ctx, &examination{board: v.Key, window: id, openedAt: v.openedAt, repair: true, report: &report})
	return report, err
}

// verifyPayload selects a window; if it is empty, all windows that may have changed recently are
// checked.
type verifyPayload struct {
	Board  string `json:"board"`
	Window string `json:"window"`
}

func (l *Leaderboard) verifyBinding() jobs.Binding {
	return jobs.Binding{Name: "LEADERBOARD_VERIFY", Schedule: verifySchedule, Timeout: longTime,
		Run: func(ctx context.Context, job jobs.Job) error {
			var p verifyPayload
			if err := json.Unmarshal(job.Payload, &p); err != nil {
				return jobs.Permanent(err)
			}
			if p.Board != "" {
				return l.rebuildLogged(ctx, View(p))
			}
			return l.rebuildRecent(ctx)
		}}
}

// rebuildRecent checks, of every board, the open window and the last one that was closed.
func (l *Leaderboard) rebuildRecent(ctx context.Context) error {
	now := l.host.DB.Now(ctx)
	for _, cfg := range l.cfg.Boards {
		b := l.boards[cfg.Key]
		if err := l.rebuildLogged(ctx, View{Board: b.Key}); err != nil {
			return err
		}
		closed, err := l.store.closedWindows(ctx, b.Key, b.openedAt(now), 1)
		if err != nil {
			return err
		}
		for _, openedAt := range closed {
			if err := l.rebuildLogged(ctx, View{b.Key, windowKey(openedAt)}); err != nil {
				return err
			}
		}
	}
	return nil
}

func (l *Leaderboard) rebuildLogged(ctx context.Context, v View) error {
	report, err := l.Rebuild(ctx, v)
	if found := report.Err(); found != nil {
		l.host.Log.ErrorContext(ctx, "leaderboard: counts were wrong", "board", v.Board, "window", v.Window,
			"repaired", report.Repaired, "error", found)
	}
	return err
}

// examination is one check of the counts of a window.
type examination struct {
	board            string
	window, openedAt int64
	repair           bool
	report           *Report
}

// examine goes through the levels from the last, whose buckets count entries, to the first, and
// checks each against the one below; then it checks the ranges, and the buckets that entries are
// stored with.
func (l *Leaderboard) examine(ctx context.Context, x *examination) error {
	x.report.Windows++
	for level := lastLevel; level >= 0; level-- {
		end := bucketOf(MaxScore)>>levelShift(level) + 1
		for from := bucketOf(-MaxScore) >> levelShift(level); from < end; {
			var p part
			if err := l.inspect(ctx, x, func(ctx context.Context) (wrong []wrongCount, err error) {
				p, err = l.store.inspectLevel(ctx, x.window, level, from, end)
				return p.wrong, err
			}); err != nil {
				return err
			}
			x.report.Entries += p.entries
			from = p.to
		}
	}
	for at, more := (place{key: firstKey(bucketOf(-MaxScore)) - 1}), true; more; {
		var next place
		if err := l.inspect(ctx, x, func(ctx context.Context) (wrong []wrongCount, err error) {
			wrong, next, more, err = l.store.inspectRanges(ctx, x.window, at)
			return wrong, err
		}); err != nil {
			return err
		}
		at = next
	}
	for at, more := "", true; more; {
		var next string
		if err := l.inspect(ctx, x, func(ctx context.Context) (wrong []wrongCount, err error) {
			wrong, next, more, err = l.store.inspectEntries(ctx, x.window, at)
			return wrong, err
		}); err != nil {
			return err
		}
		at = next
	}
	return nil
}

// inspect checks a part on a snapshot and, if something is wrong and is to be repaired, again under
// the lock of the board.
func (l *Leaderboard) inspect(ctx context.Context, x *examination, look func(context.Context) ([]wrongCount, error)) error {
	began := l.host.Now()
	var wrong []wrongCount
	var ranged bool
	see := func(ctx context.Context) (err error) {
		if wrong, err = look(ctx); err != nil || len(wrong) == 0 {
			return err
		}
		var kept bool
		if ranged, kept, err = l.store.kept(ctx, x.window); !kept {
			wrong = nil // it is being swept
		}
		return err
	}
	err := l.host.DB.Read(ctx, see)
	if err == nil && len(wrong) > 0 && x.repair {
		err = l.host.DB.InTx(ctx, func(ctx context.Context) error {
			if _, err := l.store.lock(ctx, x.board); err != nil {
				return err
			}
			if err := see(ctx); err != nil || len(wrong) == 0 {
				return err
			}
			return l.store.repair(ctx, x.window, ranged, wrong)
		})
	}
	if err != nil {
		return err
	}
	for _, w := range wrong {
		x.add(w)
	}
	if !x.repair {
		return nil
	}
	x.report.Repaired += int64(len(wrong))
	return l.pace(ctx, began)
}

func (x *examination) add(w wrongCount) {
	if w.uncut || len(x.report.Findings) == MaxFindings {
		return
	}
	f := Finding{Board: x.board, Level: w.level, Bucket: w.bucket, Stored: w.stored, Actual: w.actual}
	if x.openedAt != 0 {
		f.Window = windowKey(x.openedAt)
	}
	x.report.Findings = append(x.report.Findings, f)
}
