// Package lazy makes values of packages when they are first used. What a variable's
// initializer names, a function given to sync.OnceValue included, is linked into every
// program that imports the package; what a function names, only where it is called.
package lazy

import "sync"

// Value is made once. Its zero value is ready for use.
type Value[T any] struct {
	once sync.Once
	made T
}

// Get returns the value, which the first call makes. It is for concurrent use.
func (v *Value[T]) Get(make func() T) T {
	v.once.Do(func() { v.made = make() })
	return v.made
}
