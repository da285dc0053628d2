package kit_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/kitbackend/kit"
	"github.com/kitbackend/kit/auth"
	"github.com/kitbackend/kit/auth/signin"
	"github.com/kitbackend/kit/internal/npmtest"
	"github.com/kitbackend/kit/kittest"
	"github.com/kitbackend/kit/ledger"
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
	if text, err := compiled(t, "--noEmit", "clients/ts/test/types.ts").CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, text)
	}
}

// TestClientCompilesWithTheTypesOfAnApplication makes its types from the document of an application
// that has neither games nor files.
func TestClientCompilesWithTheTypesOfAnApplication(t *testing.T) {
	t.Parallel()
	coins := ledger.Config{Currencies: []ledger.Currency{{Code: "coins", Name: "Coins"}}}
	document, err := kittest.New(t, kit.WithLedger(coins)).OpenAPI()
	if err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	if err := os.CopyFS(folder, os.DirFS("clients/ts/src")); err != nil {
		t.Fatal(err)
	}
	write(t, string(document), folder, "openapi.json")
	types := npmtest.Command(t, "openapi-typescript", filepath.Join(folder, "openapi.json"), "-o", filepath.Join(folder, "schema.ts"))
	if text, err := types.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	if text, err := compiled(t, "--noEmit", filepath.Join(folder, "index.ts")).CombinedOutput(); err != nil {
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
	folder := t.TempDir()
	write(t, source, folder, "page.mts")
	text, err := compiled(t, "--noEmit", filepath.Join(folder, "page.mts")).CombinedOutput()
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	if err == nil || !slices.EqualFunc(lines, want, strings.HasSuffix) {
		t.Errorf("%v\n%s", err, text)
	}
}

// TestReadmeOfTheClient runs the commands of clients/ts/README.md in a new folder, then its
// snippets, which are one program, against a kit. That of docs/clients.md is compiled with them.
func TestReadmeOfTheClient(t *testing.T) {
	t.Parallel()
	node := os.Getenv("KIT_TEST_NODE")
	if node == "" || npmtest.Folder() == "" {
		t.Skip("KIT_TEST_NODE and KIT_TEST_CLIENTS do not name Node and a folder with node_modules")
	}
	own, err := filepath.Abs(".")
	if err != nil {
		t.Fatal(err)
	}
	readme, app := read(t, "clients/ts/README.md"), t.TempDir()
	installed := strings.NewReplacer("npm install &&", "ln -s '"+npmtest.Folder()+"/node_modules' node_modules &&",
		"app openapi", "cat '"+own+"/testdata/openapi.golden.json'")
	commands := exec.CommandContext(t.Context(), "sh", "-ec", installed.Replace(blocks(readme, "sh")))
	commands.Dir = app
	commands.Env = append(os.Environ(), "npm_config_offline=true", "npm_config_audit=false", "npm_config_cache="+t.TempDir())
	module := "module app\n\ngo 1.26\n\nrequire github.com/kitbackend/kit v0.0.0\n\nreplace github.com/kitbackend/kit => " + own + "\n"
	write(t, module, app, "go.mod")
	write(t, read(t, "go.sum"), app, "go.sum")
	if text, err := commands.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}

	program := strings.ReplaceAll(blocks(readme, "ts"), "http://localhost:8080", readmeSite(t))
	write(t, program, app, "page.mts")
	write(t, blocks(read(t, "docs/clients.md"), "ts"), app, "guide.mts")
	if text, err := compiled(t, filepath.Join(app, "page.mts"), filepath.Join(app, "guide.mts")).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	text, err := exec.CommandContext(t.Context(), node, "--experimental-websocket", filepath.Join(app, "page.mjs")).CombinedOutput()
	for _, want := range []string{"coins ledger/currency_not_found 404", "gave 10", "open undefined undefined", "view 3", "the game is resolved",
		"multiplayer/invalid_transition", "5 of 5", "ready"} {
		if !strings.Contains(string(text), want) {
			t.Errorf("nothing says %q", want)
		}
	}
	if err != nil || t.Failed() {
		t.Errorf("%v\n%s", err, text)
	}
}

// readmeSite serves a kit and a route of the application's own.
func readmeSite(t *testing.T) string {
	t.Helper()
	var handler http.Handler
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { handler.ServeHTTP(w, r) }))
	t.Cleanup(server.Close)
	k := kittest.New(t, append(withoutAuth(), kit.WithBaseURL(server.URL), kit.WithAuth(auth.Config{Library: signin.New(signin.Config{Anonymous: true})}))...)
	paths := http.NewServeMux()
	paths.Handle("/", k)
	paths.HandleFunc("POST /gifts/{to}", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.Copy(w, r.Body)
	})
	handler = paths
	return server.URL
}

func write(t *testing.T, text string, elements ...string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(elements...), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// blocks joins the blocks of a page in a language.
func blocks(page, language string) string {
	var b strings.Builder
	for _, block := range regexp.MustCompile("(?s)```"+language+"\n(.*?)```").FindAllStringSubmatch(page, -1) {
		b.WriteString(block[1])
	}
	return b.String()
}

// compiled compiles files that use the client.
func compiled(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	return npmtest.Command(t, "tsc", append(args, "--strict", "--exactOptionalPropertyTypes", "--target", "es2022", "--module", "nodenext",
		"--moduleResolution", "nodenext", "--lib", "es2022,dom,dom.iterable", "--typeRoots", t.TempDir())...)
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
