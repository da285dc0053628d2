package ledger

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/kitbackend/kit/audit"
	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/internal/queue"
)

const batchSize = 256 // operations in one transaction at most

// call is an operation whose caller waits.
type call = queue.Call[*operation, outcome]

// newQueue shares transactions between concurrent callers. A batch reads and
// writes an account once for all its operations.
func (l *Ledger) newQueue() *queue.Queue[*operation, outcome] {
	return &queue.Queue[*operation, outcome]{Run: l.run, Size: batchSize, Leaders: queue.WriteLeaders(l.db)}
}

// run sets the outcomes of calls. A batch that the database refuses as a whole, because another
// node opened an account or took a ref at the same instant, is repeated call by call, so that no
// call fails because of another.
func (l *Ledger) run(ctx context.Context, calls []*call) int {
	err := l.apply(ctx, calls)
	var violation *database.ConstraintError
	if len(calls) > 1 && (errors.Is(err, errMoved) || errors.As(err, &violation)) {
		for _, c := range calls {
			if err := l.apply(ctx, []*call{c}); err != nil {
				c.Err = err
			}
		}
		return len(calls)
	}
	for _, c := range calls {
		c.Err = cmp.Or(err, c.Err)
	}
	return len(calls)
}

// apply decides calls in the transaction of ctx, or in one of their own, and records the staff
// operations that succeeded. Its error is the error of all of them; then none has an effect.
func (l *Ledger) apply(ctx context.Context, calls []*call) error {
	err := l.db.InTx(ctx, func(ctx context.Context) error {
		if err := l.store.applyAll(ctx, calls); err != nil {
			return err
		}
		var events []audit.Pending
		for _, c := range calls {
			if c.Op.event != nil && c.Err == nil && !c.Out.replayed {
				events = append(events, *c.Op.event)
			}
		}
		return l.audit.RecordAll(ctx, events...)
	})
	if err != nil {
		for _, c := range calls {
			c.Out, c.Err = outcome{}, nil
		}
	}
	return err
}

// batch is the part of the ledger that a batch of operations sees and changes.
type batch struct {
	now      time.Time
	accounts map[AccountKey]*Account // those ever opened
	holds    map[string]*Hold
	known    map[string]Transaction

	stored  map[AccountKey]int64 // sequences of the accounts that were there before
	rows    []Transaction        // new
	changed []*Hold              // or new
}

// applyAll reads what all operations concern, decides them in memory, and writes
// what has changed, an account once however many operations moved it. It locks
// and writes in one order everywhere (holds, accounts, new accounts, refs; each
// by key), so that transactions never deadlock. A refusal is an outcome and changes nothing, so
// that a caller whose transaction it joined may go on after it.
func (s store) applyAll(ctx context.Context, calls []*call) error {
	for turn := 1; ; turn++ {
		b, err := s.load(ctx, calls)
		if err != nil {
			return err
		}
		for _, c := range calls {
			c.Out, c.Err = b.apply(c.Op)
		}
		err = s.save(ctx, b)
		// One operation opens one account, so nothing was written when another node was faster, and
		// the operation can be decided again on the rows of that node.
		if len(calls) > 1 || !errors.Is(err, errMoved) || turn == maxTurns {
			return taken(calls, err)
		}
	}
}

// maxTurns bounds how often one operation reads its accounts.
const maxTurns = 3

// taken returns a ref conflict if another node took the ref for other accounts, which the locks do
// not cover.
func taken(calls []*call, err error) error {
	var violation *database.ConstraintError
	if len(calls) == 1 && errors.As(err, &violation) && violation.Kind == database.Unique {
		return ErrRefConflict.Because(err)
	}
	return err
}

// apply decides one operation on the state that the operations before it left.
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
		b.changed = append(b.changed, &hold)
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
	if !slices.Contains(b.changed, hold) {
		b.changed = append(b.changed, hold)
	}
	out := op.settle(hold, account, b.now)
	b.add(out)
	return out, nil
}

// errNoAccount cannot happen unless other code writes to the ledger's tables.
var errNoAccount = errors.New("ledger: a hold has no account; see Verify")

func (b *batch) add(out outcome) {
	for _, t := range out.rows {
		if t.Ref != "" {
			b.known[t.Ref] = t
			b.rows = append(b.rows, t)
		}
	}
}
