package controlplane_test

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kitbackend/kit/audit"
	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/controlplane"
	"github.com/kitbackend/kit/controlplane/client"
	"github.com/kitbackend/kit/controlplane/controlplanetest"
	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/database/databasetest"
)

const conflict, notFound = "controlplane/key_conflict", "controlplane/key_not_found"

func newKey(t testing.TB) ed25519.PrivateKey {
	t.Helper()
	_, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// rotate registers a new key as an identity and returns the identity with the new key.
func rotate(t testing.TB, w *controlplanetest.World, i client.Identity) (client.Identity, client.Key) {
	t.Helper()
	key := newKey(t)
	k, err := w.Client(i).Register(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	return i.WithKey(key), k
}

// wantRefusal compares the code of a client's error; "" is success.
func wantRefusal(t *testing.T, name string, err error, want string) {
	t.Helper()
	var refusal *client.Error
	code := ""
	if errors.As(err, &refusal) {
		code = refusal.Code
	} else if err != nil {
		code = err.Error()
	}
	if code != want {
		t.Errorf("%s: %q, want %q", name, code, want)
	}
}

func pings(w *controlplanetest.World, i client.Identity) error {
	_, err := w.Client(i).Ping(context.Background())
	return err
}

// TestRotation checks the whole rotation: first both keys verify, then only the new one.
func TestRotation(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		w := controlplanetest.New(t, db, controlplanetest.Options{})
		first := w.Identity
		w.Clock.Advance(time.Hour)
		second, k := rotate(t, w, first)
		if k.ID != second.KeyID() || k.Status != "active" || *k.Replaces != first.KeyID() {
			t.Errorf("registered %+v", k)
		}
		for name, i := range map[string]client.Identity{"first": first, "second": second} {
			wantRefusal(t, name+" in the window", pings(w, i), "")
		}
		w.Clock.Advance(31 * 24 * time.Hour)
		keys, err := w.Client(second).Keys(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		got := make([]string, len(keys))
		for i, k := range keys {
			window := int64(-1)
			if k.SupersededSeconds != nil {
				window = *k.SupersededSeconds
			}
			got[i] = fmt.Sprint(k.ID, k.Status, k.AgeSeconds, window, k.Overdue)
		}
		want := []string{
			fmt.Sprint(first.KeyID(), "superseded", 3600+31*86400, 31*86400, true),
			fmt.Sprint(second.KeyID(), "active", 31*86400, -1, false),
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}

		expire := func(i client.Identity, id string) error {
			_, err := w.Client(i).Expire(t.Context(), id)
			return err
		}
		wantRefusal(t, "the active key", expire(second, second.KeyID()), conflict)
		wantRefusal(t, "the active key by the old", expire(first, second.KeyID()), conflict)
		wantRefusal(t, "the superseded key by itself", expire(first, first.KeyID()), conflict)
		wantRefusal(t, "an unknown key", expire(second, "k_unknown"), notFound)
		wantRefusal(t, "a hostile key id", expire(second, "k' OR 1=1"), notFound)
		wantRefusal(t, "by its successor", expire(second, first.KeyID()), "")
		wantRefusal(t, "twice", expire(second, first.KeyID()), notFound)
		wantRefusal(t, "the expired key", pings(w, first), invalid)
		wantRefusal(t, "the active key", pings(w, second), "")

		var ceremonies []string
		for _, action := range w.Actions() {
			if strings.HasPrefix(action, "controlplane/key_") || strings.HasPrefix(action, "controlplane/connection_") {
				ceremonies = append(ceremonies, action)
			}
		}
		if diff := cmp.Diff([]string{"controlplane/key_expired", "controlplane/key_registered", "controlplane/connection_registered"}, ceremonies); diff != "" {
			t.Error(diff)
		}
	})
}

// TestExpireAlongTheChain checks that only its nearest live descendant expires a key.
func TestExpireAlongTheChain(t *testing.T) {
	w := newWorld(t)
	k1 := w.Identity
	k2, _ := rotate(t, w, k1)
	k3, _ := rotate(t, w, k2)
	k4, _ := rotate(t, w, k3)
	expire := func(i client.Identity, of client.Identity) error {
		_, err := w.Client(i).Expire(t.Context(), of.KeyID())
		return err
	}
	wantRefusal(t, "k1 by k3", expire(k3, k1), conflict)
	wantRefusal(t, "k1 by k4", expire(k4, k1), conflict)
	wantRefusal(t, "k3 by k2", expire(k2, k3), conflict)
	wantRefusal(t, "k2 by k3", expire(k3, k2), "")
	wantRefusal(t, "k1 by k2, which is expired", expire(k2, k1), invalid)
	wantRefusal(t, "k1 by k4, k3 is nearer", expire(k4, k1), conflict)
	wantRefusal(t, "k1 by k3, k2 is expired", expire(k3, k1), "")
	wantRefusal(t, "k3 by k4", expire(k4, k3), "")
	wantRefusal(t, "k4", pings(w, k4), "")
}

// TestRegisterRefusals produces the refusals of POST /keys.
func TestRegisterRefusals(t *testing.T) {
	w := newWorld(t)
	f := forger{w.Identity}
	key := newKey(t)
	jwk := controlplane.NewJWK(key.Public().(ed25519.PublicKey))
	kid := f.WithKey(key).KeyID()
	const badRequest = "kit/invalid_request"
	proof := func(changes ...any) func(jti string) object {
		return func(jti string) object {
			now := w.Clock.Now().Unix()
			claims := with(object{"sub": f.ConnectionID, "replaces": f.KeyID(), "jti": jti, "iat": now, "exp": now + 60}, changes...)
			return object{"publicKey": jwk, "proof": signBy(key, object{"alg": "EdDSA", "kid": kid, "typ": "kit-cp-proof+jwt"}, claims)}
		}
	}
	body := func(publicKey any) func(string) object {
		return func(jti string) object { return with(proof()(jti), "publicKey", publicKey) }
	}
	signedBy := func(k ed25519.PrivateKey, header object) func(string) object {
		return func(jti string) object {
			now := w.Clock.Now().Unix()
			return object{"publicKey": jwk, "proof": signBy(k, header,
				object{"sub": f.ConnectionID, "replaces": f.KeyID(), "jti": jti, "iat": now, "exp": now + 60})}
		}
	}
	low := controlplane.NewJWK(make([]byte, 32))
	tests := map[string]func(jti string) object{
		"no body members":                func(string) object { return object{} },
		"no proof":                       func(string) object { return object{"publicKey": jwk} },
		"private key":                    body(object{"kty": "OKP", "crv": "Ed25519", "x": jwk.X, "d": b64.EncodeToString(key.Seed())}),
		"EC key":                         body(object{"kty": "EC", "crv": "P-256", "x": jwk.X}),
		"X25519 key":                     body(object{"kty": "OKP", "crv": "X25519", "x": jwk.X}),
		"short key":                      body(object{"kty": "OKP", "crv": "Ed25519", "x": jwk.X[:40]}),
		"key of small order":             body(low),
		"key of another":                 body(controlplane.NewJWK(newKey(t).Public().(ed25519.PublicKey))),
		"proof by the old key":           signedBy(f.PrivateKey, object{"alg": "EdDSA", "kid": kid, "typ": "kit-cp-proof+jwt"}),
		"proof of another type":          signedBy(key, object{"alg": "EdDSA", "kid": kid, "typ": "kit-cp+jwt"}),
		"proof under another key id":     signedBy(key, object{"alg": "EdDSA", "kid": f.KeyID(), "typ": "kit-cp-proof+jwt"}),
		"proof for another connection":   proof("sub", "c_other"),
		"proof of another replacement":   proof("replaces", "k_other"),
		"proof for another request":      proof("jti", "0123456789abcdefghij"),
		"proof expired":                  proof("iat", 1000, "exp", 1060),
		"proof of a long life":           proof("exp", w.Clock.Now().Unix()+121),
		"unknown outer member":           func(jti string) object { return with(proof()(jti), "replaces", "k_1") },
		"proof is the credential's JSON": func(string) object { return object{"publicKey": jwk, "proof": "{}"} },
	}
	post := func(body func(jti string) object) (int, string) {
		claims := f.claims(w.Clock.Now())
		text := string(mustJSON(body(claims["jti"].(string))))
		token := f.sign(f.header(), with(claims, "scope", "keys:rotate", "bdh", bodyHash(text)))
		status, code, _ := send(w, "POST", "/control-plane/keys", text, "Authorization", "Bearer "+token)
		return status, code
	}
	for name, body := range tests {
		if status, code := post(body); status != 400 || code != badRequest {
			t.Errorf("%s: %d %s", name, status, code)
		}
	}
	if status, code := post(proof()); status != 201 {
		t.Errorf("the good one, last: %d %s", status, code)
	}
	if status, code := post(proof()); status != 409 || code != conflict {
		t.Errorf("by a superseded key: %d %s", status, code)
	}
}

// TestKeyComesInOnce checks that a key is registered once: neither again while it is live, nor
// after it expired.
func TestKeyComesInOnce(t *testing.T) {
	w := newWorld(t)
	k1 := w.Identity
	k2, _ := rotate(t, w, k1)
	register := func(by client.Identity, key ed25519.PrivateKey) error {
		_, err := w.Client(by).Register(t.Context(), key)
		return err
	}
	wantRefusal(t, "its own key", register(k2, k2.PrivateKey), conflict)
	wantRefusal(t, "the superseded key", register(k2, k1.PrivateKey), conflict)
	if _, err := w.Client(k2).Expire(t.Context(), k1.KeyID()); err != nil {
		t.Fatal(err)
	}
	wantRefusal(t, "the expired key", register(k2, k1.PrivateKey), conflict)
	wantRefusal(t, "k2 is active still", pings(w, k2), "")
}

func TestLiveKeysAreBounded(t *testing.T) {
	w := newWorld(t)
	i := w.Identity
	for range 15 {
		i, _ = rotate(t, w, i)
	}
	_, err := w.Client(i).Register(t.Context(), newKey(t))
	wantRefusal(t, "the 17th key", err, conflict)
	wantRefusal(t, "the 16th key", pings(w, i), "")
	keys, err := w.Client(i).Keys(t.Context())
	if err != nil || len(keys) != 16 {
		t.Fatal(len(keys), err)
	}
}

// TestRacingRotations lets two operators rotate concurrently, on one node and on two: one succeeds,
// the other is refused, and there is one active key at any time.
func TestRacingRotations(t *testing.T) {
	race := func(t *testing.T, nodes ...*controlplanetest.World) {
		i := nodes[0].Identity
		for range 5 {
			keys := []ed25519.PrivateKey{newKey(t), newKey(t)}
			errs := make([]error, 2)
			var wg sync.WaitGroup
			for n := range keys {
				wg.Go(func() { _, errs[n] = nodes[n%len(nodes)].Client(i).Register(context.Background(), keys[n]) })
			}
			wg.Wait()
			if (errs[0] == nil) == (errs[1] == nil) {
				t.Fatalf("not one winner: %v and %v", errs[0], errs[1])
			}
			winner, loser := 0, 1
			if errs[0] != nil {
				winner, loser = 1, 0
			}
			wantRefusal(t, "the loser", errs[loser], conflict)
			for _, w := range nodes {
				w.Clock.Advance(time.Second) // so that a node without a notification reads again
				wantRefusal(t, "the loser's key", pings(w, i.WithKey(keys[loser])), invalid)
				wantRefusal(t, "the old key", pings(w, i), "")
				wantRefusal(t, "the winner's key", pings(w, i.WithKey(keys[winner])), "")
				var active int
				if err := w.DB.QueryRow(t.Context(), `SELECT count(*) FROM controlplane_key WHERE status = 'active'`).Scan(&active); err != nil || active != 1 {
					t.Fatal(active, err)
				}
			}
			i = i.WithKey(keys[winner])
		}
	}
	databasetest.Each(t, func(t *testing.T, db *database.DB) { race(t, controlplanetest.New(t, db, controlplanetest.Options{})) })
	t.Run("two nodes", func(t *testing.T) {
		dbs := databasetest.Shared(t, 2)
		first := controlplanetest.New(t, dbs[0], controlplanetest.Options{})
		race(t, first, controlplanetest.New(t, dbs[1], controlplanetest.Options{Identity: &first.Identity, Clock: first.Clock}))
	})
}

// TestRacingExpireAndRegister checks that a successor that expires its predecessor while that one
// rotates cannot leave the connection without a key.
func TestRacingExpireAndRegister(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		w := controlplanetest.New(t, db, controlplanetest.Options{})
		old := w.Identity
		for range 5 {
			head, _ := rotate(t, w, old)
			next := newKey(t)
			var wg sync.WaitGroup
			var expired, registered error
			wg.Go(func() { _, expired = w.Client(head).Expire(context.Background(), old.KeyID()) })
			wg.Go(func() { _, registered = w.Client(head).Register(context.Background(), next) })
			wg.Wait()
			if expired != nil || registered != nil {
				t.Fatal(expired, registered)
			}
			wantRefusal(t, "the expired key", pings(w, old), invalid)
			wantRefusal(t, "the new key", pings(w, head.WithKey(next)), "")
			if _, err := w.Client(head.WithKey(next)).Expire(t.Context(), head.KeyID()); err != nil {
				t.Fatal(err)
			}
			old = head.WithKey(next)
		}
	})
}

