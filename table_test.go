package kit_test

import (
	"flag"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kitbackend/kit"
	"github.com/kitbackend/kit/kittest"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// table prints the composed routes in the words of the contract.
func table(k *kittest.Kit) []string {
	var lines []string
	for _, r := range k.Routes() {
		lines = append(lines, strings.Join([]string{r.Method, r.Path, r.Guard, r.Scope}, "\t"))
	}
	return lines
}

// TestGoldenTable makes a changed guard a visible line of a review.
func TestGoldenTable(t *testing.T) {
	got := strings.Join(table(kittest.New(t, append(everything(), kit.WithEnvironment("development"))...)), "\n") + "\n"
	const golden = "testdata/routes.golden"
	if *update {
		if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("the route table changed; if that is meant, run go test -run TestGoldenTable -update .\n%s", diff)
	}
}

// resolved maps the words of the contract to the default configuration.
var resolved = map[string]string{"/ledger adminScope": "ledger:admin", "/leaderboard adminScope": "leaderboard:admin"}

// complete lists the prefixes whose rows of the contract must all be there.
var complete = []string{
	"/auth/", "/payments/", "/storage", "/s/", "/media", "/email/", "/_kit/email/", "/vector/", "/secrets/", "/audit/",
	"/support/", "/testers/", "/ledger/", "/leaderboard", "/rating/", "/multiplayer/", "/matchmaking/",
	"/control-plane/", "/health", "/__kit/",
}

// TestContract holds the composed table to the specification's.
func TestContract(t *testing.T) {
	raw, err := os.ReadFile("testdata/contract.tsv")
	if err != nil {
		t.Fatal(err)
	}
	contract := make(map[string]bool)
	var must []string
	for line := range strings.Lines(string(raw)) {
		fields := strings.Split(strings.TrimRight(line, "\n"), "\t")
		if strings.HasPrefix(line, "#") || len(fields) != 4 {
			continue
		}
		prefix, _, _ := strings.Cut(fields[1][1:], "/")
		if scope, ok := resolved["/"+prefix+" "+fields[3]]; ok {
			fields[3] = scope
		}
		if fields[2] == "library" { // which serves everybody: the kit checks nobody
			fields[2] = "public"
		}
		row := strings.Join(fields, "\t")
		contract[row] = true
		for _, prefix := range complete {
			if strings.HasPrefix(fields[1], prefix) {
				must = append(must, row)
			}
		}
	}
	composed := make(map[string]bool)
	for _, row := range table(kittest.New(t, append(everything(), kit.WithEnvironment("development"))...)) {
		composed[row] = true
		if !contract[row] && !strings.Contains(row, "\t/__kit/mailbox") && !strings.HasPrefix(row, "ALL\t/_kit/storage/") { // the house plan's, in development only
			t.Errorf("not in the contract: %s", row)
		}
	}
	for _, row := range must {
		if !composed[row] {
			t.Errorf("missing: %s", row)
		}
	}
}

// TestGuardMatrix calls every row of the table with every proof that must not
// pass it, and with the one that must.
func TestGuardMatrix(t *testing.T) {
	k := kittest.New(t, append(everything(), kit.WithEnvironment("development"))...)
	k.Anonymous().Get("/control-plane/ping").Want(403, "controlplane/not_connected")
	k.Machine().Get("/control-plane/ping").Want(200, "") // connects
	for _, r := range k.Routes() {
		t.Run(r.Method+" "+r.Path, func(t *testing.T) {
			k.Clock.Advance(time.Minute) // the limit of forged tokens is not what this is about
			path := concrete(r.Path)
			call := func(c *kittest.Client) string { return c.Do(r.Method, path, nil).Code() }
			refused := func(name string, c *kittest.Client, want string) {
				t.Helper()
				if got := call(c); got != want {
					t.Errorf("%s: got %q, want %q", name, got, want)
				}
			}
			admitted := func(name string, c *kittest.Client) {
				t.Helper()
				switch got := call(c); got {
				case "auth/unauthenticated", "auth/csrf", "auth/insufficient_scope", "controlplane/invalid_credential",
					"controlplane/insufficient_scope", "controlplane/not_connected", "kit/invalid_signature", "kit/internal", "kit/unavailable":
					t.Errorf("%s: %q", name, got)
				}
			}
			switch r.Guard {
			case "user":
				refused("no proof", k.Anonymous(), "auth/unauthenticated")
				refused("bad bearer", k.Bearing("Bearer nonsense"), "auth/unauthenticated")
				refused("machine credential", k.Machine("ledger:accounts:read"), "auth/unauthenticated")
				switch {
				case r.Scope == "csrf":
					refused("cookie alone", k.Browser("ada").With("X-CSRF-Token", ""), "auth/csrf")
					admitted("cookie and token", k.Browser("ada"))
					admitted("user", k.User("ada"))
				case r.Scope == "-" || strings.Contains(r.Scope, " "): // a condition is the handler's to decide
					admitted("user", k.User("ada"))
				default:
					refused("wrong scope", k.User("ada", r.Scope+":more", strings.ToUpper(r.Scope), "*"), "auth/insufficient_scope")
					admitted("right scope", k.User("ada", r.Scope))
				}
			case "control-plane":
				refused("no proof", k.Anonymous(), "controlplane/invalid_credential")
				refused("bad bearer", k.Bearing("Bearer nonsense"), "controlplane/invalid_credential")
				refused("user", k.User("ada", r.Scope), "controlplane/invalid_credential")
				if r.Scope == "-" {
					admitted("any verified machine", k.Machine())
					return
				}
				refused("wrong scope", k.Machine(r.Scope+":more", "*", strings.ToUpper(r.Scope)), "controlplane/insufficient_scope")
				once := k.Credential(r.Method, path, r.Scope)
				admitted("right scope", k.Bearing(once))
				refused("spent token", k.Bearing(once), "controlplane/invalid_credential")
			case "signed-webhook":
				want := "kit/invalid_signature"
				if r.Capability == "payments" {
					want = "payments/rail_not_configured" // no secret, so nobody has a proof
				}
				refused("no proof", k.Anonymous(), want)
				refused("bad signature", k.Anonymous().With(kit.SignatureHeader, "t=1,v1=00"), want)
				refused("user", k.User("ada"), want)
			case "public":
				admitted("anybody", k.Anonymous())
			default:
				t.Errorf("no case for the guard %q", r.Guard)
			}
		})
	}
}

// concrete fills the parameters of a pattern.
func concrete(path string) string {
	return strings.NewReplacer(":currency", "coins", ":userId", "ada", ":binding", "KIT_IDEMPOTENCY_SWEEP",
		":board", "arcade", ":game", "duel", ":keyId", "k_unknown").Replace(path)
}

// TestWithoutAuthEveryUserRouteDenies and its neighbour are rules 1 and 2 of
// the specification's authentication.
func TestWithoutAuthEveryUserRouteDenies(t *testing.T) {
	k := kittest.New(t, withoutAuth()...)
	for _, r := range k.Routes() {
		if r.Guard == "user" && r.Method != "HEAD" { // whose refusal has no body
			k.Bearing("Bearer x").Do(r.Method, concrete(r.Path), nil).Want(401, "auth/unauthenticated")
		}
	}
}
