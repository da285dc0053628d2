package operate_test

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/kitbackend/kit"
	"github.com/kitbackend/kit/audit"
	"github.com/kitbackend/kit/auth"
	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/database/databasetest"
	"github.com/kitbackend/kit/jobs"
	"github.com/kitbackend/kit/kittest"
	"github.com/kitbackend/kit/ledger"
	"github.com/kitbackend/kit/operate"
)

// world returns a kit with a job binding that fails while *failing is true.
func world(t *testing.T, db *database.DB, failing *bool) *kittest.Kit {
	t.Helper()
	return kittest.New(t, kit.WithDatabase(db), kit.WithAudit(audit.Config{}), kit.WithAuth(auth.Config{}),
		kit.WithLedger(ledger.Config{Currencies: []ledger.Currency{{Code: "coins"}}}),
		kit.WithCapability(func(*kit.Kit) (capability.Capability, error) {
			return capability.Capability{Name: "mill", NoUserData: "a test", Jobs: []jobs.Binding{{Name: "MILL", Run: func(context.Context, jobs.Job) error {
				if *failing {
					return jobs.Permanent(errors.New("the mill is broken"))
				}
				return nil
			}}}}, nil
		}))
}

func TestCommands(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		failing := true
		k := world(t, db, &failing)
		run := func(args ...string) (string, error) {
			var out bytes.Buffer
			err := operate.Run(t.Context(), k.Kit, operate.Options{As: "grace", Out: &out}, args)
			return out.String(), err
		}
		want := func(text string, args ...string) {
			t.Helper()
			if out, err := run(args...); err != nil || !strings.Contains(out, text) {
				t.Errorf("%v: %s %v, want %s", args, out, err, text)
			}
		}
		refused := func(text string, args ...string) {
			t.Helper()
			if out, err := run(args...); err == nil || !strings.Contains(err.Error(), text) {
				t.Errorf("%v: %s %v, want a refusal that says %s", args, out, err, text)
			}
		}
		if _, err := k.Auth().CreateUser(t.Context(), auth.NewUser{ID: "ada", Email: "ada@example.com"}); err != nil {
			t.Fatal(err)
		}
		id, err := k.Jobs().Enqueue(t.Context(), "MILL", nil, jobs.Key("wheat"))
		if err != nil {
			t.Fatal(err)
		}
		k.RunJobs()

		want(`"balanceAfter": 50`, "ledger", "credit", "-memo", "sorry", "ada", "coins", "50", "sorry:1")
		want(`"balanceAfter": 50`, "ledger", "credit", "-memo", "sorry", "ada", "coins", "50", "sorry:1") // a ref counts once
		want(`"balanceAfter": 30`, "ledger", "debit", "ada", "coins", "20", "fee:1")
		refused("available balance", "ledger", "debit", "ada", "coins", "31", "fee:2")
		want(`"userId": "ada"`, "ledger", "credit", "Ada@Example.com", "coins", "1", "gift:1")
		refused("no user has the address", "ledger", "credit", "bob@example.com", "coins", "1", "gift:2")
		want(`"balanceAfter": 30`, "ledger", "debit", "ada", "coins", "1", "fee:3")
		refused("no whole number", "ledger", "debit", "ada", "coins", "1.5", "fee:2")
		refused(`There is no currency "gold"`, "ledger", "credit", "ada", "gold", "1", "fee:2")
		want(`"memo": "sorry"`, "ledger", "find", "sorry:1")
		refused("no transaction under", "ledger", "find", "sorry:2")

		want("the mill is broken", "jobs", "list", "-state", "discarded", "-binding", "MILL", "-limit", "5")
		want(`[]`, "jobs", "list", "-state", "available", "-binding", "MILL")
		failing = false
		want(`"retried": 1`, "jobs", "retry", id)
		k.RunJobs()
		if job, _, err := k.Jobs().Job(t.Context(), id); err != nil || job.State != jobs.StateCompleted {
			t.Errorf("the job that was retried is %s, %v", job.State, err)
		}
		refused("is done", "jobs", "retry", id)

		want(`"disabledAt"`, "user", "disable", "ada")
		want(`"id": "ada"`, "user", "enable", "ada")
		refused("no such user", "user", "disable", "bob")
		want(`"id": "ada"`, "user", "show", "ada@example.com")
		refused("no user has the address", "user", "erase", "bob@example.com") // who would count as erased
		want(`"requestedAt"`, "user", "erase", "ada")
		k.RunJobs()
		want(`"finishedAt"`, "user", "erasure", "ada")
		refused("no such user", "user", "show", "ada")
		refused("the commands are", "user", "rename", "ada")
		refused("the commands are", "ledger", "credit", "ada")
		refused("the commands are", "jobs", "list", "-all")
		refused("discarded", "jobs", "list", "-state", "failed") // nothing is listed only if nothing is

		items, err := k.Audit().ListEvents(t.Context(), audit.Filter{}, capability.NewPage(100, ""))
		if err != nil {
			t.Fatal(err)
		}
		seen := make(map[string]bool)
		for _, e := range items.Items {
			if e.Actor == (audit.Actor{Kind: audit.ActorOperator, ID: "grace"}) {
				seen[e.Action] = true
			}
		}
		for _, action := range []string{"ledger/credited", "ledger/debited", "kit/job_retried", "auth/user_disabled", "auth/user_enabled", "kit/erasure_requested"} {
			if !seen[action] {
				t.Errorf("the trail has no %s of the operator", action)
			}
		}
	})
}

func TestNewerJobOfAKeyStays(t *testing.T) {
	failing := true
	k := world(t, databasetest.Memory(t), &failing)
	first, err := k.Jobs().Enqueue(t.Context(), "MILL", nil, jobs.Key("wheat"))
	if err != nil {
		t.Fatal(err)
	}
	k.RunJobs()
	if _, err := k.Jobs().Enqueue(t.Context(), "MILL", nil, jobs.Key("wheat")); err != nil {
		t.Fatal(err)
	}
	if ok, err := k.RetryJob(t.Context(), first); ok || err != nil {
		t.Errorf("retried next to a newer job of its key: %v %v", ok, err)
	}
}

func TestOperatorsHaveANameAndPartsMayBeMissing(t *testing.T) {
	k := kittest.New(t)
	for want, args := range map[string][]string{
		"there is no ledger": {"ledger", "find", "x"}, "auth is not composed": {"user", "show", "x"},
	} {
		if err := operate.Run(t.Context(), k.Kit, operate.Options{As: "grace"}, args); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, want %s", args, err, want)
		}
	}
	if err := operate.Run(t.Context(), k.Kit, operate.Options{}, []string{"jobs", "list"}); err == nil {
		t.Error("operated without a name")
	}
}
