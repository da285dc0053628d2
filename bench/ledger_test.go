package bench

import (
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/database/databasetest"
	"github.com/kitbackend/kit/database/postgres"
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
	first := head("POST /ledger/coins/credit", token(b, k, "staff", "ledger:admin"))
	var turn atomic.Int64
	loadOver(b, 64, k, func(out []byte) []byte {
		n := turn.Add(1)
		body := fmt.Sprintf(`{"userId":"user-%021d","amount":5,"ref":"bench-%d"}`, n%500, n)
		out = append(out, first...)
		return fmt.Appendf(out, "Content-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
	})
}
