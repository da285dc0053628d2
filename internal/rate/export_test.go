package rate

// Buckets counts what the limiter remembers.
func Buckets(l *Limiter) int {
	n := 0
	for i := range l.shards {
		n += len(l.shards[i].buckets)
	}
	return n
}
