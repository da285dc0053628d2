// Quickstart is a complete backend in one process: run it, then paste the lines of its banner.
//
//	go run ./examples/quickstart
//	go run ./examples/quickstart -db app.db
//	go run ./examples/quickstart -db postgres://user:password@localhost/app
//	go run ./examples/quickstart -s3 https://access:secret@s3.example.com/bucket
//	go run ./examples/quickstart -routes
//	go run ./examples/quickstart -openapi
package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/kitbackend/kit"
	"github.com/kitbackend/kit/audit"
	"github.com/kitbackend/kit/auth"
	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/controlplane"
	"github.com/kitbackend/kit/controlplane/client"
	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/database/postgres"
	"github.com/kitbackend/kit/email"
	"github.com/kitbackend/kit/leaderboard"
	"github.com/kitbackend/kit/ledger"
	"github.com/kitbackend/kit/matchmaking"
	"github.com/kitbackend/kit/media"
	"github.com/kitbackend/kit/multiplayer"
	"github.com/kitbackend/kit/payments"
	"github.com/kitbackend/kit/payments/paytest"
	"github.com/kitbackend/kit/rating"
	"github.com/kitbackend/kit/secrets"
	"github.com/kitbackend/kit/storage"
	"github.com/kitbackend/kit/storage/bucket"
	"github.com/kitbackend/kit/storage/bucket/s3"
	"github.com/kitbackend/kit/support"
	"github.com/kitbackend/kit/testers"
	"github.com/kitbackend/kit/vector"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout, os.Stderr); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	flags := flag.NewFlagSet("quickstart", flag.ContinueOnError)
	flags.SetOutput(stderr)
	addr := flags.String("addr", "localhost:8080", "address to listen on")
	dsn := flags.String("db", "", "database: empty for memory, a file, or a PostgreSQL URL")
	objects := flags.String("s3", "", "objects: empty for a temporary directory, or the address of an S3 bucket")
	routes := flags.Bool("routes", false, "print the composed route table and exit")
	document := flags.Bool("openapi", false, "print the OpenAPI document and exit")
	if err := flags.Parse(args); err != nil {
		return err
	}

	started := time.Now()
	db, name, err := open(ctx, *dsn)
	if err != nil {
		return err
	}
	defer db.Close()
	if *routes {
		return printRoutes(stdout, db)
	}
	if *document {
		return printOpenAPI(stdout, db)
	}
	kept, err := openBucket(*objects)
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", *addr)
	if err != nil {
		return err
	}
	log := slog.New(slog.NewTextHandler(stderr, nil))
	rails := stores()
	k, err := compose(db, kept, "http://"+reachable(*addr, listener), log, rails, keep(*dsn)...)
	if err != nil {
		return errors.Join(err, listener.Close())
	}
	keys, err := os.MkdirTemp("", "quickstart")
	if err != nil {
		return errors.Join(err, listener.Close(), k.Close(context.Background()))
	}
	defer os.RemoveAll(keys)
	keyFile, err := connect(ctx, k, keys)
	if err == nil {
		err = rails.Connect(ctx, k)
	}
	if err != nil {
		return errors.Join(err, listener.Close(), k.Close(context.Background()))
	}
	printBanner(stderr, k, name, keyFile, time.Since(started))
	paths := http.NewServeMux()
	paths.Handle("POST /buy", buy(k, rails))
	paths.Handle("/", site(k))
	return k.ServeListener(ctx, listener, paths)
}

// connect creates a control-plane key for this run in a folder, replacing that of the run before,
// and returns its file.
func connect(ctx context.Context, k *kit.Kit, dir string) (path string, err error) {
	path = filepath.Join(dir, "key.json")
	identity, err := client.Generate(k.BaseURL()+"/control-plane", k.Environment(), "")
	if err != nil {
		return "", err
	}
	if err := identity.Create(path); err != nil {
		return "", err
	}
	connection := controlplane.Connection{Issuer: identity.Issuer, PublicKey: controlplane.NewJWK(identity.Public())}
	err = k.ControlPlane().Connect(ctx, connection)
	if errors.Is(err, controlplane.ErrConnected) {
		err = k.ControlPlane().Reset(ctx, connection)
	}
	return path, err
}

