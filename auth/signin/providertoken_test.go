package signin_test

import (
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kitbackend/kit/auth/signin"
	"github.com/kitbackend/kit/auth/signin/oauth"
	"github.com/kitbackend/kit/database/databasetest"
)

// accountID returns the id of the browser's account at a provider.
func (b *browser) accountID(provider string) string {
	b.a.t.Helper()
	for _, account := range decoded[[]object](b.get("/list-accounts").ok()) {
		if account["providerId"] == provider {
			return account["id"].(string)
		}
	}
	b.a.t.Fatal("no account at " + provider)
	return ""
}

func TestProviderTokens(t *testing.T) {
	each(t, func(t *testing.T, w *world, p *idp) {
		b := w.browser()
		p.tokens = object{"scope": "openid email"}
		b.begin(p, "acme", nil).arrive().lead("/new")
		id := b.accountID("acme")
		access := func(b *browser) *response { return b.post("/get-access-token", object{"accountId": id}) }
		first := decoded[object](access(b).ok())
		if first["accessToken"] != "access-1" || first["idToken"] == nil || first["accessTokenExpiresAt"] != "2026-03-01T13:00:00.000Z" ||
			!cmp.Equal(first["scopes"], []any{"openid", "email"}) {
			t.Errorf("got %v", first)
		}

		// They are their owner's alone.
		w.browser().post("/get-access-token", object{"accountId": id}).want(401, "UNAUTHORIZED")
		other := w.signedUp("eve@example.com")
		access(other).want(400, "ACCOUNT_NOT_FOUND")
		other.post("/get-access-token", object{"accountId": id, "userId": b.user()["id"]}).want(400, "ACCOUNT_NOT_FOUND")
		other.post("/refresh-token", object{"accountId": id}).want(400, "ACCOUNT_NOT_FOUND")
		other.get("/account-info?accountId="+id).want(400, "ACCOUNT_NOT_FOUND")
		own := other.accountID("credential")
		other.post("/refresh-token", object{"accountId": own}).want(400, "PROVIDER_NOT_SUPPORTED")

		p.profile = object{"sub": "subject-1", "email": "new@example.com", "email_verified": true, "plan": "gold"}
		info := decoded[struct {
			User, Account, Data object
		}](b.get("/account-info?accountId=" + id).ok())
		if info.User["email"] != "new@example.com" || info.Account["accountId"] != "subject-1" || info.Data["plan"] != "gold" {
			t.Errorf("got %v", info)
		}
		p.profile["sub"] = "another"
		b.get("/account-info?accountId="+id).want(401, "FAILED_TO_GET_USER_INFO")

		// Near its end the access token is renewed, once however many ask.
		w.clock.advance(time.Hour - 4*time.Second)
		var wg sync.WaitGroup
		for range 10 {
			wg.Go(func() {
				if got := decoded[object](access(b).ok()); got["accessToken"] != "access-2" {
					t.Errorf("got %v", got)
				}
			})
		}
		wg.Wait()
		if p.hit("refreshed") != 1 {
			t.Errorf("refreshed %d times", p.hit("refreshed"))
		}
		refreshed := decoded[object](b.post("/refresh-token", object{"accountId": id}).ok())
		if refreshed["refreshToken"] != "refresh-2" || refreshed["accessToken"] != "access-3" || refreshed["providerId"] != "acme" || refreshed["accountId"] != id {
			t.Errorf("got %v", refreshed)
		}

		p.handlers["/token"] = func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, 400, object{"error": "invalid_grant"}) }
		b.post("/refresh-token", object{"accountId": id}).want(400, "FAILED_TO_REFRESH_ACCESS_TOKEN")
		access(b).ok() // the one there is goes on
		w.clock.advance(time.Hour)
		access(b).want(400, "FAILED_TO_GET_ACCESS_TOKEN")
		b.get("/account-info?accountId="+id).want(400, "FAILED_TO_GET_ACCESS_TOKEN")
	})
}

// TestProviderTokensAcrossNodes: two nodes renew at once; the response of the
// first stays, and both give it out.
func TestProviderTokensAcrossNodes(t *testing.T) {
	dbs := databasetest.Shared(t, 2)
	p := newIDP(t)
	cfg := signin.Config{Providers: []oauth.Provider{p.provider("acme")}}
	one, two := openSocial(t, dbs[0], cfg, p), openSocial(t, dbs[1], cfg, p)
	b := one.browser()
	b.begin(p, "acme", nil).arrive().lead("/new")
	id := b.accountID("acme")
	one.clock.advance(time.Hour)
	two.clock.advance(time.Hour)
	p.now = two.clock.Now
	onTwo := &browser{a: two.app, cookies: b.cookies, ip: b.ip, header: b.header}

	// The provider responds to node two only when node one has its response.
	arrived, done := make(chan struct{}), make(chan struct{})
	var order sync.Mutex
	first := true
	p.handlers["/token"] = func(w http.ResponseWriter, r *http.Request) {
		order.Lock()
		mine := first
		first = false
		order.Unlock()
		if mine {
			close(arrived)
			<-done
		}
		p.token(w, r)
	}
	var late object
	var wg sync.WaitGroup
	wg.Go(func() { late = decoded[object](onTwo.post("/get-access-token", object{"accountId": id})) })
	<-arrived
	early := decoded[object](b.post("/get-access-token", object{"accountId": id}).ok())
	close(done)
	wg.Wait()
	if early["accessToken"] == nil || late["accessToken"] != early["accessToken"] {
		t.Errorf("got %v and %v", early, late)
	}
}

func TestTokensWithoutRefresh(t *testing.T) {
	each(t, func(t *testing.T, w *world, p *idp) {
		p.tokens = object{"refresh_token": nil, "expires_in": nil}
		b := w.browser()
		b.begin(p, "acme", nil).arrive().lead("/new")
		id := b.accountID("acme")
		w.clock.advance(100 * time.Hour)
		if got := decoded[object](b.post("/get-access-token", object{"accountId": id}).ok()); got["accessTokenExpiresAt"] != nil {
			t.Errorf("got %v", got)
		}
		b.post("/refresh-token", object{"accountId": id}).want(400, "REFRESH_TOKEN_NOT_FOUND")
		p.tokens = object{}
		b.begin(p, "acme", nil).arrive().lead("/welcome")
		p.tokens = object{"refresh_token": nil}
		b.begin(p, "acme", nil).arrive().lead("/welcome") // the one of before stays in force
		b.post("/refresh-token", object{"accountId": id}).ok()
	})
}
