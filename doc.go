// Package kit gives an application a whole backend: one New call composes
// capabilities, checks them, and returns an http.Handler.
//
//	k, err := kit.New(
//		kit.WithAuth(auth.Config{}),
//		kit.WithLedger(ledger.Config{Currencies: []ledger.Currency{{Code: "coins", Name: "Coins"}}}),
//	)
//	http.Handle("/", k)
//	_, err = k.Ledger().Credit(ctx, ledger.Entry{UserID: "ada", Currency: "coins", Amount: 100, Ref: "welcome:ada"})
//
// Without a database it runs in memory. A file or PostgreSQL is a change of one option; several
// nodes share one PostgreSQL database without a change of code.
//
// A capability that is not composed mounts nothing. Every route has exactly one
// guard, and everything the kit knows about its surface is computed from the
// one table of routes. Refusals carry a stable code, domain/reason, for HTTP
// clients in error.code and for Go callers by errors.Is.
package kit
