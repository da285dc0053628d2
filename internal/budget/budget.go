// Package budget is for fuzz targets and tests of decoders: it holds work on
// input from outside to a time that grows with the input's length, not with its
// square. The time measured is the elapsed or the processor time, whichever is less, so that
// neither a busy machine nor parallel tests count.
package budget

import (
	"testing"
	"time"

	"github.com/kitbackend/kit/internal/processor"
)

// The budget of an input: a fixed part for every call, and a part for each byte. A slow machine and
// the race detector stay far below; the square of 64 KiB, at a nanosecond each, is four seconds.
const (
	flat    = 500 * time.Millisecond
	perByte = 10 * time.Microsecond
)

// Hold runs fn, which works on an input of size bytes, and fails the test when
// that took too long, three times over.
func Hold(t testing.TB, size int, fn func()) {
	t.Helper()
	limit := flat + time.Duration(size)*perByte
	took := limit + 1
	for range 3 {
		began, spent := time.Now(), processor.Spent()
		fn()
		if took = min(time.Since(began), processor.Spent()-spent); took <= limit {
			return
		}
	}
	t.Fatalf("%d bytes took %v, over the budget of %v", size, took, limit)
}
