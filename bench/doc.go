// Package bench holds the comparisons of bench/README.md: the kit next to its
// rivals, in one run, on one machine.
package bench
