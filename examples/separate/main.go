// Separate is a backend with a front end of another origin: a page that Vite serves on its own port
// and that calls the kit with the typed client and cookies.
//
//	go run ./examples/separate
//	cd examples/separate/web && npm install && npm run dev
//
// Then open http://localhost:5173. In production the page is static files at, for example,
// https://app.example.com, and the kit is at https://api.example.com: both are the same site, so
// cookies are sent. A mobile application has no origin: it sends "Authorization: Bearer" and the
// token that signing in returned.
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

// options returns the composition of a backend whose page has another origin.
func options(own, page string) []kit.Option {
	return []kit.Option{
		kit.WithBaseURL(own),
		kit.WithEnvironment(capability.Development),
		kit.WithAuth(auth.Config{TrustedOrigins: []string{page}}),
		kit.WithVector(vector.Config{Indexes: []vector.Index{{Name: "notes"}}}),
	}
}
