package modeltest

import "testing"

// Play plays one game and returns the first fault.
func (s Suite) Play(t *testing.T, seed uint64) error { return s.play(t, seed) }
