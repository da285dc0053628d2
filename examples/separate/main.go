// Separate is a backend whose front end lives elsewhere: a page that Vite serves
// on a port of its own, and calls the kit by the typed client, with cookies.
//
//	go run ./examples/separate
//	cd examples/separate/web && npm install && npm run dev
//
// Then open http://localhost:5173. In production the page is static files on
// https://app.example.com, say, and the kit https://api.example.com: one site, so
// that cookies go along. An application on a phone has no origin: it sends
// "Authorization: Bearer" and the token that signing in has returned.
package main

import (
	"context"
	"flag"
	"log"
	"os"
	"os/signal"

	"github.com/kitbackend/kit"
	"github.com/kitbackend/kit/auth"
	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/vector"
)

func main() {
	addr := flag.String("addr", "localhost:8080", "address to listen on")
	page := flag.String("page", "http://localhost:5173", "origin of the page")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	k, err := kit.New(options("http://"+*addr, *page)...)
	if err != nil {
		log.Fatal(err)
	}
	if err := k.Serve(ctx, *addr, nil); err != nil {
		log.Fatal(err)
	}
}

// options compose the backend of a page of another origin.
func options(own, page string) []kit.Option {
	return []kit.Option{
		kit.WithBaseURL(own),
		kit.WithEnvironment(capability.Development),
		kit.WithAuth(auth.Config{TrustedOrigins: []string{page}}),
		kit.WithVector(vector.Config{Indexes: []vector.Index{{Name: "notes"}}}),
	}
}
