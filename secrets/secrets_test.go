package secrets_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/kitbackend/kit/audit"
	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/capability/capabilitytest"
	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/database/databasetest"
	"github.com/kitbackend/kit/internal/seal"
	"github.com/kitbackend/kit/jobs"
	"github.com/kitbackend/kit/secrets"
	"github.com/kitbackend/kit/secrets/secretstest"
)

// masterKeys returns one master key for each letter, in their order.
func masterKeys(t testing.TB, letters string) *seal.Keys {
	t.Helper()
	var list []string
	for _, letter := range strings.Split(letters, "") {
		list = append(list, letter+":"+base64.StdEncoding.EncodeToString([]byte(strings.Repeat(letter, 32))))
	}
	keys, err := seal.Load(capability.Production, func(string) string { return strings.Join(list, ",") })
	if err != nil {
		t.Fatal(err)
	}
	return keys
}

// node is secrets with its dependencies and a clock of its own.
type node struct {
	*secrets.Secrets
	t     testing.TB
	host  capability.Host
	audit *audit.Audit
	log   *bytes.Buffer
	mu    sync.Mutex
	at    time.Time
}

func (n *node) now() time.Time {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.at
}

func (n *node) advance(d time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.at = n.at.Add(d)
}

var payments = secrets.Secret{
	Name: "payments-provider-credentials",
	Blocks: []secrets.Block{
		{Name: "stripe", Required: []string{"secretKey", "webhookSecret"}},
		{Name: "paddle", Required: []string{"apiKey"}},
	},
}

var bucket = secrets.Secret{
	Name: "storage-bucket-credentials",
	Blocks: []secrets.Block{{
		Name: "bucket", Required: []string{"accountId", "bucketName"}, Optional: []string{"accessKeyId", "secretAccessKey", "token"},
		Together: [][]string{{"accessKeyId", "secretAccessKey"}},
	}},
}

func sealing(keys *seal.Keys) func() (capability.Sealer, error) {
	return func() (capability.Sealer, error) { return keys, nil }
}

func newNode(t testing.TB, db *database.DB, cfg secrets.Config) *node {
	t.Helper()
	n := &node{t: t, log: new(bytes.Buffer), at: time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)}
	n.host = capabilitytest.NewHost(t, db)
	n.host.Now = n.now
	db.UseClock(n.now)
	n.host.Log = slog.New(slog.NewJSONHandler(n.log, nil))
	n.host.Sealing = sealing(masterKeys(t, "k"))
	n.host.Jobs = jobs.New(db, n.host.PubSub, jobs.Options{Log: n.host.Log, Now: n.now})
	var err error
	if n.audit, err = audit.New(n.host, audit.Config{}, audit.Peers{}); err != nil {
		t.Fatal(err)
	}
	if n.Secrets, err = secrets.New(n.host, cfg, secrets.Peers{Audit: n.audit}); err != nil {
		t.Fatal(err)
	}
	c := n.Capability()
	if err := n.host.Jobs.Register(c.Jobs...); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close(context.Background()) })
	migrate(t, db, n.audit.Capability(), c)
	return n
}

func migrate(t testing.TB, db *database.DB, parts ...capability.Capability) {
	t.Helper()
	sets := []database.Migrations{jobs.Migrations()}
	for _, c := range parts {
		sets = append(sets, database.Migrations{Name: c.Name, FS: c.Migrations})
	}
	if err := db.Migrate(context.Background(), sets...); err != nil {
		t.Fatal(err)
	}
}

// with returns the node started again with other master keys.
func (n *node) with(keys *seal.Keys, list ...secrets.Secret) *node {
	n.t.Helper()
	host := n.host
	host.Sealing = sealing(keys)
	s, err := secrets.New(host, secrets.Config{Secrets: list}, secrets.Peers{Audit: n.audit})
	if err != nil {
		n.t.Fatal(err)
	}
	return &node{Secrets: s, t: n.t, host: host, audit: n.audit, log: n.log, at: n.now()}
}

