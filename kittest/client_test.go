package kittest_test

import (
	"errors"
	"fmt"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/kitbackend/kit"
	"github.com/kitbackend/kit/audit"
	"github.com/kitbackend/kit/auth"
	"github.com/kitbackend/kit/kittest"
)

// failing is a test that records why it failed.
type failing struct {
	testing.TB
	why string
}

func (f *failing) Fatalf(format string, args ...any) {
	f.why = fmt.Sprintf(format, args...)
	runtime.Goexit()
}

// TestResponseThatIsCutOffFailsTheTest checks that only the test fails, not the whole test program.
func TestResponseThatIsCutOffFailsTheTest(t *testing.T) {
	f := &failing{TB: t}
	k := kittest.New(f)
	ended := make(chan any, 1)
	go func() {
		defer func() { ended <- recover() }()
		k.Anonymous().Via(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })).Get("/torn")
	}()
	if p := <-ended; p != nil || !strings.Contains(f.why, "GET /torn") {
		t.Errorf("the test ended by %v, failed for %q", p, f.why)
	}
}

// TestClientOfAnErasedUserIsRefused: as a client that still has the token or the cookie of an
// account that is no more.
func TestClientOfAnErasedUserIsRefused(t *testing.T) {
	k := kittest.New(t, kit.WithAudit(audit.Config{}), kit.WithAuth(auth.Config{}))
	clients := map[string]*kittest.Client{"User": k.User("ada"), "Browser": k.Browser("ada"), "Via": k.Browser("ada").Via(k)}
	for name, c := range clients {
		if r := c.Get("/auth/devices"); r.Status != 200 {
			t.Errorf("%s before: %d %s", name, r.Status, r.Body)
		}
	}
	if err := k.EraseUser(t.Context(), "ada"); err != nil {
		t.Fatal(err)
	}
	refused := func(when string) {
		t.Helper()
		for name, c := range clients {
			if r := c.Get("/auth/devices"); r.Status != 401 || r.Code() != "auth/unauthenticated" {
				t.Errorf("%s, %s: %d %s, want 401 auth/unauthenticated", name, when, r.Status, r.Body)
			}
		}
	}
	refused("requested")
	k.RunJobs()
	refused("done")
	k.Clock.Advance(time.Hour)
	refused("an hour later")
}

func TestErasedUserFailsTheTest(t *testing.T) {
	f := &failing{TB: t}
	k := kittest.New(f, kit.WithAudit(audit.Config{}), kit.WithAuth(auth.Config{}))
	k.User("ada")
	if err := k.EraseUser(t.Context(), "ada"); err != nil {
		t.Fatal(err)
	}
	k.RunJobs()
	for name, call := range map[string]func(){"User": func() { k.User("ada") }, "Browser": func() { k.Browser("ada") }} {
		f.why = ""
		ended := make(chan any, 1)
		go func() {
			defer func() { ended <- recover() }()
			call()
		}()
		if p := <-ended; p != nil || !strings.Contains(f.why, "user ada was erased") {
			t.Errorf("%s ended by %v, failed for %q", name, p, f.why)
		}
	}
	if _, err := k.Auth().User(t.Context(), "ada"); !errors.Is(err, auth.ErrUserNotFound) {
		t.Errorf("the erased user: %v", err)
	}
	if err := k.Auth().EnsureUser(t.Context(), "ada"); err != nil {
		t.Fatal(err)
	}
	k.User("ada") // another one of the same id, which the test has made
}
