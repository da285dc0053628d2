package kit_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/kitbackend/kit/audit"
	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/email"
	"github.com/kitbackend/kit/kittest"
	"github.com/kitbackend/kit/ledger"
	"github.com/kitbackend/kit/payments"
	"github.com/kitbackend/kit/storage"
	"github.com/kitbackend/kit/support"
	"github.com/kitbackend/kit/vector"
)

// counted calls a list with a filter and returns how many items came.
func counted[F, T any](list func(context.Context, F, capability.Page) (capability.Items[T], error), filter F) func(context.Context, capability.Page) (int, error) {
	return func(ctx context.Context, page capability.Page) (int, error) {
		items, err := list(ctx, filter, page)
		return len(items.Items), err
	}
}

// unfiltered is counted for a list without a filter.
func unfiltered[T any](list func(context.Context, capability.Page) (capability.Items[T], error)) func(context.Context, capability.Page) (int, error) {
	return func(ctx context.Context, page capability.Page) (int, error) {
		items, err := list(ctx, page)
		return len(items.Items), err
	}
}

func TestListsTakeTheZeroPage(t *testing.T) {
	k := kittest.New(t, everything()...)
	ctx := t.Context()
	k.Browser("ada").Get("/auth/devices").Want(200, "")
	must := func(results ...any) {
		t.Helper()
		if err := results[len(results)-1]; err != nil {
			t.Fatal(err)
		}
	}
	must(k.Ledger().StaffCredit(ctx, ledger.Entry{UserID: "ada", Currency: "coins", Amount: 5, Ref: "gift:1"}))
	must(k.Email().Send(ctx, email.Message{To: "bob@example.org", Subject: "Hello", Text: "Hello"}))
	must(k.Email().Suppress(ctx, "carol@example.org", email.ScopeAll, ""))
	must(k.Payments().Grant(ctx, payments.GrantRequest{Subject: payments.Subject{Type: payments.SubjectUser, ID: "ada"}, Entitlement: "gift", Reason: "a prize"}))
	must(k.Storage().Put(ctx, storage.Upload{OwnerID: "ada", Path: "a.txt", Size: 1}, strings.NewReader("a")))
	must(k.Support().Submit(ctx, support.Feedback{UserID: "ada", Message: "It works."}))
	space := vector.Space{Index: "notes", OwnerID: "ada"}
	must(k.Vector().Upsert(ctx, space, vector.Document{ID: "a", Text: "a note"}))

	for name, list := range map[string]func(context.Context, capability.Page) (int, error){
		"events":       counted(k.Audit().ListEvents, audit.Filter{}),
		"users":        counted(k.Auth().ListUsers, ""),
		"devices":      counted(k.Auth().ListDevices, "ada"),
		"jobs":         counted(k.Email().ListJobs, email.JobFilter{}),
		"suppressions": counted(k.Email().ListSuppressions, email.SuppressionFilter{}),
		"accounts":     counted(k.Ledger().ListAccounts, ledger.AccountFilter{}),
		"transactions": func(ctx context.Context, page capability.Page) (int, error) {
			items, err := k.Ledger().ListTransactions(ctx, "ada", "coins", page)
			return len(items.Items), err
		},
		"entitlements": unfiltered(k.Payments().ListEntitlements),
		"secrets":      unfiltered(k.Secrets().ListSecrets),
		"objects": func(ctx context.Context, page capability.Page) (int, error) {
			listing, err := k.Storage().List(ctx, storage.Filter{OwnerID: "ada"}, page)
			return len(listing.Items), err
		},
		"threads":   counted(k.Support().ListThreads, support.Filter{}),
		"tickets":   counted(k.Support().ListTickets, "ada"),
		"documents": counted(k.Vector().Scroll, space),
	} {
		t.Run(name, func(t *testing.T) {
			if n, err := list(ctx, capability.Page{}); err != nil || n == 0 {
				t.Errorf("%d items: %v", n, err)
			}
		})
	}
}

func TestQueriesTakeOnlyTheirChoices(t *testing.T) {
	k := kittest.New(t, everything()...)
	names := make(map[string]bool)
	for _, c := range k.Capabilities() {
		for _, r := range c.Routes {
			for _, q := range r.Query {
				if len(q.Choices) == 0 {
					continue
				}
				names[q.Name] = true
				takesOnly(t, k, r, q)
			}
		}
	}
	for _, name := range []string{"actorKind", "outcome", "state", "category", "reason", "scope", "kind", "status", "priority", "sentiment", "channel", "flag"} {
		if !names[name] {
			t.Errorf("no route has choices of %s", name)
		}
	}
}

func takesOnly(t *testing.T, k *kittest.Kit, r capability.Route, q capability.Param) {
	t.Helper()
	get := func(value string) string {
		client := k.Browser("ada")
		if scope := r.Guard.Scope(); scope != "" {
			client = k.Machine(scope)
		}
		return string(client.Get(r.Path + "?" + q.Name + "=" + value).Body)
	}
	refusal := q.Name + " is one of "
	for _, choice := range append(slices.Clone(q.Choices), "") {
		if text := get(choice); strings.Contains(text, refusal) {
			t.Errorf("%s refuses %s=%s: %s", r.Path, q.Name, choice, text)
		}
	}
	for _, other := range []string{"nonsense", strings.ToUpper(q.Choices[0]), q.Choices[0] + "%20"} {
		if text := get(other); !strings.Contains(text, refusal) || !strings.Contains(text, "kit/invalid_request") {
			t.Errorf("%s takes %s=%s: %s", r.Path, q.Name, other, text)
		}
	}
}
