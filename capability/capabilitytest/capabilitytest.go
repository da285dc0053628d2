// Package capabilitytest is the suite every capability passes: that it
// assembles, that moving its prefix moves all of it, that its rows, keys and
// refusals are complete, and that its migrations apply to every database.
package capabilitytest

import (
	"context"
	"io/fs"
	"log/slog"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/database/databasetest"
	"github.com/kitbackend/kit/hooks"
	"github.com/kitbackend/kit/internal/seal"
	"github.com/kitbackend/kit/jobs"
	"github.com/kitbackend/kit/pubsub"
)

// Build makes the capability on a host with a base path; "" is its default.
type Build func(h capability.Host, basePath string) (capability.Capability, error)

// NewHost returns a host for a capability: the database, the wall clock, and the environment
// "test".
func NewHost(t testing.TB, db *database.DB) capability.Host {
	t.Helper()
	base, err := url.Parse("http://localhost:8080")
	if err != nil {
		t.Fatal(err)
	}
	bus := pubsub.NewMemory()
	t.Cleanup(func() { _ = bus.Close() })
	log := slog.New(slog.DiscardHandler)
	keys, err := seal.Load(capability.Sandbox, func(string) string { return "" })
	if err != nil {
		t.Fatal(err)
	}
	return capability.Host{
		DB: db, Jobs: jobs.New(db, bus, jobs.Options{Log: log, Now: time.Now}), PubSub: bus, Log: log,
		Now: time.Now, Environment: "test", BaseURL: base, InternalPrefix: "/__kit",
		Sealing: func() (capability.Sealer, error) { return keys, nil }, Hooks: hooks.New(),
	}
}

// Run holds a capability to the rules of the seam. It calls Export and Erase for a user who has
// nothing.
func Run(t *testing.T, build Build) {
	t.Helper()
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		c := mustBuild(t, build, db, "")
		t.Run("migrations", func(t *testing.T) { migrations(t, c, db) })
		t.Run("life", func(t *testing.T) { life(t, c) })
		t.Run("close", func(t *testing.T) {
			if c.Close == nil {
				return
			}
			if err := c.Close(context.Background()); err != nil {
				t.Error(err)
			}
		})
	})
	db, err := database.OpenMemory()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	c := mustBuild(t, build, db, "")
	t.Run("rows", func(t *testing.T) { rows(t, c) })
	t.Run("prefix", func(t *testing.T) { prefix(t, c, mustBuild(t, build, db, "/moved/there")) })
	t.Run("refusals", func(t *testing.T) { refusals(t, c) })
	t.Run("manifest", func(t *testing.T) { manifest(t, c) })
}

func mustBuild(t *testing.T, build Build, db *database.DB, basePath string) capability.Capability {
	t.Helper()
	c, err := build(NewHost(t, db), basePath)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// migrations apply, and apply again harmlessly.
func migrations(t *testing.T, c capability.Capability, db *database.DB) {
	lines := c.Lines()
	if len(lines) == 0 {
		return
	}
	if c.Database != db {
		t.Error("Database is not the host's")
	}
	for _, line := range lines {
		tables(t, line)
	}
	for range 2 {
		if err := db.Migrate(context.Background(), append([]database.Migrations{jobs.Migrations()}, lines...)...); err != nil {
			t.Fatal(err)
		}
	}
}

// life holds that a user of whom nothing is known can be exported and erased,
// and again after that.
func life(t *testing.T, c capability.Capability) {
	if c.NoUserData != "" {
		if c.Export != nil || c.Erase != nil {
			t.Error("NoUserData together with Export or Erase")
		}
		return
	}
	if c.Export == nil || c.Erase == nil {
		t.Fatal("neither Export and Erase nor NoUserData")
	}
	nobody := capability.Person{ID: "nobody", Emails: []string{"nobody@example.com"}}
	for range 2 {
		err := c.Export(context.Background(), nobody, func(kind string, record any) error {
			t.Errorf("exported %s %+v of nobody", kind, record)
			return nil
		})
		if err != nil {
			t.Errorf("export of nobody: %v", err)
		}
		if done, err := c.Erase(context.Background(), nobody); err != nil || done.Removed != 0 {
			t.Errorf("erasure of nobody: %+v %v, want nothing removed", done, err)
		}
	}
}

var createTable = regexp.MustCompile(`(?im)^\s*CREATE TABLE (?:IF NOT EXISTS )?([a-z0-9_]+)`)

// tables are named after the capability, or the part of it they belong to.
func tables(t *testing.T, line database.Migrations) {
	prefix := strings.ReplaceAll(line.Name, "-", "")
	_ = fs.WalkDir(line.FS, ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := fs.ReadFile(line.FS, path)
		if err != nil {
			t.Fatal(err)
		}
		for _, match := range createTable.FindAllStringSubmatch(string(text), -1) {
			if !strings.HasPrefix(match[1], prefix) {
				t.Errorf("%s: table %s is not named after %s", path, match[1], line.Name)
			}
		}
		return nil
	})
}

