// Embed mounts one kit in the router of an application, next to its static files: net/http, chi or
// echo.
//
//	go run ./examples/embed -host nethttp
//	go run ./examples/embed -host chi
//	go run ./examples/embed -host echo
package main

import (
	"context"
	"embed"
	"flag"
	"fmt"
	"io/fs"
	"log"
	"net/http"
	"os"
	"os/signal"

	"github.com/go-chi/chi/v5"
	"github.com/labstack/echo/v4"

	"github.com/kitbackend/kit"
	"github.com/kitbackend/kit/auth"
	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/clients"
	"github.com/kitbackend/kit/ledger"
)

//go:embed static
var static embed.FS

func main() {
	host := flag.String("host", "nethttp", "router of the application: nethttp, chi or echo")
	addr := flag.String("addr", "localhost:8080", "address to listen on")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	k, handler, err := application(*host, "http://"+*addr)
	if err != nil {
		log.Fatal(err)
	}
	log.Printf("%s host: pages at http://%s/, the kit at http://%s/api", *host, *addr, *addr)
	if err := k.Serve(ctx, *addr, handler); err != nil {
		log.Fatal(err)
	}
}

// application returns a router of the named kind with the kit under /api.
func application(host, origin string) (*kit.Kit, http.Handler, error) {
	k, err := kit.New(
		kit.WithBaseURL(origin+"/api"), // the path is where the kit is mounted
		kit.WithEnvironment(capability.Development),
		kit.WithAuth(auth.Config{}),
		kit.WithLedger(ledger.Config{Currencies: []ledger.Currency{{Code: "coins", Name: "Coins"}}}),
	)
	if err != nil {
		return nil, nil, err
	}
	files, err := fs.Sub(static, "static")
	if err != nil {
		return nil, nil, err
	}
	pages := http.NewServeMux()
	pages.Handle("/client/", clients.Browser())
	pages.Handle("/", http.FileServerFS(files))
	switch host {
	case "nethttp":
		return k, k.Before(pages), nil // the kit's paths first, as computed from its routes
	case "chi":
		r := chi.NewRouter()
		r.Mount("/api", k)
		r.Handle("/*", pages)
		return k, r, nil
	case "echo":
		e := echo.New()
		e.Any("/api/*", echo.WrapHandler(k))
		e.Any("/*", echo.WrapHandler(pages))
		return k, e, nil
	default:
		return nil, nil, fmt.Errorf("no host %q: use nethttp, chi or echo", host)
	}
}
