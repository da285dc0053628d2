// Notes is a page of notes with a search as you type: by meaning, by word, or both. Sign in as any
// user.
//
//	go run ./examples/notes
//	go run ./examples/notes -db notes.db
//
// Without a model, the search by meaning uses hashing-v1, which compares words and parts of words.
// With an embedding service, such as Ollama, it compares meaning:
//
//	KIT_SECRET_VECTOR_EMBEDDER_CREDENTIALS='{"embedder":{"baseUrl":"http://localhost:11434"}}' \
//		go run ./examples/notes -model nomic-embed-text -dimensions 768
package main

import (
	"context"
	"embed"
	"errors"
	"flag"
	"io/fs"
	"log"
	"net/http"
	"os"
	"os/signal"

	"github.com/kitbackend/kit"
	"github.com/kitbackend/kit/auth"
	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/clients"
	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/secrets"
	"github.com/kitbackend/kit/vector"
)

//go:embed static
var static embed.FS

func main() {
	addr := flag.String("addr", "localhost:8080", "address to listen on")
	file := flag.String("db", "", "database file; empty for memory")
	model := flag.String("model", "", "model of the embedding service; empty for hashing-v1")
	dimensions := flag.Int("dimensions", 768, "what the model makes")
	flag.Parse()
	opts := options("http://"+*addr, embedder(*model, *dimensions))
	if *file != "" {
		db, err := database.OpenFile(*file)
		if err != nil {
			log.Fatal(err)
		}
		defer db.Close()
		opts = append(opts, kit.WithDatabase(db))
	}
	if err := serve(*addr, opts); err != nil {
		log.Print(err)
	}
}

// serve serves the page and the kit until it is interrupted.
func serve(addr string, opts []kit.Option) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	k, err := kit.New(opts...)
	if err != nil {
		return err
	}
	handler, err := application(k)
	if err != nil {
		return errors.Join(err, k.Close(context.Background()))
	}
	log.Printf("open http://%s/", addr)
	return k.Serve(ctx, addr, handler)
}

// embedder returns the embedder of a model, or nil, which means hashing-v1, if no model is named.
func embedder(model string, dimensions int) vector.Embedder {
	if model == "" {
		return nil
	}
	return vector.Remote(vector.RemoteConfig{Model: model, Dimensions: dimensions})
}

func options(baseURL string, e vector.Embedder) []kit.Option {
	return []kit.Option{
		kit.WithEnvironment(capability.Development),
		kit.WithBaseURL(baseURL),
		kit.WithSecrets(secrets.Config{Provider: secrets.NewEnvironment(os.Getenv)}),
		kit.WithAuth(auth.Config{}),
		kit.WithVector(vector.Config{Indexes: []vector.Index{{Name: index, Filterable: []string{"colour"}, Embedder: e}}}),
		kit.WithCapability(func(k *kit.Kit) (capability.Capability, error) { return notes{k}.capability(), nil }),
	}
}

// application serves the page and the client that it uses, and passes the paths of the kit to the
// kit.
func application(k *kit.Kit) (http.Handler, error) {
	pages, err := fs.Sub(static, "static")
	if err != nil {
		return nil, err
	}
	paths := http.NewServeMux()
	paths.Handle("/client/", clients.Browser())
	paths.Handle("/", http.FileServerFS(pages))
	return k.Before(paths), nil
}
