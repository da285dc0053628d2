package bench

import (
	"fmt"
	"testing"

	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/database/databasetest"
	"github.com/kitbackend/kit/database/postgres"
	"github.com/kitbackend/kit/internal/load"
)

// BenchmarkCreditHTTP measures POST /ledger/:currency/credit to 500 users in turn by an
// administrator with a bearer token: a durable write with its audit event. The composition is that
// of examples/quickstart, with running jobs and an access log. The 64 connections share the
// processors with the server.
func BenchmarkCreditHTTP(b *testing.B) {
	b.Run("sqlite", func(b *testing.B) { credits(b, databasetest.File(b)) })
	b.Run("postgres", func(b *testing.B) {
		credits(b, databasetest.Postgres(b, postgres.WithConnections(16))) // as many as by default
	})
}

func credits(b *testing.B, db *database.DB) {
	k := quickstart(b, db)
	serveOver(b, 64, k, load.Post("/ledger/coins/credit", token(b, k, "staff", "ledger:admin"), func(n int64) string {
		return fmt.Sprintf(`{"userId":"user-%021d","amount":5,"ref":"bench-%d"}`, n%500, n)
	}))
}
