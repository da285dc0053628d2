// Package bench contains the benchmarks of bench/README.md, which compare the kit with its
// alternatives in one run on one machine.
package bench