// restart is with, and runs the jobs with these keys; the log of the new node is empty.
func (n *node) restart(keys *seal.Keys, list ...secrets.Secret) *node {
	n.t.Helper()
	empty := &node{Secrets: n.Secrets, t: n.t, host: n.host, audit: n.audit, log: new(bytes.Buffer), at: n.now()}
	empty.host.Log = slog.New(slog.NewJSONHandler(empty.log, nil))
	empty.host.Now = empty.now
	empty.host.Jobs = jobs.New(n.host.DB, n.host.PubSub, jobs.Options{Log: empty.host.Log, Now: empty.now})
	n.host.DB.UseClock(empty.now)
	empty.Secrets = empty.with(keys, list...).Secrets
	if err := empty.host.Jobs.Register(empty.Capability().Jobs...); err != nil {
		n.t.Fatal(err)
	}
	return empty
}

func (n *node) rotate(name string, change secrets.Blocks) secrets.Rotation {
	n.t.Helper()
	r, err := n.Rotate(context.Background(), name, change)
	if err != nil {
		n.t.Fatal(err)
	}
	return r
}

func (n *node) runJobs() {
	n.t.Helper()
	if _, err := n.host.Jobs.RunDue(context.Background()); err != nil {
		n.t.Fatal(err)
	}
}

func (n *node) handle(name string) *secrets.Handle {
	n.t.Helper()
	h, err := n.Handle(name)
	if err != nil {
		n.t.Fatal(err)
	}
	return h
}

func (n *node) rotations(name string) []secrets.Rotation {
	n.t.Helper()
	page, err := n.ListRotations(context.Background(), name, capability.NewPage(50, ""))
	if err != nil {
		n.t.Fatal(err)
	}
	return page.Items
}

// field returns a field of the current version, or "".
func (n *node) field(name, block, field string) string {
	n.t.Helper()
	data, err := n.handle(name).Get(context.Background())
	if err != nil && !errors.Is(err, secrets.ErrNotFound) {
		n.t.Fatal(err)
	}
	fields, _ := data.Block(block)
	return fields[field].Reveal()
}

func blocks(block string, pairs ...string) secrets.Blocks {
	fields := secrets.Fields{}
	for i := 0; i < len(pairs); i += 2 {
		fields[pairs[i]] = secrets.NewValue(pairs[i+1])
	}
	return secrets.Blocks{block: fields}
}

func TestCapability(t *testing.T) {
	capabilitytest.Run(t, func(h capability.Host, basePath string) (capability.Capability, error) {
		s, err := secrets.New(h, secrets.Config{BasePath: basePath, Secrets: []secrets.Secret{payments}}, secrets.Peers{})
		if err != nil {
			return capability.Capability{}, err
		}
		return s.Capability(), nil
	})
}

func TestProviders(t *testing.T) {
	t.Run("memory", func(t *testing.T) {
		secretstest.Run(t, func(*testing.T) secrets.Provider { return secrets.NewMemory(time.Now) })
	})
	for name, open := range map[string]func(testing.TB) *database.DB{
		"sqlite":   func(t testing.TB) *database.DB { return databasetest.Memory(t) },
		"file":     func(t testing.TB) *database.DB { return databasetest.File(t) },
		"postgres": func(t testing.TB) *database.DB { return databasetest.Postgres(t) },
	} {
		t.Run(name, func(t *testing.T) {
			secretstest.Run(t, func(t *testing.T) secrets.Provider {
				n := newNode(t, open(t), secrets.Config{})
				return secrets.NewSQL(n.host.DB, masterKeys(t, "k"))
			})
		})
	}
	t.Run("environment", func(t *testing.T) {
		secretstest.RunReadOnly(t, func(_ *testing.T, name string, payload secrets.Value) secrets.Provider {
			return secrets.NewEnvironment(func(variable string) string {
				if variable == "KIT_SECRET_"+strings.ToUpper(strings.ReplaceAll(name, "-", "_")) {
					return payload.Reveal()
				}
				return ""
			})
		})
	})
}