// reachable returns the address to show: the host of addr and the port that the system assigned.
func reachable(addr string, listener net.Listener) string {
	host, _, _ := net.SplitHostPort(addr)
	_, port, _ := net.SplitHostPort(listener.Addr().String())
	return net.JoinHostPort(cmp.Or(host, "localhost"), port)
}

// compose composes the backend: every capability of the kit, in one call.
func compose(db *database.DB, objects bucket.Bucket, baseURL string, log *slog.Logger, rails *paytest.Stores, more ...kit.Option) (*kit.Kit, error) {
	return kit.New(append([]kit.Option{
		kit.WithDatabase(db),
		kit.WithEnvironment(capability.Development),
		kit.WithBaseURL(baseURL),
		kit.WithLogger(log),
		kit.WithAudit(audit.Config{}),
		kit.WithSecrets(secrets.Config{}),
		kit.WithControlPlane(controlplane.Config{}),
		kit.WithEmail(email.Config{From: "Quickstart <quickstart@localhost>"}),
		kit.WithAuth(auth.Config{AppName: "Quickstart"}),
		kit.WithSupport(support.Config{}),
		kit.WithTesters(testers.Config{}),
		kit.WithLedger(ledger.Config{Currencies: []ledger.Currency{{Code: "coins", Name: "Coins"}}}),
		kit.WithPayments(rails.Config(payments.Config{BillingSubject: payments.SubjectUser, Products: products()})),
		kit.WithVector(vector.Config{Indexes: []vector.Index{{Name: "notes"}}}),
		kit.WithStorage(storage.Config{Bucket: objects}),
		kit.WithMedia(media.Config{}),
		kit.WithLeaderboard(leaderboard.Config{Boards: []leaderboard.Board{
			{Key: "arcade", Direction: leaderboard.DirectionDescending, Aggregation: leaderboard.AggregationBest}}}),
		kit.WithRating(rating.Config{Games: []rating.Game{
			{Key: "duel", Algorithm: "elo", XP: &rating.XP{Win: 3, Draw: 2, Loss: 1}}}}),
		kit.WithMultiplayer(multiplayer.Config{Models: []multiplayer.Model{nim()}, Games: []multiplayer.Game{duel}}),
		kit.WithMatchmaking(matchmaking.Config{Games: []matchmaking.Game{
			{Key: "duel", Players: 2, SkillPool: "duel", Snapshot: &duel}}}),
	}, more...)...)
}

// keep stores the master keys of a database in a file next to it, so that the next run can decrypt
// what this run encrypts. Keys in the environment take precedence.
func keep(dsn string) []kit.Option {
	if dsn == "" || strings.Contains(dsn, "://") || os.Getenv("KIT_MASTER_KEYS")+os.Getenv("KIT_MASTER_KEYS_FILE") != "" {
		return nil
	}
	return []kit.Option{kit.WithMasterKeys(func(context.Context) (string, error) {
		path := dsn + ".keys"
		text, err := os.ReadFile(path)
		if !errors.Is(err, fs.ErrNotExist) {
			return string(text), err
		}
		key := make([]byte, 32)
		_, _ = rand.Read(key) // never fails: crypto/rand crashes the process instead
		made := "k1:" + base64.StdEncoding.EncodeToString(key)
		return made, os.WriteFile(path, []byte(made), 0o600)
	})}
}

// duel is rated by the rating game with the same key.
var duel = multiplayer.Game{Key: "duel", Kind: "nim", Rules: rules{Stones: 21}, TurnTimeout: 2 * time.Minute}

// open opens the database that dsn names, by its form; the code above stays the same.
func open(ctx context.Context, dsn string) (db *database.DB, name string, err error) {
	switch {
	case dsn == "":
		db, err = database.OpenMemory()
		return db, "sqlite :memory:", err
	case strings.HasPrefix(dsn, "postgres://"), strings.HasPrefix(dsn, "postgresql://"):
		db, err = postgres.Open(ctx, dsn)
		return db, "postgresql", err
	default:
		db, err = database.OpenFile(dsn)
		return db, "sqlite " + dsn, err
	}
}

// openBucket returns the bucket of the objects; nil means a temporary directory.
func openBucket(address string) (bucket.Bucket, error) {
	if address == "" {
		return nil, nil
	}
	cfg, err := s3.Parse(address)
	if err != nil {
		return nil, err
	}
	return s3.New(cfg), nil
}
