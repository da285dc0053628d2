package secrets_test

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kitbackend/kit"
	"github.com/kitbackend/kit/audit"
	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/controlplane"
	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/kittest"
	"github.com/kitbackend/kit/secrets"
)

// safeBuffer is a buffer for concurrent writes.
type safeBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *safeBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *safeBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// TestCanaryOverHTTP sends a canary in every way a client can; it must not be in a response, a log
// line, an event or a row.
func TestCanaryOverHTTP(t *testing.T) {
	log := new(safeBuffer)
	var s *secrets.Secrets
	k := kittest.New(t, kit.WithAudit(audit.Config{}), kit.WithControlPlane(controlplane.Config{}), kit.WithLogger(slog.New(slog.NewJSONHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug}))),
		kit.WithCapability(func(k *kit.Kit) (c capability.Capability, err error) {
			s, err = secrets.New(k.Host(), secrets.Config{Secrets: []secrets.Secret{payments, bucket, newTarget().secret("database-password")}},
				secrets.Peers{Audit: k.Audit()})
			if err != nil {
				return c, err
			}
			return s.Capability(), nil
		}))
	status, rotate := k.Machine("secrets:status:read"), k.Machine("secrets:rotate")
	var responses []*kittest.Response
	seen := func(r *kittest.Response) *kittest.Response { responses = append(responses, r); return r }

	path := "/secrets/admin/status/payments-provider-credentials/rotate"
	var done secrets.Rotation
	seen(rotate.Post(path, `{"blocks":{"paddle":{"apiKey":"`+canary+`"}}}`)).Want(202, "").JSON(&done)
	if done.Status != secrets.StatusSucceeded || done.ToVersion != 1 || done.StartedBy != "operator" {
		t.Errorf("%+v", done)
	}
	for body, want := range map[string]struct {
		status int
		code   string
	}{
		`{"blocks":{"stripe":{"secretKey":"` + canary + `"}}}`:                     {422, "secrets/incomplete_block"},
		`{"blocks":{"paddle":{"apiKey":["` + canary + `"]}}}`:                      {400, "kit/invalid_request"},
		`{"blocks":{"paddle":{"apiKey":"a","other":"` + canary + `"}}}`:            {400, "kit/invalid_request"},
		`{"blocks":{"other":{"apiKey":"` + canary + `"}}}`:                         {400, "kit/invalid_request"},
		`{"blocks":{"paddle":"` + canary + `"}}`:                                   {400, "kit/invalid_request"},
		`{"blocks":"` + canary + `"}`:                                              {400, "kit/invalid_request"},
		`{"blocks":{"paddle":{"apiKey":"` + strings.Repeat(canary, 2000) + `"}}}`:  {400, "kit/invalid_request"},
		`{"blocks":{"paddle":{"apiKey":"` + strings.Repeat(canary, 20000) + `"}}}`: {413, "kit/body_too_large"},
		`{"blocks":{"paddle":{"apiKey":"` + canary:                                 {400, "kit/invalid_request"},
		`{"blocks":{}}`: {400, "kit/invalid_request"},
		`{"blocks":{"paddle":{"apiKey":"` + canary + `\u0000"}}}`:                                {400, "kit/invalid_request"},
		`{"blocks":{"paddle":{"apiKey":"` + canary + `"},"paddle":{"apiKey":"` + canary + `"}}}`: {400, "kit/invalid_request"},
	} {
		seen(rotate.Post(path, body)).Want(want.status, want.code)
	}
	seen(rotate.Post("/secrets/admin/status/none/rotate", `{"blocks":{"paddle":{"apiKey":"`+canary+`"}}}`)).Want(404, "secrets/not_found")
	seen(status.Post(path, `{"blocks":{"paddle":{"apiKey":"`+canary+`"}}}`)).Want(403, "controlplane/insufficient_scope")
	seen(rotate.Post("/secrets/admin/status/database-password/rotate", `{}`)).Want(202, "")
	seen(rotate.Post("/secrets/admin/status/database-password/rotate", `{}`)).Want(409, "secrets/rotation_in_progress")
	k.RunJobs()
	seen(status.Get("/secrets/admin/status")).Want(200, "")
	seen(status.Get("/secrets/admin/status/none/rotations")).Want(404, "secrets/not_found")
	var history capability.Items[secrets.Rotation]
	seen(status.Get("/secrets/admin/status/payments-provider-credentials/rotations")).Want(200, "").JSON(&history)
	if len(history.Items) != 1 || history.Items[0].ID != done.ID {
		t.Errorf("%+v", history)
	}

	var actions []string
	page, err := k.Audit().ListEvents(context.Background(), audit.Filter{Subject: audit.Target{Type: "secret", ID: payments.Name}}, capability.NewPage(50, ""))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range page.Items {
		actions = append(actions, e.Action+" by "+string(e.Actor.Kind)+" "+string(e.Detail))
	}
	if diff := cmp.Diff([]string{
		`secrets/rotation_succeeded by control-plane {"fromVersion":0,"startedBy":"operator","toVersion":1}`,
		`secrets/rotation_started by control-plane {"fromVersion":0,"given":["paddle"],"removed":null,"startedBy":"operator"}`,
	}, actions); diff != "" {
		t.Error(diff)
	}

	var everything strings.Builder
	for _, r := range responses {
		everything.Write(r.Body)
	}
	everything.WriteString(log.String())
	if _, err := k.Audit().Export(context.Background(), &everything, audit.Filter{}); err != nil {
		t.Fatal(err)
	}
	dump(t, k.Database(), &everything)
	if text := everything.String(); strings.Contains(text, canary) {
		at := strings.Index(text, canary)
		t.Errorf("shows: …%s…", text[max(0, at-200):at+40])
	}
	h, err := s.Handle(payments.Name)
	if err != nil {
		t.Fatal(err)
	}
	data, err := h.Get(context.Background())
	if fields, _ := data.Block("paddle"); err != nil || fields["apiKey"].Reveal() != canary {
		t.Errorf("the program does not get it: %v", err)
	}
}

// dump writes every row of every table of a SQLite database.
func dump(t *testing.T, db *database.DB, out *strings.Builder) {
	t.Helper()
	text := func(s database.Scanner) (text string, err error) { return text, s.Scan(&text) }
	tables, err := database.All(context.Background(), db, text, `SELECT name FROM sqlite_master WHERE type = 'table'`)
	if err != nil {
		t.Fatal(err)
	}
	for _, table := range tables {
		columns, err := database.All(context.Background(), db, text, `SELECT name FROM pragma_table_info($1)`, table)
		if err != nil {
			t.Fatal(err)
		}
		for _, column := range columns {
			values, err := database.All(context.Background(), db, text, `SELECT COALESCE(CAST("`+column+`" AS TEXT), '') FROM `+table)
			if err != nil {
				t.Fatal(err)
			}
			encoded, _ := json.Marshal(values)
			out.Write(encoded)
		}
	}
}
