package auth

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/database/databasetest"
	"github.com/kitbackend/kit/internal/mount"
)

// A flood of forged tokens is refused unseen, and harms nobody elsewhere and no
// token that is known as good.
func TestFloodOfForgedTokens(t *testing.T) {
	ctx := context.Background()
	clock := &keyClock{time.Unix(1_800_000_000, 0)}
	a := openInternal(t, databasetest.Memory(t), clock.Now)
	key, err := a.keys.signer(ctx)
	if err != nil {
		t.Fatal(err)
	}
	users := a.Users()
	handler := mount.New(mount.Config{
		Entries: []mount.Entry{{Domain: "auth", Route: capability.Route{
			Method: "GET", Path: "/me", Guard: capability.User(),
			Handle: capability.JSON(200, func(c *capability.Call, _ capability.None) (string, error) { return c.Caller.UserID, nil }),
		}}},
		Users: &users, DB: a.host.DB, Log: a.host.Log, Now: a.host.Now, BaseURL: a.host.BaseURL,
	})
	want := func(address, token string, status int, code string) {
		t.Helper()
		r := httptest.NewRequestWithContext(ctx, http.MethodGet, "/me", nil)
		r.RemoteAddr = address
		r.Header.Set("Authorization", "Bearer "+token)
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		var body struct{ Error struct{ Code string } }
		_ = json.Unmarshal(w.Body.Bytes(), &body)
		if w.Code != status || body.Error.Code != code || (w.Header().Get("Retry-After") != "") != (status == 429) {
			t.Fatalf("got %d %s, want %d %s; Retry-After %q", w.Code, body.Error.Code, status, code, w.Header().Get("Retry-After"))
		}
	}
	f := forge{key, clock.now.Unix()}
	good := func(user string) string {
		claims := f.claims(fmt.Sprintf(`"sub":%q,"iat":%d,"exp":%d`, user, clock.now.Unix(), clock.now.Unix()+900))
		return f.withClaims(strings.Replace(claims, `"sid":"s"`, `"sid":"of-`+user+`"`, 1))
	}
	forged := signedBy(t, f)
	const attacker, near, far = "[2001:db8::1]:1", "[2001:db8::2]:1", "[2001:db8:0:1::1]:1"

	// What honest clients send is not counted.
	known, gone, expired := good("ada"), good("gone"), f.withClaims(f.claims(fmt.Sprintf(`"sub":"ada","iat":%d,"exp":%d`, f.now-900, f.now-60)))
	want(attacker, known, 200, "")
	for range 300 {
		want(attacker, expired, 401, "auth/unauthenticated")
	}
	a.revoked.add([]string{"of-gone"}, clock.now.Add(time.Hour).UnixMilli())
	for range 300 {
		want(attacker, gone, 401, "auth/unauthenticated")
	}
	delete(a.revoked.until, "of-gone")
	want(attacker, known, 200, "") // seen again

	for range 100 {
		want(attacker, forged, 401, "auth/unauthenticated")
	}
	for range 300 {
		want(attacker, forged, 429, "kit/rate_limited")
	}
	want(attacker, expired, 429, "kit/rate_limited")
	want(attacker, good("bob"), 429, "kit/rate_limited") // nobody looks at the signature
	want(near, good("bob"), 429, "kit/rate_limited")     // of the same network
	want(attacker, known, 200, "")
	clock.now = clock.now.Add(-time.Second)
	want(near, good("ada"), 200, "") // the next token of a session that was seen proved here
	clock.now = clock.now.Add(time.Second)
	want(far, good("bob"), 200, "")
	want(near, good("bob"), 200, "") // known as good by now
	if _, err := a.bearer(ctx, good("eve")); err != nil {
		t.Errorf("in process: %v", err)
	}

	clock.now = clock.now.Add(100 * time.Millisecond)
	want(attacker, good("dan"), 200, "")
	want(attacker, good("fay"), 200, "") // good ones cost nothing
	want(attacker, forged, 401, "auth/unauthenticated")
	want(attacker, good("gil"), 429, "kit/rate_limited")
}

