package audit_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kitbackend/kit"
	"github.com/kitbackend/kit/audit"
	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/controlplane"
	"github.com/kitbackend/kit/kittest"
)

func TestReadingOverHTTP(t *testing.T) {
	k := kittest.New(t, kit.WithAudit(audit.Config{}), kit.WithControlPlane(controlplane.Config{}))
	ctx := capability.WithRequestInfo(context.Background(), &capability.RequestInfo{IP: "203.0.113.7", UserAgent: "canary-agent"})
	start := k.Clock.Now()
	for i, e := range []audit.Event{
		{Action: "shop/ordered", Actor: audit.Actor{Kind: audit.ActorUser, ID: "ada"}, Subject: audit.Target{Type: "order", ID: "1"}, Detail: "canary-detail"},
		{Action: "shop/shipped", Subject: audit.Target{Type: "order", ID: "1"}},
		{Action: "shop/refused", Outcome: audit.OutcomeRefused, Code: "shop/sold_out"},
	} {
		k.Clock.Advance(time.Duration(i) * time.Hour)
		if err := k.Audit().Record(ctx, e); err != nil {
			t.Fatal(err)
		}
	}
	list := func(query string) (actions []string) {
		t.Helper()
		var page struct {
			Items []struct{ Namespace, Action string }
		}
		response := k.Machine("audit:events:read").Get("/audit/events?namespace=shop&"+query).Want(200, "")
		if text := string(response.Body); strings.Contains(text, "canary") || strings.Contains(text, "203.0.113.7") {
			t.Errorf("a list shows detail or personal data: %s", text)
		}
		response.JSON(&page)
		for _, item := range page.Items {
			actions = append(actions, item.Action)
		}
		return actions
	}
	for query, want := range map[string][]string{
		"":                                {"shop/refused", "shop/shipped", "shop/ordered"},
		"action=shop/shipped":             {"shop/shipped"},
		"actorKind=user":                  {"shop/ordered"},
		"actorId=ada":                     {"shop/ordered"},
		"subjectType=order&subjectId=1":   {"shop/shipped", "shop/ordered"},
		"outcome=refused":                 {"shop/refused"},
		"from=" + wire(start.Add(1)):      {"shop/refused", "shop/shipped", "shop/ordered"}, // within the millisecond
		"from=" + wire(start.Add(3600e9)): {"shop/refused", "shop/shipped"},
		"to=" + wire(start.Add(3600e9)):   {"shop/ordered"},
		"actorId=bob":                     nil,
	} {
		if diff := cmp.Diff(want, list(query)); diff != "" {
			t.Errorf("?%s: %s", query, diff)
		}
	}
	for _, query := range []string{
		"actorKind=robot", "outcome=maybe", "from=yesterday", "to=1", "limit=0", "cursor=x",
		"action=" + strings.Repeat("x", 257), "subjectId=%00", "actorId=%ff",
	} {
		k.Machine("audit:events:read").Get("/audit/events?"+query).Want(400, "kit/invalid_request")
	}

	events, err := k.Audit().ListEvents(context.Background(), audit.Filter{Action: "shop/ordered"}, capability.NewPage(1, ""))
	if err != nil {
		t.Fatal(err)
	}
	path := "/audit/events/" + events.Items[0].ID
	k.Machine("audit:events:read").Get(path).Want(403, "controlplane/insufficient_scope")
	detail := k.Machine("audit:events:read_detail")
	var event struct {
		ID, Detail, IP, UserAgent string
		Seal                      *audit.Seal
	}
	detail.Get(path).Want(200, "").JSON(&event)
	if event.Detail != "canary-detail" || event.IP != "203.0.113.7" || event.UserAgent != "canary-agent" || event.Seal != nil {
		t.Errorf("%+v", event)
	}
	if _, err := k.Audit().Seal(context.Background()); err != nil {
		t.Fatal(err)
	}
	detail.Get(path).Want(200, "").JSON(&event)
	if event.Seal == nil || event.Seal.Seq == 0 || len(event.Seal.Hash) != 32 {
		t.Errorf("no seal: %+v", event)
	}
	detail.Get("/audit/events/none").Want(404, "audit/event_not_found")
	detail.Get("/audit/events/"+strings.Repeat("x", 300)).Want(404, "audit/event_not_found")
}

func wire(at time.Time) string { return url.QueryEscape(at.Format(time.RFC3339)) }

func TestSealingIsAJob(t *testing.T) {
	k := kittest.New(t, kit.WithAudit(audit.Config{}), kit.WithControlPlane(controlplane.Config{}))
	if err := k.Audit().Record(context.Background(), audit.Event{Action: "test/done"}); err != nil {
		t.Fatal(err)
	}
	k.RunJobs()
	k.Clock.Advance(time.Minute)
	k.RunJobs()
	report, err := k.Audit().Verify(context.Background())
	if err != nil || report.Break != nil || report.Sealed != 1 || report.Waiting != 0 {
		t.Errorf("%+v %v", report, err)
	}
}

func TestRetentionNeedsMasterKeys(t *testing.T) {
	for want, cfg := range map[string]audit.Config{
		"shorter than a day":  {Retention: time.Hour},
		"no master keys":      {Retention: 48 * time.Hour},
		"is shorter than a d": {Retention: -1},
	} {
		_, err := audit.New(capability.Host{}, cfg, audit.Peers{})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v", cfg, err)
		}
	}
}

func TestExport(t *testing.T) {
	k := kittest.New(t, kit.WithAudit(audit.Config{}), kit.WithControlPlane(controlplane.Config{}))
	ctx := capability.WithRequestInfo(context.Background(), &capability.RequestInfo{IP: "203.0.113.7"})
	const n = 1203 // more than two pages
	for i := range n {
		if err := k.Audit().Record(ctx, audit.Event{Action: "test/done", Detail: i, Targets: []audit.Target{{Type: "user", ID: "ada"}}}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := k.Audit().Seal(ctx); err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	if written, err := k.Audit().Export(ctx, &out, audit.Filter{Namespace: "test"}); written != n || err != nil {
		t.Fatalf("%d %v", written, err)
	}
	lines := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
	if len(lines) != n {
		t.Fatalf("%d lines", len(lines))
	}
	var prev []byte
	for i, text := range lines {
		var line struct {
			audit.Entry
			Hash, Commitment, Salt []byte
			Seal                   audit.Seal
		}
		if err := json.Unmarshal([]byte(text), &line); err != nil {
			t.Fatal(err)
		}
		if string(line.Detail) != fmt.Sprint(i) || line.IP != "203.0.113.7" || len(line.Commitment) != 32 || len(line.Salt) != 16 || len(line.Targets) != 1 {
			t.Fatalf("line %d: %s", i, text)
		}
		if i > 0 && string(line.Seal.Prev) != string(prev) {
			t.Fatalf("line %d does not follow", i)
		}
		prev = line.Seal.Hash
	}
	if written, err := k.Audit().Export(ctx, &failing{}, audit.Filter{}); err == nil {
		t.Errorf("%d lines written to a broken pipe", written)
	}
}

type failing struct{}

func (*failing) Write([]byte) (int, error) { return 0, context.Canceled }
