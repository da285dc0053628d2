// Package controlplanetest runs a control plane behind the kit's router, for tests of the kit's
// packages. Tests of applications use kittest.
package controlplanetest

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"

	"github.com/kitbackend/kit/audit"
	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/controlplane"
	"github.com/kitbackend/kit/controlplane/client"
	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/internal/mount"
	_ "github.com/kitbackend/kit/internal/provoked" // records the refusals that the tests provoke
	"github.com/kitbackend/kit/jobs"
	"github.com/kitbackend/kit/kittest"
	"github.com/kitbackend/kit/kv"
	"github.com/kitbackend/kit/pubsub"
)

// Options configure a [World]; zero fields have defaults.
type Options struct {
	Config controlplane.Config
	// Others are composed before the control plane.
	Others []capability.Capability
	// Clock, Bus, and Identity may be shared by the nodes of one deployment.
	Clock       *kittest.Clock
	Bus         *pubsub.Bus
	Identity    *client.Identity
	Log         *slog.Logger
	BaseURL     string
	Environment string
	// Unconnected creates no connection for the environment.
	Unconnected bool
}

// World is one node.
type World struct {
	*controlplane.ControlPlane
	http.Handler
	Trail    *audit.Audit
	DB       *database.DB
	Clock    *kittest.Clock
	Identity client.Identity
	t        testing.TB
}

// New creates a node on a database and connects its identity.
func New(t testing.TB, db *database.DB, o Options) *World {
	t.Helper()
	o = o.withDefaults(t)
	db.UseClock(o.Clock.Now)
	base, err := url.Parse(o.BaseURL)
	must(t, err)
	host := capability.Host{
		DB: db, Jobs: jobs.New(db, o.Bus, jobs.Options{Log: o.Log, Now: o.Clock.Now}), PubSub: o.Bus, Log: o.Log,
		Now: o.Clock.Now, Environment: o.Environment, BaseURL: base, InternalPrefix: "/__kit",
	}
	w := &World{DB: db, Clock: o.Clock, Identity: *o.Identity, t: t}
	w.Trail, err = audit.New(host, audit.Config{}, audit.Peers{})
	must(t, err)
	composed := append([]capability.Capability{w.Trail.Capability()}, o.Others...)
	w.ControlPlane, err = controlplane.New(host, o.Config, controlplane.Peers{
		Audit: w.Trail, Composed: func() []capability.Capability { return composed }, Version: "1.2.3",
	})
	must(t, err)
	composed = append(composed, w.Capability())
	sets := []database.Migrations{jobs.Migrations(), mount.Migrations(), kv.Migrations()}
	var table []mount.Entry
	for _, c := range composed {
		sets = append(sets, c.Lines()...)
		for _, r := range c.Routes {
			table = append(table, mount.Entry{Domain: c.Domain(), Route: r})
		}
	}
	must(t, db.Migrate(context.Background(), sets...))
	t.Cleanup(func() { must(t, w.Capability().Close(context.Background())) })
	machines := w.Machines()
	w.Handler = mount.New(mount.Config{
		Entries: table, Machines: &machines, Record: w.record, DB: db, Log: o.Log, Now: o.Clock.Now, BaseURL: base,
	})
	if !o.Unconnected {
		must(t, w.Connect(context.Background(), Connection(w.Identity)))
	}
	return w
}

func (o Options) withDefaults(t testing.TB) Options {
	if o.Clock == nil {
		o.Clock = kittest.NewClock()
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.BaseURL == "" {
		o.BaseURL = "https://example.com"
	}
	if o.Environment == "" {
		o.Environment = "test"
	}
	if o.Bus == nil {
		o.Bus = pubsub.NewMemory()
		t.Cleanup(func() { must(t, o.Bus.Close()) })
	}
	if o.Identity == nil {
		prefix := o.Config.BasePath
		if prefix == "" {
			prefix = "/control-plane"
		}
		identity, err := client.Generate(o.BaseURL+prefix, o.Environment, "https://console.example")
		must(t, err)
		o.Identity = &identity
	}
	return o
}

func (w *World) record(r *http.Request, d mount.Decision) error {
	e := audit.Event{Action: d.Action}
	if d.Refusal != nil {
		e.Outcome, e.Code = audit.OutcomeOf(d.Refusal), d.Refusal.Code
	}
	return w.Trail.Record(r.Context(), e)
}

// Connection returns the connection that begins with an identity's key.
func Connection(i client.Identity) controlplane.Connection {
	return controlplane.Connection{Issuer: i.Issuer, PublicKey: controlplane.NewJWK(i.Public())}
}

// Client returns a client that calls this node as an identity, without a network.
func (w *World) Client(i client.Identity) *client.Client {
	c, err := client.New(i, client.WithClock(w.Clock.Now), client.WithHTTP(&http.Client{Transport: transport{w.Handler}}))
	must(w.t, err)
	return c
}

// transport sends requests to a handler.
type transport struct{ handler http.Handler }

func (t transport) RoundTrip(r *http.Request) (*http.Response, error) {
	inner := r.Clone(r.Context())
	inner.RemoteAddr = "127.0.0.1:50000"
	if inner.Body == nil {
		inner.Body = http.NoBody
	}
	rec := httptest.NewRecorder()
	t.handler.ServeHTTP(rec, inner)
	return rec.Result(), nil
}

// Actions returns the actions of the audit events, newest first.
func (w *World) Actions() []string {
	page, err := w.Trail.ListEvents(context.Background(), audit.Filter{}, capability.NewPage(200, ""))
	must(w.t, err)
	actions := make([]string, len(page.Items))
	for i, e := range page.Items {
		actions[i] = e.Action
		if e.Code != "" {
			actions[i] += " " + e.Code
		}
	}
	return actions
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
