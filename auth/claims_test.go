package auth

import (
	"context"
	"crypto/ed25519"
	"errors"
	"log/slog"
	"net/url"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/database/databasetest"
	"github.com/kitbackend/kit/internal/jose"
	"github.com/kitbackend/kit/internal/seal"
	"github.com/kitbackend/kit/pubsub"
)

const testIssuer = "https://api.example.com"

func openInternal(t testing.TB, db *database.DB, now func() time.Time) *Auth {
	t.Helper()
	keys, err := seal.Load(capability.Sandbox, func(string) string { return "" })
	if err != nil {
		t.Fatal(err)
	}
	base, err := url.Parse(testIssuer)
	if err != nil {
		t.Fatal(err)
	}
	a, err := New(capability.Host{
		DB: db, PubSub: pubsub.NewMemory(), Log: slog.New(slog.DiscardHandler), Now: now, BaseURL: base,
		Sealing: func() (capability.Sealer, error) { return keys, nil },
	}, Config{}, Peers{})
	if err != nil {
		t.Fatal(err)
	}
	if err := db.Migrate(context.Background(), database.Migrations{Name: Name, FS: a.Capability().Migrations}); err != nil {
		t.Fatal(err)
	}
	return a
}

// Tokens with a good signature of our own key, but not meant as access tokens
// for here and now.
func TestClaims(t *testing.T) {
	ctx := context.Background()
	now := time.Unix(1_800_000_000, 0)
	a := openInternal(t, databasetest.Memory(t), func() time.Time { return now })
	key, err := a.keys.signer(ctx)
	if err != nil {
		t.Fatal(err)
	}
	good := func() map[string]any {
		return map[string]any{"iss": testIssuer, "aud": testIssuer, "sub": "ada", "client_id": "kit",
			"iat": now.Unix(), "exp": now.Unix() + 900, "jti": "j", "sid": "s", "scope": "a b"}
	}
	with := func(name string, value any) map[string]any {
		c := good()
		if c[name] = value; value == nil {
			delete(c, name)
		}
		return c
	}
	tests := map[string]struct {
		typ    string
		claims map[string]any
		ok     bool
	}{
		"good":                   {tokenType, good(), true},
		"without scope":          {tokenType, with("scope", nil), true},
		"control-plane token":    {"kit-cp+jwt", good(), false},
		"plain JWT":              {"JWT", good(), false},
		"type in upper case":     {"AT+JWT", good(), false},
		"type with prefix":       {"application/at+jwt", good(), false},
		"other issuer":           {tokenType, with("iss", "https://evil.example"), false},
		"issuer with slash":      {tokenType, with("iss", testIssuer+"/"), false},
		"issuer in upper case":   {tokenType, with("iss", strings.ToUpper(testIssuer)), false},
		"issuer with port":       {tokenType, with("iss", testIssuer+":443"), false},
		"no issuer":              {tokenType, with("iss", nil), false},
		"other audience":         {tokenType, with("aud", "https://evil.example"), false},
		"ours among audiences":   {tokenType, with("aud", []string{testIssuer, "https://evil.example"}), false},
		"audience in an array":   {tokenType, with("aud", []string{testIssuer}), false},
		"no audience":            {tokenType, with("aud", nil), false},
		"no subject":             {tokenType, with("sub", nil), false},
		"empty subject":          {tokenType, with("sub", ""), false},
		"subject is a number":    {tokenType, with("sub", 7), false},
		"no session":             {tokenType, with("sid", nil), false},
		"no token id":            {tokenType, with("jti", nil), false},
		"no client":              {tokenType, with("client_id", nil), false},
		"issued 5 s ahead":       {tokenType, with("iat", now.Unix()+5), true},
		"issued 6 s ahead":       {tokenType, with("iat", now.Unix()+6), false},
		"issued in an hour":      {tokenType, with("iat", now.Unix()+3600), false},
		"expired 4 s ago":        {tokenType, with("exp", now.Unix()-4), true},
		"expired 5 s ago":        {tokenType, with("exp", now.Unix()-5), false},
		"good for over an hour":  {tokenType, with("exp", now.Unix()+3601), false},
		"good for decades":       {tokenType, with("exp", now.Unix()+1e9), false},
		"good for exactly an hr": {tokenType, with("exp", now.Unix()+3600), true},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			raw, err := jose.Sign(key.private, key.id, tt.typ, tt.claims)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := a.bearer(ctx, raw); tt.ok != (err == nil) || !tt.ok && !errors.Is(err, capability.ErrUnauthenticated) {
				t.Error(err)
			}
			if _, cached := a.verified.get(raw); cached != tt.ok {
				t.Errorf("cached: %v", cached)
			}
		})
	}
}

