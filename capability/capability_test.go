package capability_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/database"
)

var errTaken = capability.NewError(409, "shop/taken", "It is taken.")

func TestErrorsCompareByCode(t *testing.T) {
	err := errTaken.Because(io.EOF).With(7).Saying("Item %d is taken.", 7)
	if !errors.Is(err, errTaken) || !errors.Is(err, io.EOF) {
		t.Errorf("%v is found neither by code nor by cause", err)
	}
	if errors.Is(err, capability.ErrNotFound) {
		t.Error("another code matches")
	}
	if errTaken.Details != nil || errTaken.Message != "It is taken." {
		t.Error("a copy changed the original")
	}
	for _, passing := range []error{database.ErrFull, database.ErrUnavailable, database.ErrUnknownOutcome, database.ErrConflict, database.ErrClosed} {
		if got := capability.AsError(fmt.Errorf("ledger: %w", passing)); !got.Is(capability.ErrUnavailable) || got.Status != 503 || !errors.Is(got, passing) {
			t.Errorf("%v becomes %v", passing, got)
		}
	}
	if got := capability.AsError(io.ErrShortWrite); !got.Is(capability.ErrInternal) || !errors.Is(got, io.ErrShortWrite) {
		t.Errorf("an unexpected error became %v", got)
	}
}

func TestFaultText(t *testing.T) {
	faults := capability.Faults{Capability: "shop"}
	if faults.Err() != nil {
		t.Error("no fault is an error")
	}
	faults.Add("items[1].price", -5, "is negative", "use minor units")
	faults.Join(nil)
	missing := capability.MissingPeer("shop", "ledger")
	faults.Join(missing)
	if missing.Peer != "ledger" {
		t.Errorf("the peer is %q", missing.Peer)
	}
	want := "shop.items[1].price = \"-5\": is negative (use minor units)\n" +
		"shop.peers = \"ledger\": needs the capability ledger, which is not composed (compose ledger too, or leave shop out)"
	if got := faults.Err().Error(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestCursorsComeBack(t *testing.T) {
	type row struct {
		name string
		at   int64
	}
	rows := []row{{"a", 1}, {"b\"\\ü", 1 << 52}, {"c", 3}}
	keys := func(r row) []any { return []any{r.at, r.name} }
	items := capability.Paged(capability.NewPage(2, ""), rows, keys)
	if len(items.Items) != 2 || items.NextCursor == nil {
		t.Fatalf("%+v", items)
	}
	var at int64
	var name string
	if ok, err := capability.NewPage(2, *items.NextCursor).After(&at, &name); !ok || err != nil || at != 1<<52 || name != "b\"\\ü" {
		t.Errorf("%v %v %d %q", ok, err, at, name)
	}
	if ok, err := capability.NewPage(2, "").After(&at, &name); ok || err != nil {
		t.Errorf("the first page comes after something: %v %v", ok, err)
	}
	var text string
	if _, err := capability.NewPage(2, *items.NextCursor).After(&text, &name); !errors.Is(err, capability.ErrInvalidRequest) {
		t.Errorf("a cursor of other types: %v", err)
	}
	if _, err := capability.NewPage(2, "WzEsIlx1MDAwMCJd").After(&at, &name); !errors.Is(err, capability.ErrInvalidRequest) {
		t.Errorf("a NUL: %v", err)
	}
	if last := capability.Paged(capability.NewPage(3, ""), rows, keys); len(last.Items) != 3 || last.NextCursor != nil {
		t.Errorf("%+v", last)
	}
}

func FuzzCursor(f *testing.F) {
	f.Add("WzEsImEiXQ")
	f.Add("W251bGwsIiJd")
	f.Fuzz(func(t *testing.T, cursor string) {
		var at int64
		var name string
		_, err := capability.NewPage(1, cursor).After(&at, &name)
		if err != nil && !errors.Is(err, capability.ErrInvalidRequest) {
			t.Errorf("an error of another kind: %v", err)
		}
	})
}

func TestTimeOnTheWire(t *testing.T) {
	at := capability.Time{Time: time.Date(2026, 11, 21, 13, 0, 0, 5_999_999, time.FixedZone("", 3600))}
	raw, err := json.Marshal(at)
	if err != nil || string(raw) != `"2026-11-21T12:00:00.005Z"` {
		t.Errorf("%s %v", raw, err)
	}
	var back capability.Time
	if err := json.Unmarshal(raw, &back); err != nil || back.UnixMilli() != at.UnixMilli() {
		t.Errorf("%v %v", back, err)
	}
	if got := capability.Millis(at.UnixMilli()); !got.Equal(back.Time) || got.Location() != time.UTC {
		t.Error(got)
	}
}

func TestReservedNames(t *testing.T) {
	routes := capability.Mount("/ledger",
		capability.Route{Path: "/:currency"}, capability.Route{Path: "/:currency/credit"},
		capability.Route{Path: "/admin/accounts"}, capability.Route{Path: "/admin/accounts/:userId"}, capability.Route{Path: "/share/:token"})
	if diff := cmp.Diff([]string{"admin", "share"}, capability.Reserved(routes, "currency")); diff != "" {
		t.Error(diff)
	}
	if got := capability.Reserved(routes, "userId"); got != nil {
		t.Error(got)
	}
}

func TestScopesCompareExactly(t *testing.T) {
	c := capability.Caller{Scopes: []string{"ledger:admin", "a:*", "*"}}
	for scope, want := range map[string]bool{"ledger:admin": true, "ledger:admin:more": false, "ledger": false, "a:b": false, "LEDGER:ADMIN": false, "": false} {
		if c.HasScope(scope) != want {
			t.Errorf("HasScope(%q) = %v", scope, !want)
		}
	}
}

func TestGuardsNeedAConstructor(t *testing.T) {
	for name, c := range map[string]struct {
		guard capability.Guard
		valid bool
	}{
		"zero": {capability.Guard{}, false}, "public without why": {capability.Public(""), false},
		"webhook without verifier": {capability.SignedWebhook(nil), false}, "user": {capability.User(), true},
		"machine": {capability.ControlPlane("a:b"), true}, "public": {capability.Public("why"), true},
	} {
		if c.guard.Valid() != c.valid {
			t.Errorf("%s: %v", name, !c.valid)
		}
	}
}