func TestSwappedRowsDoNotOpen(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		n := newNode(t, db, secrets.Config{Secrets: []secrets.Secret{payments, bucket}})
		n.rotate(payments.Name, blocks("paddle", "apiKey", "p1"))
		n.rotate(payments.Name, blocks("paddle", "apiKey", "p2"))
		n.rotate(bucket.Name, blocks("bucket", "accountId", canary, "bucketName", "b"))
		for name, query := range map[string]string{
			"another secret": `UPDATE secrets_version SET sealed = (SELECT sealed FROM secrets_version WHERE name = 'storage-bucket-credentials')
				WHERE name = 'payments-provider-credentials' AND version = 2`,
			"another version": `UPDATE secrets_version SET sealed = (SELECT sealed FROM secrets_version
				WHERE name = 'payments-provider-credentials' AND version = 1) WHERE name = 'payments-provider-credentials' AND version = 2`,
			"renumbered": `UPDATE secrets_version SET version = 3 WHERE name = 'payments-provider-credentials' AND version = 1`,
		} {
			if _, err := db.Exec(context.Background(), query); err != nil {
				t.Fatal(err)
			}
			n.advance(time.Minute)
			fresh, err := secrets.New(n.host, secrets.Config{Secrets: []secrets.Secret{payments}}, secrets.Peers{})
			if err != nil {
				t.Fatal(err)
			}
			h, err := fresh.Handle(payments.Name)
			if err != nil {
				t.Fatal(err)
			}
			if data, err := h.Get(context.Background()); !errors.Is(err, capability.ErrUnavailable) || strings.Contains(err.Error(), canary) {
				t.Errorf("%s: version %d, %v", name, data.Version(), err)
			}
		}
	})
}

func TestRewrap(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		n := newNode(t, db, secrets.Config{Secrets: []secrets.Secret{payments}})
		n.rotate(payments.Name, blocks("paddle", "apiKey", "p1"))
		n.rotate(payments.Name, blocks("paddle", "apiKey", "p2"))
		with := func(letters string) *secrets.Secrets { return n.with(masterKeys(t, letters), payments).Secrets }
		if _, err := with("n").Rewrap(context.Background()); err == nil {
			t.Error("rewrapped without the old master key")
		}
		both := with("nk")
		for _, want := range []int{2, 0} {
			if changed, err := both.Rewrap(context.Background()); changed != want || err != nil {
				t.Errorf("%d %v, want %d", changed, err, want)
			}
		}
		h, err := with("n").Handle(payments.Name)
		if err != nil {
			t.Fatal(err)
		}
		data, err := h.Get(context.Background())
		if fields, _ := data.Block("paddle"); err != nil || fields["apiKey"].Reveal() != "p2" {
			t.Errorf("the new master key alone does not open: %v", err)
		}
	})
}

func TestReadOnlyProvider(t *testing.T) {
	env := secrets.NewEnvironment(func(name string) string {
		return map[string]string{"KIT_SECRET_PAYMENTS_PROVIDER_CREDENTIALS": `{"paddle":{"apiKey":"from-outside"}}`,
			"KIT_SECRET_STORAGE_BUCKET_CREDENTIALS": canary}[name]
	})
	n := newNode(t, databasetest.Memory(t), secrets.Config{Provider: env, Secrets: []secrets.Secret{payments, bucket, newTarget().secret("database-password")}})
	if got := n.field(payments.Name, "paddle", "apiKey"); got != "from-outside" {
		t.Errorf("got %q", got)
	}
	for _, name := range []string{payments.Name, "database-password"} {
		var change secrets.Blocks
		if name == payments.Name {
			change = blocks("paddle", "apiKey", "x")
		}
		if _, err := n.Rotate(context.Background(), name, change); !errors.Is(err, secrets.ErrReadOnly) {
			t.Errorf("%s: %v", name, err)
		}
	}
	n.advance(time.Hour)
	n.runJobs()
	if _, err := n.handle(bucket.Name).Get(context.Background()); !errors.Is(err, capability.ErrUnavailable) || strings.Contains(err.Error(), canary) {
		t.Errorf("a broken variable: %v", err)
	}
}

