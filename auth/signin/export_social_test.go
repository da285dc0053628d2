package signin

import (
	"context"
	"net/http"
	"time"

	"github.com/kitbackend/kit/auth"
	"github.com/kitbackend/kit/auth/signin/oauth"
	"github.com/kitbackend/kit/capability"
)

// TestLibrary opens the library to tests.
type TestLibrary struct{ *library }

// Quick is New whose passwords cost little to hash: tests sign up a thousand users.
func Quick(cfg Config) func(capability.Host, *auth.LibraryHost) (auth.Library, error) {
	var l *TestLibrary
	return NewForTest(cfg, &l)
}

// NewForTest is Quick that also hands out the library.
func NewForTest(cfg Config, out **TestLibrary) func(capability.Host, *auth.LibraryHost) (auth.Library, error) {
	return func(host capability.Host, a *auth.LibraryHost) (auth.Library, error) {
		l, err := newLibrary(host, a, cfg)
		if err != nil {
			return auth.Library{}, err
		}
		l.hasher = newHasher(hashCost{memory: 64, time: 1, threads: 1})
		*out = &TestLibrary{l}
		return l.describe(), nil
	}
}

// Route has the client of a provider ask through a transport of the test.
func (l *TestLibrary) Route(provider string, next http.RoundTripper) {
	l.reach(provider, oauth.Network{Transport: next})
}

// Hurry bounds what a provider's client waits for a response.
func (l *TestLibrary) Hurry(provider string, timeout time.Duration) {
	l.reach(provider, oauth.Network{Timeout: timeout})
}

func (l *TestLibrary) reach(provider string, network oauth.Network) {
	l.providers.clients[provider] = oauth.NewClient(l.providers.clients[provider].Provider, network, l.host.Now)
}

// Trim keeps the youngest of the states.
func (l *TestLibrary) Trim(ctx context.Context, keep int) error { return l.store.trimStates(ctx, keep) }

// StatesPerBrowser bounds the sign-ins one browser has begun.
const StatesPerBrowser = statesPerBrowser

// Rewrap is what auth is told to rewrap by.
func (l *TestLibrary) Rewrap(ctx context.Context) (int, error) { return l.rewrap(ctx) }