// Rotations one after another, each durable.
func BenchmarkRotate(b *testing.B) {
	ctx := context.Background()
	clock := &keyClock{time.Unix(1_800_000_000, 0)}
	a := openSealed(b, databasetest.File(b), clock, sealKeys(b, masterKey("k1", 1)))
	if err := a.EnsureUser(ctx, "ada"); err != nil {
		b.Fatal(err)
	}
	session, err := a.CreateSession(ctx, "ada")
	if err != nil {
		b.Fatal(err)
	}
	token, err := a.refreshToken(session, 0)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		rotated, err := a.Rotate(ctx, token)
		if err != nil {
			b.Fatal(err)
		}
		token = rotated.RefreshToken
		clock.now = clock.now.Add(11 * time.Second)
	}
}

// A flood of made-up key ids reads the rows a few times a second, no more.
func TestUnknownKeysAreBounded(t *testing.T) {
	ctx := context.Background()
	now := time.Unix(1_800_000_000, 0)
	db, err := database.OpenMemory()
	if err != nil {
		t.Fatal(err)
	}
	a := openInternal(t, db, func() time.Time { return now })
	if err := a.EnsureUser(ctx, "ada"); err != nil {
		t.Fatal(err)
	}
	good, err := a.IssueToken(ctx, "ada", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := a.bearer(ctx, good); err != nil {
		t.Fatal(err)
	}
	key, err := a.keys.signer(ctx)
	if err != nil {
		t.Fatal(err)
	}
	forged, err := jose.Sign(key.private, "unknown", tokenType, map[string]any{"iat": now.Unix(), "exp": now.Unix() + 60})
	if err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil { // so that every read shows
		t.Fatal(err)
	}
	reads := 0
	for range 1000 {
		_, err := a.bearer(ctx, forged)
		switch {
		case errors.Is(err, capability.ErrUnavailable):
			reads++
		case !errors.Is(err, capability.ErrUnauthenticated):
			t.Fatal(err)
		}
	}
	if reads != reloads.Events {
		t.Errorf("%d reads, want %d", reads, reloads.Events)
	}
	if _, err := a.bearer(ctx, good); err != nil {
		t.Errorf("the good token suffers: %v", err)
	}
}

func TestCacheIsBounded(t *testing.T) {
	c := newTokenCache()
	raw := strings.Repeat("x", 4000)
	for i := range 4 * cacheBytes / len(raw) {
		c.put(raw+time.Duration(i).String(), accessToken{})
	}
	total, entries := 0, 0
	for i := range c.shards {
		total += c.shards[i].bytes
		entries += len(c.shards[i].tokens)
		if c.shards[i].bytes > cacheBytes/cacheShards {
			t.Errorf("shard %d holds %d bytes", i, c.shards[i].bytes)
		}
	}
	if total < cacheBytes/2 || entries < cacheBytes/2/(len(raw)+400) {
		t.Errorf("only %d bytes in %d entries", total, entries)
	}
	c.put("again", accessToken{})
	c.put("again", accessToken{expiresAt: 1})
	if token, ok := c.get("again"); !ok || token.expiresAt != 1 {
		t.Error(token, ok)
	}
	c.remove("again")
	if _, ok := c.get("again"); ok {
		t.Error("still there")
	}
}

func TestCachedBearerDoesNotAllocate(t *testing.T) {
	a, raw := warm(t)
	ctx := context.Background()
	if n := testing.AllocsPerRun(1000, func() {
		if _, err := a.bearer(ctx, raw); err != nil {
			t.Error(err)
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func warm(t testing.TB) (a *Auth, raw string) {
	ctx := context.Background()
	a = openInternal(t, databasetest.Memory(t), time.Now)
	if err := a.EnsureUser(ctx, "ada"); err != nil {
		t.Fatal(err)
	}
	raw, err := a.IssueToken(ctx, "ada", []string{"ledger:admin", "leaderboard:submit"}, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := a.bearer(ctx, raw); err != nil {
		t.Fatal(err)
	}
	return a, raw
}

func BenchmarkBearer(b *testing.B) {
	ctx := context.Background()
	a, raw := warm(b)
	b.Run("cached", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := a.bearer(ctx, raw); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("cached, parallel", func(b *testing.B) {
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				if _, err := a.bearer(ctx, raw); err != nil {
					b.Error(err)
				}
			}
		})
	})
	b.Run("signature alone", func(b *testing.B) {
		key, err := a.keys.signer(ctx)
		if err != nil {
			b.Fatal(err)
		}
		input, encoded := raw[:strings.LastIndexByte(raw, '.')], raw[strings.LastIndexByte(raw, '.')+1:]
		signature, err := encoding.DecodeString(encoded)
		if err != nil {
			b.Fatal(err)
		}
		b.ReportAllocs()
		for b.Loop() {
			if !ed25519.Verify(key.public, []byte(input), signature) {
				b.Fatal("does not verify")
			}
		}
	})
	b.Run("verified", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			token, err := jose.Parse(raw)
			if err != nil {
				b.Fatal(err)
			}
			if _, err := a.verify(ctx, token, a.host.Now()); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("issued", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := a.IssueToken(ctx, "ada", nil, 0); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// While the rows are being read because of a hint, nobody passes by what was
// known before it.
func TestHintHoldsUntilTheRowsAreRead(t *testing.T) {
	dbs := databasetest.Shared(t, 2)
	ctx := context.Background()
	now := time.Unix(1_800_000_000, 0)
	a := openInternal(t, dbs[0], func() time.Time { return now })
	if err := a.revoked.refresh(ctx, now); err != nil || !a.revoked.fresh(now) {
		t.Fatal(err)
	}
	read := make(chan error)
	err := dbs[1].InTx(ctx, func(ctx context.Context) error {
		if _, err := dbs[1].Exec(ctx, `LOCK TABLE auth_revocation IN ACCESS EXCLUSIVE MODE`); err != nil {
			return err
		}
		a.revoked.hints.Add(1)
		go func() { read <- a.revoked.refresh(context.Background(), now) }()
		for a.revoked.polling.TryLock() { // until the reader is under way
			a.revoked.polling.Unlock()
			runtime.Gosched()
		}
		if a.revoked.fresh(now) {
			t.Error("passes before the rows are read")
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := <-read; err != nil || !a.revoked.fresh(now) {
		t.Error(err)
	}
}

// A user's list of devices reads their own alone, however many there are.
func TestDevicesAreFoundByTheirUser(t *testing.T) {
	a := openInternal(t, databasetest.Memory(t), time.Now)
	plan := databasetest.Seeks(t, a.host.DB, "", devicesOf, "", 0, 10, "ada")
	if !strings.Contains(plan, "auth_device USING INDEX auth_device_by_user (user_id=? AND id>?)") {
		t.Error(plan)
	}
}

// Requests that are still under way when the capability is closed note nothing
// any more.
func TestConfirmDuringClose(t *testing.T) {
	a := openInternal(t, databasetest.Memory(t), time.Now)
	for range 100 {
		c := newConfirmer(a.store)
		var work sync.WaitGroup
		for range 3 {
			work.Go(func() { c.confirm("session", 1) })
		}
		c.close()
		c.close()
		work.Wait()
		if len(c.slots) != cap(c.slots) {
			t.Fatal("something runs on")
		}
	}
}
