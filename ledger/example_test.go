package ledger_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/ledger"
)

// A purchase, a wager and its payout, as an application makes them in process.
func Example() {
	ctx := context.Background()
	l, done := exampleLedger()
	defer done()

	_, _ = l.Credit(ctx, ledger.Entry{UserID: "ada", Currency: "coins", Amount: 100, Ref: "order-1", Memo: "starter pack"})
	_, _ = l.Hold(ctx, ledger.Entry{UserID: "ada", Currency: "coins", Amount: 30, Ref: "match-7-stake"})
	_, _ = l.Capture(ctx, "match-7-stake", ledger.CaptureOptions{})
	_, _ = l.Credit(ctx, ledger.Entry{UserID: "ada", Currency: "coins", Amount: 55, Ref: "match-7-prize", RelatedRef: "match-7-stake"})

	balance, err := l.Balance(ctx, "ada", "coins")
	fmt.Println(balance.Available, err)

	_, err = l.Debit(ctx, ledger.Entry{UserID: "ada", Currency: "coins", Amount: 500, Ref: "order-2"})
	fmt.Println(errors.Is(err, ledger.ErrInsufficientFunds))
	// Output:
	// 125 <nil>
	// true
}

// A ref does its work once, so a call of unknown outcome is simply repeated.
func ExampleLedger_Transfer() {
	ctx := context.Background()
	l, done := exampleLedger()
	defer done()

	_, _ = l.Credit(ctx, ledger.Entry{UserID: "ada", Currency: "coins", Amount: 10, Ref: "order-1"})
	gift := ledger.TransferEntry{From: "ada", To: "bob", Currency: "coins", Amount: 4, Ref: "gift-1"}
	for range 2 {
		both, err := l.Transfer(ctx, gift)
		fmt.Println(both.Out.BalanceAfter, both.In.BalanceAfter, both.Replayed, err)
	}
	gift.Amount = 5
	_, err := l.Transfer(ctx, gift)
	fmt.Println(errors.Is(err, ledger.ErrRefConflict))
	// Output:
	// 6 4 false <nil>
	// 6 4 true <nil>
	// true
}

// exampleLedger is what kit.New does with kit.WithLedger.
func exampleLedger() (l *ledger.Ledger, done func()) {
	db, err := database.OpenMemory()
	if err != nil {
		panic(err)
	}
	l, err = ledger.New(capability.Host{DB: db}, ledger.Config{
		Currencies: []ledger.Currency{{Code: "coins", Name: "Coins"}},
	}, ledger.Peers{})
	if err != nil {
		panic(err)
	}
	if err := db.Migrate(context.Background(), database.Migrations{Name: ledger.Name, FS: l.Capability().Migrations}); err != nil {
		panic(err)
	}
	return l, func() { _ = db.Close() }
}
