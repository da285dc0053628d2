// Minimal is the smallest program with a kit.
package main

import (
	"context"
	"log"

	"github.com/kitbackend/kit"
	"github.com/kitbackend/kit/auth"
	"github.com/kitbackend/kit/ledger"
)

func main() {
	k, err := kit.New(
		kit.WithAuth(auth.Config{}),
		kit.WithLedger(ledger.Config{Currencies: []ledger.Currency{{Code: "coins", Name: "Coins"}}}),
	)
	if err != nil {
		log.Fatal(err) // all faults of the composition at once
	}
	log.Fatal(k.Serve(context.Background(), "localhost:8080", nil)) // requests and jobs
}