// TestOtherNodesFollow checks that another node reads a change after a notification, or after a
// second without one.
func TestOtherNodesFollow(t *testing.T) {
	dbs := databasetest.Shared(t, 2)
	first := controlplanetest.New(t, dbs[0], controlplanetest.Options{})
	other := controlplanetest.New(t, dbs[1], controlplanetest.Options{Identity: &first.Identity, Clock: first.Clock})
	wantRefusal(t, "before", pings(other, first.Identity), "")
	second, _ := rotate(t, first, first.Identity)
	if _, err := first.Client(second).Expire(t.Context(), first.Identity.KeyID()); err != nil {
		t.Fatal(err)
	}
	first.Clock.Advance(time.Second)
	wantRefusal(t, "the expired key", pings(other, first.Identity), invalid)
	wantRefusal(t, "the new key", pings(other, second), "")
}

func TestConnect(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		w := controlplanetest.New(t, db, controlplanetest.Options{})
		ctx, same := t.Context(), controlplanetest.Connection(w.Identity)
		if err := w.Connect(ctx, same); err != nil {
			t.Errorf("the same again: %v", err)
		}
		second, _ := rotate(t, w, w.Identity)
		if _, err := w.Client(second).Expire(ctx, w.Identity.KeyID()); err != nil {
			t.Fatal(err)
		}
		if err := w.Connect(ctx, same); err != nil {
			t.Errorf("the same after a rotation: %v", err)
		}
		wantRefusal(t, "the expired first key", pings(w, w.Identity), invalid)
		otherIssuer := same
		otherIssuer.Issuer = "https://other.example"
		stranger, err := client.Generate(w.Identity.Address, "test", w.Identity.Issuer)
		if err != nil {
			t.Fatal(err)
		}
		for name, c := range map[string]controlplane.Connection{"another issuer": otherIssuer, "another key": controlplanetest.Connection(stranger)} {
			if err := w.Connect(ctx, c); !errors.Is(err, controlplane.ErrConnected) {
				t.Errorf("%s: %v", name, err)
			}
		}
		for name, c := range map[string]controlplane.Connection{
			"no key":       {Issuer: "https://a.example"},
			"weak key":     {Issuer: "https://a.example", PublicKey: controlplane.NewJWK(make([]byte, 32))},
			"issuer path":  {Issuer: "https://a.example/", PublicKey: same.PublicKey},
			"issuer *":     {Issuer: "*", PublicKey: same.PublicKey},
			"issuer null":  {Issuer: "null", PublicKey: same.PublicKey},
			"issuer case":  {Issuer: "https://A.example", PublicKey: same.PublicKey},
			"issuer port":  {Issuer: "https://a.example:443", PublicKey: same.PublicKey},
			"issuer other": {Issuer: "ftp://a.example", PublicKey: same.PublicKey},
		} {
			if err := w.Connect(ctx, c); !errors.Is(err, controlplane.ErrConnection) {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
}

// TestReset checks that an operator who has lost all keys can start over, and that nothing of the
// old connection works.
func TestReset(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		w := controlplanetest.New(t, db, controlplanetest.Options{})
		lost, _ := rotate(t, w, w.Identity)
		fresh, err := client.Generate(w.Identity.Address, "test", w.Identity.Issuer)
		if err != nil {
			t.Fatal(err)
		}
		if err := w.Reset(t.Context(), controlplanetest.Connection(fresh)); err != nil {
			t.Fatal(err)
		}
		for name, i := range map[string]client.Identity{"first": w.Identity, "lost": lost, "lost by the new name": {Address: lost.Address,
			Environment: lost.Environment, Issuer: lost.Issuer, ConnectionID: fresh.ConnectionID, PrivateKey: lost.PrivateKey}} {
			wantRefusal(t, name, pings(w, i), invalid)
		}
		wantRefusal(t, "fresh", pings(w, fresh), "")
		for name, i := range map[string]client.Identity{"the first": w.Identity, "the fresh": fresh} {
			if err := w.Reset(t.Context(), controlplanetest.Connection(i)); !errors.Is(err, controlplane.ErrKeyConflict) {
				t.Errorf("reset to %s key: %v", name, err)
			}
		}
		wantRefusal(t, "fresh still", pings(w, fresh), "")
		if actions := w.Actions(); !strings.Contains(strings.Join(actions, "\n"), "controlplane/connection_reset") {
			t.Error(actions)
		}
		expired, err := w.Trail.ListEvents(t.Context(), audit.Filter{Action: "controlplane/key_expired"}, capability.NewPage(0, ""))
		if err != nil || len(expired.Items) != 2 {
			t.Errorf("%d keys expired on the trail, want the two of the old connection: %v", len(expired.Items), err)
		}
	})
}

