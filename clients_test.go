package kit_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/kitbackend/kit/internal/npmtest"
)

// TestClientIsCurrent makes the types of clients/ts anew from the golden document,
// and its modules from the sources; with -update it writes them.
func TestClientIsCurrent(t *testing.T) {
	t.Parallel()
	out := t.TempDir()
	types := filepath.Join(out, "schema.ts")
	if text, err := npmtest.Command(t, "openapi-typescript", "testdata/openapi.golden.json", "-o", types).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	golden(t, "clients/ts/src/schema.ts", read(t, types))

	if text, err := npmtest.Command(t, "tsc", "-p", "clients/ts", "--declaration", "false", "--outDir", out).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	made := modules(t, out)
	for _, name := range made {
		golden(t, "clients/ts/dist/"+name, read(t, out, name))
	}
	if diff := gocmp.Diff(made, modules(t, "clients/ts/dist")); diff != "" {
		t.Errorf("clients/ts/dist has other modules than the sources make:\n%s", diff)
	}
}

// TestTypesOfTheClient lets the compiler read what the client's types allow and
// refuse.
func TestTypesOfTheClient(t *testing.T) {
	t.Parallel()
	if text, err := typed(t, "clients/ts/test/types.ts"); err != nil {
		t.Errorf("%v\n%s", err, text)
	}
}

// TestCompilerNamesAPathThatIsNotInTheDocument makes mistakes that it would otherwise report as a
// wrong number of arguments.
func TestCompilerNamesAPathThatIsNotInTheDocument(t *testing.T) {
	t.Parallel()
	client, err := filepath.Abs("clients/ts/src/index.js")
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	source := `import { createClient } from "` + client + `"; const kit = createClient()` + "\n"
	for _, mistake := range []struct{ call, kind string }{
		{`post("/four/queue")`, `PathOf<"post">`}, {`post("/four/queue", {}, { path: {} })`, `PathOf<"post">`},
		{`get("/auth/device")`, `PathOf<"get">`}, {`list("/auth/device")`, `ListPath`},
	} {
		source += "void kit." + mistake.call + "\n"
		want = append(want, "is not assignable to parameter of type '"+mistake.kind+"'.")
	}
	page := filepath.Join(t.TempDir(), "page.mts")
	if err := os.WriteFile(page, []byte(source), 0o600); err != nil {
		t.Fatal(err)
	}
	text, err := typed(t, page)
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	if err == nil || !slices.EqualFunc(lines, want, strings.HasSuffix) {
		t.Errorf("%v\n%s", err, text)
	}
}

// typed compiles a file that uses the client's sources, and returns the complaints.
func typed(t *testing.T, file string) ([]byte, error) {
	t.Helper()
	return npmtest.Command(t, "tsc", "--noEmit", "--strict", "--exactOptionalPropertyTypes", "--target", "es2022", "--module", "nodenext",
		"--moduleResolution", "nodenext", "--lib", "es2022,dom,dom.iterable", "--typeRoots", t.TempDir(), file).CombinedOutput()
}

// modules lists the modules in a folder.
func modules(t *testing.T, folder string) (names []string) {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(folder, "*.js"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		names = append(names, filepath.Base(path))
	}
	return names
}

// TestSecondValidatorAcceptsTheDocument runs an independent linter.
func TestSecondValidatorAcceptsTheDocument(t *testing.T) {
	t.Parallel()
	text, err := npmtest.Command(t, "redocly", "lint", "--format=summary", "testdata/openapi.golden.json").CombinedOutput()
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
		npmtest.Command(t, "openapi-ts", "-i", document, "-o", filepath.Join(folder, "sdk"), "-p", "@hey-api/typescript", "@hey-api/sdk", "@hey-api/client-fetch"),
		npmtest.Command(t, "tsc", "--noEmit", "--strict", "--target", "es2022", "--module", "esnext", "--moduleResolution", "bundler", "--lib", "es2022,dom,dom.iterable",
			"--typeRoots", t.TempDir(), filepath.Join(folder, "sdk", "index.ts")),
	} {
		if text, err := command.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%.4000s", err, text)
		}
	}
}
