package auth_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kitbackend/kit/auth"
	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/database/databasetest"
	"github.com/kitbackend/kit/internal/seal"
)

func TestAccessTokenIsOneOfRFC9068(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		n := open(t, db, setup{baseURL: "https://api.example.com/v1"})
		n.user(t, "ada")
		raw := n.token(t, "ada", "ledger:admin", "rating:record")

		header, claims := decode(t, raw)
		for _, drawn := range []string{"kid", "jti", "sid"} {
			part := claims
			if drawn == "kid" {
				part = header
			}
			if id, _ := part[drawn].(string); len(id) != 26 {
				t.Errorf("%s is %v", drawn, part[drawn])
			}
			delete(part, drawn)
		}
		if diff := cmp.Diff(map[string]any{"alg": "EdDSA", "typ": "at+jwt"}, header); diff != "" {
			t.Error(diff)
		}
		now := float64(n.clock.Now().Unix())
		if diff := cmp.Diff(map[string]any{
			"iss": "https://api.example.com/v1", "aud": "https://api.example.com/v1", "sub": "ada", "client_id": "kit",
			"iat": now, "exp": now + 900, "scope": "ledger:admin rating:record",
		}, claims); diff != "" {
			t.Error(diff)
		}

		caller, err := n.users.Bearer(ctx, raw)
		if err != nil {
			t.Fatal(err)
		}
		if caller.Strategy != capability.StrategyBearer || caller.UserID != "ada" || !caller.HasScope("ledger:admin") ||
			!caller.HasScope("rating:record") || caller.HasScope("ledger") || len(caller.Scopes) != 2 {
			t.Errorf("%+v", caller)
		}
	})
}

func decode(t testing.TB, raw string) (header, claims map[string]any) {
	t.Helper()
	parts := strings.Split(raw, ".")
	for i, into := range []*map[string]any{&header, &claims} {
		text, err := base64.RawURLEncoding.DecodeString(parts[i])
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(text, into); err != nil {
			t.Fatal(err)
		}
	}
	return header, claims
}

func TestIssueTokenRefuses(t *testing.T) {
	n := open(t, databasetest.Memory(t), setup{})
	n.user(t, "ada")
	many := strings.Fields(strings.Repeat("s ", 65))
	tests := map[string]struct {
		user   string
		scopes []string
		ttl    time.Duration
		want   error
	}{
		"unknown user":     {user: "bob", want: auth.ErrUserNotFound},
		"negative ttl":     {user: "ada", ttl: -time.Minute, want: capability.ErrInvalidRequest},
		"ttl under 1 s":    {user: "ada", ttl: time.Millisecond, want: capability.ErrInvalidRequest},
		"ttl over an hour": {user: "ada", ttl: time.Hour + 1, want: capability.ErrInvalidRequest},
		"two in one scope": {user: "ada", scopes: []string{"a b"}, want: capability.ErrInvalidRequest},
		"empty scope":      {user: "ada", scopes: []string{""}, want: capability.ErrInvalidRequest},
		"quote":            {user: "ada", scopes: []string{`a"b`}, want: capability.ErrInvalidRequest},
		"newline":          {user: "ada", scopes: []string{"a\n"}, want: capability.ErrInvalidRequest},
		"too many scopes":  {user: "ada", scopes: many, want: capability.ErrInvalidRequest},
		"scopes too long":  {user: "ada", scopes: strings.Fields(strings.Repeat(strings.Repeat("s", 127)+" ", 64)), want: capability.ErrInvalidRequest},
		"2 KiB of scopes":  {user: "ada", scopes: strings.Fields(strings.Repeat(strings.Repeat("s", 127)+" ", 16))},
		"an hour is taken": {user: "ada", scopes: many[1:], ttl: time.Hour},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if token, err := n.IssueToken(ctx, tt.user, tt.scopes, tt.ttl); !errors.Is(err, tt.want) || (err == nil) != (token != "") {
				t.Errorf("got %v, want %v", err, tt.want)
			}
		})
	}
}

func TestTokenTimes(t *testing.T) {
	n := open(t, databasetest.Memory(t), setup{config: auth.Config{AccessTokenTTL: time.Minute}})
	n.user(t, "ada")
	for name, warm := range map[string]bool{"cached": true, "not cached": false} {
		t.Run(name, func(t *testing.T) {
			raw := n.token(t, "ada")
			if warm {
				n.wantBearer(t, raw, nil)
			}
			n.clock.advance(-6 * time.Second)
			if !warm { // a token of another node whose clock is ahead
				n.wantBearer(t, raw, capability.ErrUnauthenticated)
			}
			n.clock.advance(time.Second)
			n.wantBearer(t, raw, nil)
			n.clock.advance(5*time.Second + time.Minute + 5*time.Second - time.Millisecond)
			n.wantBearer(t, raw, nil)
			n.clock.advance(time.Millisecond)
			n.wantBearer(t, raw, capability.ErrUnauthenticated)
			n.wantBearer(t, raw, capability.ErrUnauthenticated)
		})
	}
}

