// Package lazy makes package-level values when they are first used. All that a variable's
// initializer refers to, a function given to sync.OnceValue included, is linked into every program
// that imports the package; all that a function refers to is linked only where the function is
// called.
package lazy

import "sync"

// Value is a value that is made once. The zero Value is ready for use.
type Value[T any] struct {
	once sync.Once
	made T
}

// Get returns the value, which the first call makes. It is safe for concurrent use.
func (v *Value[T]) Get(make func() T) T {
	v.once.Do(func() { v.made = make() })
	return v.made
}
