// Package soak has no code of its own: its tests do in small what the campaigns
// of attack and kill against the kit did. Nodes under a mixed load are killed and stopped, disks
// fill up, bodies do not arrive, clocks are wrong; afterwards the tests check that every
// acknowledged effect is there, once and complete. They run for as long as KIT_TEST_SOAK says, a
// duration such as 1m, and not at all without it.
package soak
