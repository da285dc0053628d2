package signin_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kitbackend/kit/audit"
	"github.com/kitbackend/kit/auth"
	"github.com/kitbackend/kit/auth/signin"
	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/database/databasetest"
	"github.com/kitbackend/kit/email"
	"github.com/kitbackend/kit/hooks"
	"github.com/kitbackend/kit/internal/seal"
	"github.com/kitbackend/kit/jobs"
	"github.com/kitbackend/kit/pubsub"
)

// everything is switched on.
var everything = signin.Config{Anonymous: true, Usernames: true, OneTimeTokens: true, MultiSession: true}

// The official client of better-auth signs up, verifies, signs in by password,
// link, code and second factor, and out.
func TestBetterAuthClient(t *testing.T) {
	modules := os.Getenv("KIT_TEST_BETTERAUTH")
	if modules == "" {
		t.Skip("KIT_TEST_BETTERAUTH names no folder with node_modules that has better-auth")
	}
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		base := serve(t, db)
		script, err := filepath.Abs("testdata/client.mjs")
		must(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		node := exec.CommandContext(ctx, "node", script, base, "all")
		node.Dir = modules
		out, err := node.CombinedOutput()
		if err != nil || !strings.HasSuffix(string(out), "done\n") {
			t.Fatalf("%v\n%s", err, out)
		}
	})
}

// serve runs auth with the library and email in development on loopback, and
// returns its address.
func serve(t *testing.T, db *database.DB) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	base := &url.URL{Scheme: "http", Host: "localhost:" + strings.TrimPrefix(listener.Addr().String(), "127.0.0.1:")}
	log := slog.New(slog.DiscardHandler)
	bus := pubsub.NewMemory()
	queue := jobs.New(db, bus, jobs.Options{Log: log})
	keys, err := seal.Load(capability.Production, func(string) string {
		return "k1:" + base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{1}, 32))
	})
	must(t, err)
	host := capability.Host{
		DB: db, Jobs: queue, PubSub: bus, Log: log, Now: time.Now,
		Environment: capability.Development, BaseURL: base, InternalPrefix: "/__kit",
		Sealing: func() (capability.Sealer, error) { return keys, nil }, Hooks: hooks.New(),
	}
	trail, err := audit.New(host, audit.Config{}, audit.Peers{})
	must(t, err)
	mails, err := email.New(host, email.Config{}, email.Peers{Audit: trail})
	must(t, err)
	a, err := auth.New(host, auth.Config{Library: signin.New(everything), RateLimits: unlimited}, auth.Peers{Audit: trail, Email: mails})
	must(t, err)

	server := &http.Server{
		ReadHeaderTimeout: time.Minute,
		Handler:           mounted(t, host, a.Users(), trail.Capability(), mails.Capability(), a.Capability()),
	}
	working, stop := context.WithCancel(context.Background())
	ended := make(chan error, 2)
	go func() { ended <- server.Serve(listener) }()
	go func() { ended <- queue.Run(working) }()
	t.Cleanup(func() {
		stop()
		must(t, server.Close())
		if err := <-ended; err != nil && !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
		if err := <-ended; err != nil && !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
	return base.String()
}
