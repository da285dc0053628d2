package ledger

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/internal/queue"
)

const batchSize = 256 // operations in one transaction at most

// call is an operation whose caller waits.
type call = queue.Call[*operation, outcome]

// newQueue shares transactions between concurrent callers. A batch reads and
// writes an account once for all its operations.
func newQueue(s store) *queue.Queue[*operation, outcome] {
	return &queue.Queue[*operation, outcome]{Run: s.run, Size: batchSize, Leaders: s.leaders}
}

// leaders is how many batches are under way at once.
func (s store) leaders() int {
	if s.db.Dialect() == database.PostgreSQL {
		return 2 // one decides while the other commits
	}
	return 1
}

// run brings calls to their outcomes. What the database refuses as a whole,
// because another node opened an account or took a ref at the same instant, is
// done again one by one, so that no call fails for its neighbours.
func (s store) run(ctx context.Context, calls []*call) int {
	var err error
	alone := len(calls) == 1
	if !alone {
		err = s.db.InTx(ctx, func(ctx context.Context) error { return s.applyAll(ctx, calls) })
		var violation *database.ConstraintError
		alone = errors.As(err, &violation)
	}
	for _, c := range calls {
		switch {
		case alone:
			c.Out, c.Err = s.alone(ctx, c.Op)
		case err != nil:
			c.Out, c.Err = outcome{}, err
		}
	}
	return len(calls)
}

// batch is the part of the ledger that a batch of operations sees and changes.
type batch struct {
	now      time.Time
	accounts map[AccountKey]*Account // those ever opened
	holds    map[string]*Hold
	known    map[string]Transaction

	stored  map[AccountKey]int64 // sequences of the accounts that were there before
	rows    []Transaction        // new
	opened  []*Hold              // new
	settled []*Hold              // that were there before
}

// applyAll reads what all operations concern, decides them in memory by the
// rules that hold alone too, and writes what has changed, an account once
// however many operations moved it. It locks and writes in one order everywhere
// (holds, accounts, new accounts, refs; each by key), so that transactions never
// wait for each other in a circle.
func (s store) applyAll(ctx context.Context, calls []*call) error {
	b, err := s.load(ctx, calls)
	if err != nil {
		return err
	}
	for _, c := range calls {
		c.Out, c.Err = b.apply(c.Op)
	}
	return s.save(ctx, b)
}

// apply decides one operation on what those before it left.
func (b *batch) apply(op *operation) (outcome, error) {
	if op.settles() {
		return b.settle(op)
	}
	if first, ok := b.known[op.ref]; ok {
		return op.replay(first, b.known[op.ref+suffixIn])
	}
	payer, payee := b.accounts[AccountKey{op.payer, op.currency}], b.accounts[AccountKey{op.payee, op.currency}]
	if err := op.judge(payer, payee); err != nil {
		return outcome{}, err
	}
	if op.payee != "" && payee == nil {
		payee = &Account{UserID: op.payee, Currency: op.currency, OpenedAt: capability.Time{Time: b.now}}
		b.accounts[payee.key()] = payee
	}
	out := op.post(payer, payee, b.now)
	if op.kind == KindHold {
		hold := out.hold
		b.holds[hold.Ref] = &hold
		b.opened = append(b.opened, &hold)
	}
	b.add(out)
	return out, nil
}

func (b *batch) settle(op *operation) (outcome, error) {
	hold := b.holds[op.ref]
	if err := op.judgeHold(hold); err != nil {
		return outcome{}, err
	}
	account := b.accounts[AccountKey{hold.UserID, hold.Currency}]
	if account == nil {
		return outcome{}, errNoAccount
	}
	if !slices.Contains(b.opened, hold) {
		b.settled = append(b.settled, hold)
	}
	out := op.settle(hold, account, b.now)
	b.add(out)
	return out, nil
}

func (b *batch) add(out outcome) {
	for _, t := range out.rows {
		if t.Ref != "" {
			b.known[t.Ref] = t
			b.rows = append(b.rows, t)
		}
	}
}
