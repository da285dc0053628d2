package kit_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// npmTool is the command of a program of others, where KIT_TEST_CLIENTS names
// the folder that it is installed in.
func npmTool(t *testing.T, name string, args ...string) *exec.Cmd {
	t.Helper()
	npm := os.Getenv("KIT_TEST_CLIENTS")
	if npm == "" {
		t.Skip("KIT_TEST_CLIENTS names no folder with node_modules that has " + name)
	}
	cmd := exec.CommandContext(t.Context(), filepath.Join(npm, "node_modules/.bin", name), args...)
	cmd.Env = append(os.Environ(), "REDOCLY_TELEMETRY=off", "REDOCLY_SUPPRESS_UPDATE_NOTICE=true")
	return cmd
}

// TestClientTypesAreCurrent makes the types of clients/ts anew from the golden
// document, or, with -update, writes them.
func TestClientTypesAreCurrent(t *testing.T) {
	t.Parallel()
	out := filepath.Join(t.TempDir(), "schema.ts")
	if text, err := npmTool(t, "openapi-typescript", "testdata/openapi.golden.json", "-o", out).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	golden(t, "clients/ts/src/schema.ts", read(t, out))
}

// TestSecondValidatorAcceptsTheDocument runs an independent linter.
func TestSecondValidatorAcceptsTheDocument(t *testing.T) {
	t.Parallel()
	text, err := npmTool(t, "redocly", "lint", "--format=summary", "testdata/openapi.golden.json").CombinedOutput()
	if err != nil || !strings.Contains(string(text), "valid") {
		t.Errorf("%v\n%s", err, text)
	}
}

// TestThirdGeneratorCompiles lets a generator that nobody here wrote make an SDK of
// the document, and compiles it.
func TestThirdGeneratorCompiles(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	document, err := filepath.Abs("testdata/openapi.golden.json") // a name with one slash is taken for one of a registry
	if err != nil {
		t.Fatal(err)
	}
	for _, command := range []*exec.Cmd{
		npmTool(t, "openapi-ts", "-i", document, "-o", filepath.Join(folder, "sdk"), "-p", "@hey-api/typescript", "@hey-api/sdk", "@hey-api/client-fetch"),
		npmTool(t, "tsc", "--noEmit", "--strict", "--target", "es2022", "--module", "esnext", "--moduleResolution", "bundler", "--lib", "es2022,dom,dom.iterable",
			"--typeRoots", t.TempDir(), filepath.Join(folder, "sdk", "index.ts")),
	} {
		if text, err := command.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%.4000s", err, text)
		}
	}
}
