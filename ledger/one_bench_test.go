package ledger_test

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/database/databasetest"
	"github.com/kitbackend/kit/ledger"
)

// BenchmarkOne is one operation in a transaction of its caller, as stakes and
// payments have it: what the engine costs where there is nothing to share.
//
//	go test ./ledger -run '^$' -bench One -benchtime 2000x
func BenchmarkOne(b *testing.B) {
	var turn atomic.Int64
	for _, on := range []struct {
		name string
		open func(*testing.B) *database.DB
	}{
		{"sqlite", func(b *testing.B) *database.DB { return databasetest.File(b) }},
		{"postgres", benchPostgres},
	} {
		l := (*ledger.Ledger)(nil)
		for _, op := range []struct {
			name string
			run  func(ctx context.Context, ref string) error
		}{
			{"credit", func(ctx context.Context, ref string) error {
				_, err := l.Credit(ctx, ledger.Entry{UserID: benchUser(1), Currency: "coins", Amount: 1, Ref: ref})
				return err
			}},
			{"transfer", func(ctx context.Context, ref string) error {
				_, err := l.Transfer(ctx, ledger.TransferEntry{From: benchUser(1), To: benchUser(2), Currency: "coins", Amount: 1, Ref: ref})
				return err
			}},
			{"hold", func(ctx context.Context, ref string) error {
				_, err := l.Hold(ctx, ledger.Entry{UserID: benchUser(1), Currency: "coins", Amount: 1, Ref: ref})
				return err
			}},
		} {
			b.Run(on.name+"/"+op.name, func(b *testing.B) {
				db := on.open(b)
				l = benchLedger(b, db)
				endow(b, l, 100)
				b.ResetTimer()
				for range b.N {
					if err := db.InTx(context.Background(), func(ctx context.Context) error { return op.run(ctx, benchRef(turn.Add(1))) }); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