// TestBootstrap checks that the environment variable connects at first use, once, and that another
// one is reported.
func TestBootstrap(t *testing.T) {
	db := databasetest.Memory(t)
	var log bytes.Buffer
	warnings := slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelWarn}))
	first, err := client.Generate("https://example.com/control-plane", "test", "https://console.example")
	if err != nil {
		t.Fatal(err)
	}
	w := controlplanetest.New(t, db, controlplanetest.Options{
		Config: controlplane.Config{Bootstrap: first.Bootstrap()}, Unconnected: true, Identity: &first,
	})
	wantRefusal(t, "first use", pings(w, first), "")
	second, _ := rotate(t, w, first)
	if _, err := w.Client(second).Expire(t.Context(), first.KeyID()); err != nil {
		t.Fatal(err)
	}
	again := controlplanetest.New(t, db, controlplanetest.Options{
		Config: controlplane.Config{Bootstrap: first.Bootstrap()}, Unconnected: true, Identity: &first, Clock: w.Clock, Log: warnings,
	})
	wantRefusal(t, "an expired key stays expired", pings(again, first), invalid)
	wantRefusal(t, "its successor", pings(again, second), "")
	if log.Len() > 0 {
		t.Errorf("the variable of this connection is reported:\n%s", &log)
	}

	other, err := client.Generate(first.Address, "test", first.Issuer)
	if err != nil {
		t.Fatal(err)
	}
	changed := controlplanetest.New(t, db, controlplanetest.Options{
		Config: controlplane.Config{Bootstrap: other.Bootstrap()}, Unconnected: true, Identity: &first, Clock: w.Clock, Log: warnings,
	})
	wantRefusal(t, "another variable replaces nothing", pings(changed, other), invalid)
	w.Clock.Advance(time.Minute)
	wantRefusal(t, "the connection", pings(changed, second), "")
	if n := strings.Count(log.String(), "Reset"); n != 1 {
		t.Errorf("%d lines say that the variable is ignored, want 1:\n%s", n, &log)
	}
}

// TestKeysPage checks that keys are paged like every list.
func TestKeysPage(t *testing.T) {
	w := newWorld(t)
	i := w.Identity
	for range 4 {
		i, _ = rotate(t, w, i)
	}
	var ids []string
	for path := "/control-plane/keys?limit=2"; path != ""; {
		var page capability.Items[client.Key]
		if err := w.Client(i).Call(t.Context(), "GET", path, nil, &page, "keys:rotate"); err != nil {
			t.Fatal(err)
		}
		for _, k := range page.Items {
			ids = append(ids, k.ID)
		}
		path = ""
		if page.NextCursor != nil {
			path = "/control-plane/keys?limit=2&cursor=" + *page.NextCursor
		}
	}
	keys, err := w.Keys(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	for _, k := range keys {
		want = append(want, k.ID)
	}
	if diff := cmp.Diff(want, ids); diff != "" || len(ids) != 5 {
		t.Error(diff, len(ids))
	}
}
