// Package processor measures what work costs where other processes take their
// share of the machine.
package processor

import "time"

// Spent returns the processor time that this process has used, in all its threads; the difference
// before and after a piece of work is its cost. It returns 0 if the system does not provide it.
func Spent() time.Duration { return spent() }
