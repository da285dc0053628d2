package kit_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// TestWhatIsNotComposedIsNotLinked looks into examples/minimal, which composes auth
// and ledger, for methods of what it does not compose: a program has the names of its
// functions in it. What looks methods up by name must not be there either: of each type
// that becomes an interface value the linker would keep every exported method.
func TestWhatIsNotComposedIsNotLinked(t *testing.T) {
	program := filepath.Join(t.TempDir(), "minimal")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-ldflags=-s -w", "-o", program, "./examples/minimal").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	linked, err := os.ReadFile(program)
	if err != nil {
		t.Fatal(err)
	}
	const module = "github.com/kitbackend/kit/"
	for _, used := range []string{"auth.(*Auth).Users", "ledger.(*Ledger).Capability"} {
		if !bytes.Contains(linked, []byte(module+used)) {
			t.Errorf("%s is not there: names of functions are not what this test takes them for", used)
		}
	}
	for _, method := range []string{
		"payments.(*Payments).Capability", "storage.(*Storage).Capability", "media.(*Media).Capability", "vector.(*Vector).Capability",
		"support.(*Support).Capability", "testers.(*Testers).Capability", "leaderboard.(*Leaderboard).Capability", "rating.(*Rating).Capability",
		"multiplayer.(*Multiplayer).Capability", "matchmaking.(*Matchmaking).Capability", "secrets.(*Secrets).Capability",
		"controlplane.(*ControlPlane).Capability", "events.(*Events).Capability", "email.(*Email).Capability", "email.(*Email).Send",
		"auth/mail.compose", "audit.(*Audit).Capability", "rating.resolve", "testers.builtInPages", "email/devmail.page",
		"internal/charset.find", "support.compile", "testers.fold",
	} {
		if bytes.Contains(linked, []byte(module+method)) {
			t.Errorf("%s is linked, though nothing composes it", method)
		}
	}
	for _, name := range []string{"*payments.Payments", "*multiplayer.Multiplayer", "*testers.Testers"} {
		if bytes.Contains(linked, []byte(name)) {
			t.Errorf("the type %s is linked, though nothing composes it", name)
		}
	}
	for _, function := range []string{"text/template.(*state).evalField", "html/template.(*Template).Execute", "go-mail.NewMsg", "x/text/encoding/"} {
		if bytes.Contains(linked, []byte(function)) {
			t.Errorf("%s is linked, though only what is not composed uses it", function)
		}
	}
}
