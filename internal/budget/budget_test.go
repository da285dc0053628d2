package budget_test

import (
	"testing"

	"github.com/kitbackend/kit/internal/budget"
)

func TestWithinTheBudgetRunsOnce(t *testing.T) {
	runs := 0
	budget.Hold(t, 1<<20, func() { runs++ })
	if runs != 1 {
		t.Errorf("ran %d times, want once", runs)
	}
}
