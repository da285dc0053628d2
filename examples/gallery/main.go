// Gallery stores pictures and files: drop them on the page, pause an upload, close the tab, resume
// it later, find similar pictures, and share a link.
//
//	go run ./examples/gallery
//	go run ./examples/gallery -dir pictures -ffmpeg ffmpeg -vips vips
//	go run ./examples/gallery -s3 https://access:secret@s3.example.com/bucket
package main

import (
	"context"
	"embed"
	"flag"
	"io/fs"
	"log"
	"net/http"
	"os"
	"os/signal"

	"github.com/kitbackend/kit"
	"github.com/kitbackend/kit/audit"
	"github.com/kitbackend/kit/auth"
	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/clients"
	"github.com/kitbackend/kit/media"
	"github.com/kitbackend/kit/storage"
	"github.com/kitbackend/kit/storage/bucket"
	"github.com/kitbackend/kit/storage/bucket/file"
	"github.com/kitbackend/kit/storage/bucket/s3"
)

//go:embed static
var static embed.FS

func main() {
	addr := flag.String("addr", "localhost:8080", "address to listen on")
	dir := flag.String("dir", "", "directory of the pictures: empty for a temporary one")
	address := flag.String("s3", "", "address of an S3 bucket, in place of a directory")
	var made media.Config
	flag.StringVar(&made.FFmpeg, "ffmpeg", "", "the ffmpeg program: films get pictures")
	flag.StringVar(&made.Vips, "vips", "", "the vips program: HEIC and AVIF get pictures")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	objects, err := open(*dir, *address)
	if err != nil {
		log.Fatal(err)
	}
	k, err := kit.New(options("http://"+*addr, objects, made)...)
	if err != nil {
		log.Fatal(err)
	}
	handler, err := application(k)
	if err != nil {
		log.Fatal(err)
	}
	log.Printf("open http://%s/", *addr)
	if err := k.Serve(ctx, *addr, handler); err != nil {
		log.Print(err)
	}
}

// open returns the bucket of the objects; the page is the same with both kinds.
func open(dir, address string) (bucket.Bucket, error) {
	if address == "" {
		return file.New(dir), nil
	}
	cfg, err := s3.Parse(address)
	if err != nil {
		return nil, err
	}
	return s3.New(cfg), nil
}

const mib = 1 << 20

func options(baseURL string, objects bucket.Bucket, made media.Config) []kit.Option {
	return []kit.Option{
		kit.WithEnvironment(capability.Development),
		kit.WithBaseURL(baseURL),
		kit.WithAudit(audit.Config{}),
		kit.WithAuth(auth.Config{}),
		kit.WithStorage(storage.Config{
			Bucket:                  objects,
			MultipartThresholdBytes: 5 * mib, // small parts: a pause loses little
			PartSizeBytes:           5 * mib,
			Quota:                   1024 * mib,
		}),
		kit.WithMedia(made),
		kit.WithCapability(func(k *kit.Kit) (capability.Capability, error) { return gallery{k}.capability(), nil }),
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
