package jobs

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/kitbackend/kit/internal/text"
)

// maxError bounds the stored text of an error in bytes.
const maxError = 1024

// ErrLeaseLost is the cause of a Run's context, and what [Complete] returns, when another node has taken the job over
// or an operator has ended it.
var ErrLeaseLost = errors.New("jobs: the lease of this run was lost")

type snoozed struct{ d time.Duration }

func (s *snoozed) Error() string { return "snoozed for " + s.d.String() }

type cancelled struct{ cause error }

func (c *cancelled) Error() string { return fmt.Sprintf("cancelled: %v", c.cause) }
func (c *cancelled) Unwrap() error { return c.cause }

type permanent struct{ cause error }

func (p *permanent) Error() string { return fmt.Sprintf("permanent: %v", p.cause) }
func (p *permanent) Unwrap() error { return p.cause }

// Snooze returns the error by which a Run asks to run again after d, at least a millisecond,
// without spending an attempt.
func Snooze(d time.Duration) error { return &snoozed{max(d, time.Millisecond)} }

// Cancel returns the error by which a Run ends the job as canceled, because its work is no longer
// wanted.
func Cancel(cause error) error { return &cancelled{cause} }

// Permanent returns the error by which a Run has the job discarded at once, because no retry can
// succeed.
func Permanent(cause error) error { return &permanent{cause} }

// defaultBackoff is min(1 h, 2^attempt s), give or take a fifth, so that jobs that failed together
// are not retried together.
func defaultBackoff(attempt int) time.Duration {
	pause := time.Hour
	if attempt < 12 {
		pause = min(pause, time.Second<<attempt)
	}
	return pause*4/5 + rand.N(pause*2/5)
}

// reason returns the stored form of an error.
func reason(err error) string {
	whole := err.Error()
	return text.Storable(whole[:min(len(whole), maxError)])
}