// TestFloodOfForgedExpiredTokens: the routes that tell an expired token from none verify it, and count
// what does not verify as other forgeries are counted.
func TestFloodOfForgedExpiredTokens(t *testing.T) {
	clock := &keyClock{time.Unix(1_800_000_000, 0)}
	a := openInternal(t, databasetest.Memory(t), clock.Now)
	ctx := capability.WithRequestInfo(context.Background(), &capability.RequestInfo{IP: "192.0.2.1"})
	key, err := a.keys.signer(ctx)
	if err != nil {
		t.Fatal(err)
	}
	f := forge{key, clock.now.Add(-time.Hour).Unix()}
	lapsed := func(token string) error {
		r := httptest.NewRequestWithContext(ctx, http.MethodGet, "/auth/get-session", nil)
		r.Header.Set("Authorization", "Bearer "+token)
		_, ok, err := (&LibraryHost{a}).Lapsed(r)
		if ok {
			t.Fatal("a token without a session has one")
		}
		return err
	}
	for range 300 {
		if err := lapsed(f.withClaims(f.plain())); err != nil {
			t.Fatalf("a token that is only old: %v", err)
		}
	}
	forged := signedBy(t, f)
	for range 100 {
		if err := lapsed(forged); err != nil {
			t.Fatal(err)
		}
	}
	if err := lapsed(forged); !errors.Is(err, capability.ErrRateLimited) {
		t.Errorf("after a hundred forged ones: %v, want kit/rate_limited", err)
	}
}

// The limit can be switched off, for a host that hides the addresses of clients.
func TestFloodWithoutALimit(t *testing.T) {
	clock := &keyClock{time.Unix(1_800_000_000, 0)}
	a := openInternal(t, databasetest.Memory(t), clock.Now)
	a.forgeries.limiter = limits{map[string]RateLimit{bearerClass: {Events: -1}}, clock.Now}.class(bearerClass)
	ctx := capability.WithRequestInfo(context.Background(), &capability.RequestInfo{IP: "192.0.2.1"})
	for range 300 {
		if _, err := a.bearer(ctx, "x"); capability.AsError(err).Status != 401 {
			t.Fatal(err)
		}
	}
}

// What a flood costs: a request that is refused unseen.
func BenchmarkFlood(b *testing.B) {
	clock := &keyClock{time.Unix(1_800_000_000, 0)}
	a := openInternal(b, databasetest.Memory(b), clock.Now)
	ctx := capability.WithRequestInfo(context.Background(), &capability.RequestInfo{IP: "192.0.2.1"})
	key, err := a.keys.signer(ctx)
	if err != nil {
		b.Fatal(err)
	}
	f := forge{key, clock.now.Unix()}
	forged := f.plain()
	forged = f.sign(f.header(""), forged)
	forged = forged[:len(forged)-2] + "AA"
	b.ReportAllocs()
	for b.Loop() {
		if _, err := a.bearer(ctx, forged); err == nil {
			b.Fatal("forged")
		}
	}
}

// However long the names are that an account is limited by, they take no more
// memory.
func TestAccountKeysAreBounded(t *testing.T) {
	clock := &keyClock{time.Unix(1_800_000_000, 0)}
	a := openInternal(t, databasetest.Memory(t), clock.Now)
	long := make([]byte, 64<<10)
	grown := heapOf(func() {
		for i := range 2000 {
			copy(long, fmt.Sprint(i))
			(&LibraryHost{a}).AllowAccount("sign-in", string(long))
		}
	})
	if grown > 16<<20 {
		t.Errorf("2000 keys take %d bytes", grown)
	}
	if _, ok := (&LibraryHost{a}).AllowAccount("sign-in", "ada"); !ok {
		t.Error("another account suffers")
	}
}

// heapOf returns by how much fn makes the live heap grow.
func heapOf(fn func()) int64 {
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	fn()
	runtime.GC()
	runtime.ReadMemStats(&after)
	return int64(after.HeapAlloc) - int64(before.HeapAlloc)
}
