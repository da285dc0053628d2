package ledger

import "github.com/kitbackend/kit/internal/queue/queuetest"

// Gather makes calls queue up in their order and runs them as one batch.
func (l *Ledger) Gather(calls ...func()) { queuetest.Gather(l.queue, calls...) }

// Rules lists the names of the rules that Verify holds the ledger to.
func Rules() (names []string) {
	for _, rule := range rules {
		names = append(names, rule.name)
	}
	return names
}

// BalancesSQL is the text of what Balances reads.
var BalancesSQL = manySQL
