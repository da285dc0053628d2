package kit_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/kitbackend/kit"
	"github.com/kitbackend/kit/auth"
	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/kittest"
	"github.com/kitbackend/kit/ledger"
)

// What runs inside one InTx commits together: the application's own row and
// the ledger's. Here the balance does not cover the order, so neither stays.
func Example_oneTransaction() {
	k, err := kit.New(kit.WithLogger(slog.New(slog.DiscardHandler)),
		kit.WithLedger(ledger.Config{Currencies: []ledger.Currency{{Code: "coins", Name: "Coins"}}}))
	if err != nil {
		log.Fatal(err)
	}
	ctx := context.Background()
	defer k.Close(ctx)
	if _, err := k.Database().Exec(ctx, `CREATE TABLE shop_order (id TEXT PRIMARY KEY)`); err != nil {
		log.Fatal(err)
	}
	if _, err := k.Ledger().Credit(ctx, ledger.Entry{UserID: "ada", Currency: "coins", Amount: 20, Ref: "welcome:ada"}); err != nil {
		log.Fatal(err)
	}
	order := struct{ ID string }{"7"}
	saveOrder := func(ctx context.Context, order struct{ ID string }) error {
		_, err := k.Database().Exec(ctx, `INSERT INTO shop_order (id) VALUES ($1)`, order.ID)
		return err
	}
	buy := func() error {
		err := k.Database().InTx(ctx, func(ctx context.Context) error {
			if err := saveOrder(ctx, order); err != nil {
				return err
			}
			_, err := k.Ledger().Debit(ctx, ledger.Entry{UserID: "ada", Currency: "coins", Amount: 30, Ref: "order:" + order.ID})
			return err // insufficient funds undo the order too
		})
		return err
	}
	fmt.Println(errors.Is(buy(), ledger.ErrInsufficientFunds))
	var orders int
	if err := k.Database().QueryRow(ctx, `SELECT count(*) FROM shop_order`).Scan(&orders); err != nil {
		log.Fatal(err)
	}
	fmt.Println(orders, "orders")
	// Output:
	// true
	// 0 orders
}

// TestKittestSnippet is the README's test of an application.
func TestKittestSnippet(t *testing.T) {
	coins := ledger.Config{Currencies: []ledger.Currency{{Code: "coins", Name: "Coins"}}}
	k := kittest.New(t, kit.WithAuth(auth.Config{}), kit.WithLedger(coins))
	k.User("ada").Get("/ledger/coins").Want(200, "")
}

// A file is a change of one option, and it is still there the next time.
func ExampleWithDatabase() {
	dir, err := os.MkdirTemp("", "kit")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	ctx := context.Background()
	for range 2 {
		db, err := database.OpenFile(filepath.Join(dir, "app.db"))
		if err != nil {
			log.Fatal(err)
		}
		k, err := kit.New(kit.WithDatabase(db), kit.WithLogger(slog.New(slog.DiscardHandler)),
			kit.WithLedger(ledger.Config{Currencies: []ledger.Currency{{Code: "coins", Name: "Coins"}}}))
		if err != nil {
			log.Fatal(err)
		}
		// One reference counts once, however often it is sent.
		if _, err := k.Ledger().Credit(ctx, ledger.Entry{UserID: "ada", Currency: "coins", Amount: 20, Ref: "welcome:ada"}); err != nil {
			log.Fatal(err)
		}
		balance, err := k.Ledger().Balance(ctx, "ada", "coins")
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(balance.Balance)
		if err := errors.Join(k.Close(ctx), db.Close()); err != nil {
			log.Fatal(err)
		}
	}
	// Output:
	// 20
	// 20
}