func TestTamperedTokens(t *testing.T) {
	n := open(t, databasetest.Memory(t), setup{})
	n.user(t, "ada")
	n.user(t, "eve")
	raw, other := n.token(t, "ada"), n.token(t, "eve", "ledger:admin")
	n.wantBearer(t, raw, nil)
	parts, others := strings.Split(raw, "."), strings.Split(other, ".")
	for name, token := range map[string]string{
		"empty":               "",
		"claims of another":   parts[0] + "." + others[1] + "." + parts[2],
		"signature of other":  parts[0] + "." + parts[1] + "." + others[2],
		"no signature":        parts[0] + "." + parts[1] + ".",
		"trailing newline":    raw + "\n",
		"padding":             raw + "=",
		"last character":      raw[:len(raw)-1] + "_",
		"first character cut": raw[1:],
		"very long":           raw + strings.Repeat("A", 1<<20),
	} {
		if token != raw {
			t.Run(name, func(t *testing.T) { n.wantBearer(t, token, capability.ErrUnauthenticated) })
		}
	}
	for i := range raw {
		altered := []byte(raw)
		altered[i] ^= 1
		if _, err := n.users.Bearer(ctx, string(altered)); !errors.Is(err, capability.ErrUnauthenticated) {
			t.Fatalf("byte %d altered: %v", i, err)
		}
	}
}

// Another service under the same keys is still another issuer and audience.
func TestTokensAreForOneBaseURL(t *testing.T) {
	db := databasetest.Memory(t)
	n := open(t, db, setup{})
	n.user(t, "ada")
	raw := n.token(t, "ada")
	for _, base := range []string{"https://api.example.com:8443", "http://api.example.com", "https://api.example.com/v1", "https://evil.example"} {
		open(t, db, setup{baseURL: base, clock: n.clock}).wantBearer(t, raw, capability.ErrUnauthenticated)
	}
	open(t, db, setup{clock: n.clock}).wantBearer(t, raw, nil)
}

// eachPair opens two nodes on one database: one process twice, and on
// PostgreSQL two pools.
func eachPair(t *testing.T, fn func(t *testing.T, one, other *database.DB)) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) { fn(t, db, db) })
	t.Run("two nodes", func(t *testing.T) {
		dbs := databasetest.Shared(t, 2)
		fn(t, dbs[0], dbs[1])
	})
}

func TestNodesVerifyEachOther(t *testing.T) {
	eachPair(t, func(t *testing.T, db1, db2 *database.DB) {
		one := open(t, db1, setup{})
		other := open(t, db2, setup{clock: one.clock})
		one.user(t, "ada")

		// Both look for a key before there is one, and make one at once.
		nodes := []*node{one, other}
		tokens := make([]string, len(nodes))
		var work sync.WaitGroup
		for i, n := range nodes {
			work.Go(func() {
				raw, err := n.IssueToken(ctx, "ada", nil, 0)
				if err != nil {
					t.Error(err)
				}
				tokens[i] = raw
			})
		}
		work.Wait()
		for _, n := range nodes {
			for _, raw := range tokens {
				n.wantBearer(t, raw, nil)
			}
		}
		// A node that starts later uses what is there.
		late := open(t, db2, setup{clock: one.clock})
		late.wantBearer(t, one.token(t, "ada"), nil)
		one.wantBearer(t, late.token(t, "ada"), nil)
	})
}

// Rows sealed under another master key are left alone: sign-in goes on with a
// new key, and the log says why tokens from before do not verify.
func TestAnotherMasterKey(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		before := open(t, db, setup{})
		before.user(t, "ada")
		old := before.token(t, "ada")

		ephemeral, err := seal.Load(capability.Development, func(string) string { return "" })
		if err != nil {
			t.Fatal(err)
		}
		after := open(t, db, setup{clock: before.clock, keys: ephemeral})
		after.wantBearer(t, old, capability.ErrUnauthenticated)
		for range 3 {
			after.wantBearer(t, after.token(t, "ada"), nil)
		}
		if lines := strings.Count(after.log.String(), "making a new one"); lines != 1 || before.log.Len() > 0 {
			t.Errorf("logged %d times:\n%s%s", lines, after.log, before.log)
		}
		before.wantBearer(t, old, nil)
	})
}

// Nobody adds a signing key by writing into the table.
func TestSwappedKeyRowsDoNotOpen(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		n := open(t, db, setup{})
		n.user(t, "ada")
		raw := n.token(t, "ada")
		if _, err := db.Exec(ctx, `UPDATE auth_signing_key SET id = 'moved'`); err != nil {
			t.Fatal(err)
		}
		fresh := open(t, db, setup{clock: n.clock})
		fresh.wantBearer(t, raw, capability.ErrUnauthenticated)
		if header, _ := decode(t, fresh.token(t, "ada")); header["kid"] == "moved" {
			t.Error("the moved row signs")
		}
	})
}

// A key made in a transaction that is rolled back signs nothing afterwards.
func TestKeyOfARolledBackTransaction(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		n := open(t, db, setup{})
		n.user(t, "ada")
		boom := errors.New("boom")
		err := db.InTx(ctx, func(ctx context.Context) error {
			for range 2 { // the second finds the row of the first
				if _, err := n.IssueToken(ctx, "ada", nil, 0); err != nil {
					return err
				}
			}
			return boom
		})
		if !errors.Is(err, boom) {
			t.Fatal(err)
		}
		open(t, db, setup{clock: n.clock}).wantBearer(t, n.token(t, "ada"), nil)
	})
}