// own reports whether a code is of the capability's domain: a row may refuse with
// those of its peers too.
func own(c capability.Capability, e *capability.Error) bool {
	domain, _, _ := strings.Cut(e.Code, "/")
	return slices.ContainsFunc(c.Refusals, func(o *capability.Error) bool { return strings.HasPrefix(o.Code, domain+"/") })
}

func rows(t *testing.T, c capability.Capability) {
	for _, r := range c.Routes {
		row := r.Method + " " + r.Path
		if !r.Guard.Valid() || !r.Handle.Valid() {
			t.Errorf("%s: no guard or no handler", row)
		}
		if r.Summary == "" {
			t.Errorf("%s: no summary", row)
		}
		for _, e := range r.Refusals {
			if own(c, e) && !slices.Contains(c.Refusals, e) {
				t.Errorf("%s: refuses with %s, which the capability does not list", row, e.Code)
			}
		}
		if strings.Contains(r.Path, "/admin/") && r.Guard.Strategy() != capability.StrategyControlPlane {
			t.Errorf("%s: a path with /admin/ is for machine credentials, so its guard is ControlPlane; a row for staff with a scope has another path", row)
		}
	}
}

// prefix holds rule 2 of the specification: one key moves every route.
func prefix(t *testing.T, at, moved capability.Capability) {
	if at.Prefix == "" {
		return
	}
	if moved.Prefix != "/moved/there" {
		t.Errorf("Prefix is %q after the move", moved.Prefix)
	}
	for i, r := range at.Routes {
		rest, ok := strings.CutPrefix(r.Path, at.Prefix)
		if ok && moved.Routes[i].Path != "/moved/there"+rest {
			t.Errorf("%s stayed at %s", r.Path, moved.Routes[i].Path)
		}
	}
}

func refusals(t *testing.T, c capability.Capability) {
	form := regexp.MustCompile(`^[a-z0-9]+/[a-z_]+$`)
	var seen []string
	for _, e := range c.Refusals {
		if !form.MatchString(e.Code) || !strings.HasPrefix(e.Code, c.Domain()+"/") {
			t.Errorf("%s is not a code of the domain", e.Code)
		}
		if slices.Contains(seen, e.Code) {
			t.Errorf("%s is listed twice", e.Code)
		}
		if e.Status < 400 || e.Status > 599 || e.Message == "" {
			t.Errorf("%s has no status or message", e.Code)
		}
		seen = append(seen, e.Code)
	}
}

func manifest(t *testing.T, c capability.Capability) {
	if c.Version == "" {
		t.Error("no version")
	}
	for _, key := range c.Config {
		if key.Key == "" || key.Summary == "" {
			t.Errorf("config key %q has no name or summary", key.Key)
		}
	}
}
