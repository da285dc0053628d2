package signin_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
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
	"github.com/kitbackend/kit/auth/mail"
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

// betterAuth is a version of better-auth that npm installed.
type betterAuth struct{ version, modules string }

// betterAuths returns the versions of better-auth that KIT_TEST_BETTERAUTH names:
// folders with node_modules, separated as in PATH.
func betterAuths(t *testing.T) []betterAuth {
	t.Helper()
	folders := filepath.SplitList(os.Getenv("KIT_TEST_BETTERAUTH"))
	if len(folders) == 0 {
		t.Skip("KIT_TEST_BETTERAUTH names no folder with node_modules that has better-auth")
	}
	var all []betterAuth
	for _, folder := range folders {
		text, err := os.ReadFile(filepath.Join(folder, "node_modules/better-auth/package.json"))
		must(t, err)
		var description struct{ Version string }
		must(t, json.Unmarshal(text, &description))
		all = append(all, betterAuth{description.Version, folder})
	}
	return all
}

// node returns the command that runs a script of testdata with this version.
func (b betterAuth) node(ctx context.Context, t *testing.T, script string, args ...string) *exec.Cmd {
	t.Helper()
	script, err := filepath.Abs(filepath.Join("testdata", script))
	must(t, err)
	node := exec.CommandContext(ctx, "node", append([]string{script}, args...)...)
	node.Dir, node.Env = b.modules, append(os.Environ(), "KIT_TEST_BETTERAUTH="+b.modules)
	return node
}

// The official client of better-auth signs up, verifies, signs in by password,
// link, code and second factor, and out: the first version on every database, the
// others on one.
func TestBetterAuthClient(t *testing.T) {
	for i, version := range betterAuths(t) {
		signs := func(t *testing.T, db *database.DB) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			out, err := version.node(ctx, t, "client.mjs", serve(t, db), "all").CombinedOutput()
			if err != nil || !strings.HasSuffix(string(out), "done\n") {
				t.Fatalf("%v\n%s", err, out)
			}
		}
		t.Run(version.version, func(t *testing.T) {
			if i == 0 {
				databasetest.Each(t, signs)
			} else {
				signs(t, databasetest.Memory(t))
			}
		})
	}
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
	a, err := auth.New(host, auth.Config{Library: signin.New(everything), RateLimits: unlimited}, auth.Peers{Audit: trail, Mailer: mail.New(mails)})
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
