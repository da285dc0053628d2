// Package processor measures what work costs where other processes take their
// share of the machine.
package processor

import "time"

// Spent returns the time that this process has had of processors, in all its
// threads: what a piece of work costs is the difference before and after it. It
// returns 0 where the system does not tell.
func Spent() time.Duration { return spent() }
