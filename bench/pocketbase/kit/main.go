// Command kit serves the kit for the comparison with PocketBase.
package main

import (
	"context"
	"encoding/json"
	"log"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"time"

	"github.com/kitbackend/kit"
	"github.com/kitbackend/kit/audit"
	"github.com/kitbackend/kit/auth"
	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/controlplane"
	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/email"
	"github.com/kitbackend/kit/leaderboard"
	"github.com/kitbackend/kit/ledger"
	"github.com/kitbackend/kit/media"
	"github.com/kitbackend/kit/secrets"
	"github.com/kitbackend/kit/storage"
	"github.com/kitbackend/kit/support"
	"github.com/kitbackend/kit/testers"
	"github.com/kitbackend/kit/vector"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := serve(ctx, os.Args[1]); err != nil {
		log.Fatal(err)
	}
}

// serve serves what PocketBase has, sign-in, files, mail, an API of the operators and a log of
// requests, with the capabilities that a credit meets. An administrator gives the credits.
func serve(ctx context.Context, dir string) error {
	db, err := database.OpenFile(filepath.Join(dir, "kit.db"))
	if err != nil {
		return err
	}
	access, err := os.Create(filepath.Join(dir, "access.log"))
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	k, err := kit.New(
		kit.WithDatabase(db), kit.WithEnvironment(capability.Development),
		kit.WithBaseURL("http://"+listener.Addr().String()),
		kit.WithLogger(slog.New(slog.NewTextHandler(access, nil))),
		kit.WithAudit(audit.Config{}),
		kit.WithAuth(auth.Config{}),
		kit.WithLedger(ledger.Config{Currencies: []ledger.Currency{{Code: "coins", Name: "Coins"}}}),
		kit.WithSecrets(secrets.Config{}),
		kit.WithControlPlane(controlplane.Config{}),
		kit.WithEmail(email.Config{}),
		kit.WithStorage(storage.Config{}),
		kit.WithMedia(media.Config{}),
		kit.WithVector(vector.Config{Indexes: []vector.Index{{Name: "notes"}}}),
		kit.WithSupport(support.Config{}),
		kit.WithTesters(testers.Config{}),
		kit.WithLeaderboard(leaderboard.Config{Boards: []leaderboard.Board{{Key: "arcade",
			Direction: leaderboard.DirectionDescending, Aggregation: leaderboard.AggregationBest}}}),
	)
	if err != nil {
		return err
	}
	if _, err := k.Ledger().Credit(ctx, ledger.Entry{UserID: "ada", Currency: "coins", Amount: 100, Ref: "bench"}); err != nil {
		return err
	}
	tokens := map[string]string{}
	for user, scopes := range map[string][]string{"ada": nil, "staff": {"ledger:admin"}} {
		if err := k.Auth().EnsureUser(ctx, user); err != nil {
			return err
		}
		if tokens[user], err = k.Auth().IssueToken(ctx, user, scopes, time.Hour); err != nil {
			return err
		}
	}
	if err := json.NewEncoder(os.Stdout).Encode(map[string]string{
		"address": listener.Addr().String(),
		"write":   "/ledger/coins/credit", "writeToken": tokens["staff"],
		"read": "/ledger/coins", "readToken": tokens["ada"],
	}); err != nil {
		return err
	}
	return k.ServeListener(ctx, listener, nil)
}