func TestFaults(t *testing.T) {
	host := capabilitytest.NewHost(t, databasetest.Memory(t))
	host.Environment = capability.Production
	ephemeral, err := seal.Load(capability.Sandbox, func(string) string { return "" })
	if err != nil {
		t.Fatal(err)
	}
	field := []secrets.Block{{Name: "b", Required: []string{"f"}}}
	for name, tt := range map[string]struct {
		keys *seal.Keys
		list []secrets.Secret
		want string
	}{
		"no master key":        {nil, nil, "masterKeys"},
		"made up master key":   {ephemeral, nil, "made up for this run"},
		"bad name":             {masterKeys(t, "k"), []secrets.Secret{{Name: "No", Blocks: field}}, "not a name of a secret"},
		"no blocks":            {masterKeys(t, "k"), []secrets.Secret{{Name: "a"}}, "has no blocks"},
		"no fields":            {masterKeys(t, "k"), []secrets.Secret{{Name: "a", Blocks: []secrets.Block{{Name: "b"}}}}, "has no fields"},
		"block taken":          {masterKeys(t, "k"), []secrets.Secret{{Name: "a", Blocks: append(field, field...)}}, "name of a block"},
		"reserved block":       {masterKeys(t, "k"), []secrets.Secret{{Name: "a", Blocks: []secrets.Block{{Name: "rotation", Required: []string{"id"}}}}}, "name of a block"},
		"field taken":          {masterKeys(t, "k"), []secrets.Secret{{Name: "a", Blocks: []secrets.Block{{Name: "b", Required: []string{"f"}, Optional: []string{"f"}}}}}, "name of a field"},
		"group of required":    {masterKeys(t, "k"), []secrets.Secret{{Name: "a", Blocks: []secrets.Block{{Name: "b", Required: []string{"f"}, Together: [][]string{{"f"}}}}}}, "not optional"},
		"half a rotator":       {masterKeys(t, "k"), []secrets.Secret{{Name: "a", Blocks: field, Rotator: &secrets.Rotator{}}}, "all four steps"},
		"scheduled by hand":    {masterKeys(t, "k"), []secrets.Secret{{Name: "a", Blocks: field, Every: time.Hour}}, "this often"},
		"negative overlap":     {masterKeys(t, "k"), []secrets.Secret{{Name: "a", Blocks: field, Overlap: -1}}, "negative overlap"},
		"declared twice":       {masterKeys(t, "k"), []secrets.Secret{{Name: "a", Blocks: field}, {Name: "a", Blocks: field}}, "declared twice"},
		"all of them together": {masterKeys(t, "k"), []secrets.Secret{{Name: "a"}, {Name: "No", Blocks: field}}, "not a name of a secret"},
	} {
		host.Sealing = nil
		if tt.keys != nil {
			host.Sealing = sealing(tt.keys)
		}
		_, err := secrets.New(host, secrets.Config{Secrets: tt.list}, secrets.Peers{})
		if !errors.As(err, new(*capability.Fault)) || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := secrets.New(host, secrets.Config{Provider: secrets.NewMemory(time.Now)}, secrets.Peers{}); err != nil {
		t.Errorf("a provider of one's own needs no master key: %v", err)
	}
}

func TestStatus(t *testing.T) {
	sys := newTarget()
	n := newNode(t, databasetest.Memory(t), secrets.Config{Secrets: []secrets.Secret{payments, bucket, sys.secret("database-password")}})
	n.rotate(payments.Name, blocks("paddle", "apiKey", canary))
	page, err := n.ListSecrets(context.Background(), capability.NewPage(2, ""))
	if err != nil || len(page.Items) != 2 || page.NextCursor == nil {
		t.Fatalf("%+v %v", page, err)
	}
	rest, err := n.ListSecrets(context.Background(), capability.NewPage(2, *page.NextCursor))
	if err != nil || len(rest.Items) != 1 || rest.NextCursor != nil {
		t.Fatalf("%+v %v", rest, err)
	}
	at := &capability.Time{Time: n.at}
	want := []secrets.SecretStatus{
		{Name: "database-password", Mode: "automatic", Provider: "sql", Blocks: []secrets.BlockStatus{{Name: "login"}}},
		{Name: payments.Name, Mode: "manual", Provider: "sql", Exists: true, Version: 1, LastRotatedAt: at,
			Blocks: []secrets.BlockStatus{{Name: "stripe"}, {Name: "paddle", Present: true}}},
		{Name: bucket.Name, Mode: "manual", Provider: "sql", Blocks: []secrets.BlockStatus{{Name: "bucket"}}},
	}
	got := append(page.Items, rest.Items...)
	if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(secrets.SecretStatus{}, "LastRotation")); diff != "" {
		t.Error(diff)
	}
	if last := got[1].LastRotation; last == nil || last.Status != secrets.StatusSucceeded {
		t.Errorf("%+v", last)
	}
	if text, err := json.Marshal(got); err != nil || strings.Contains(string(text), canary) {
		t.Errorf("%s %v", text, err)
	}
	n.rotate(payments.Name, secrets.Blocks{"paddle": nil})
	page, err = n.ListSecrets(context.Background(), capability.NewPage(2, ""))
	if err != nil || page.Items[1].Exists || page.Items[1].Version != 2 || page.Items[1].LastRotatedAt == nil {
		t.Errorf("%+v %v, want that payments does not exist, since its version 2 has no blocks", page, err)
	}
}
