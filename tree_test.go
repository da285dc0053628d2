package kit_test

import (
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/kitbackend/kit/kittest"
)

var sqlText = regexp.MustCompile("(?m)[`\"]\\s*(SELECT|INSERT INTO|UPDATE|DELETE FROM) ")

// TestTree holds every capability to the files of ARCHITECTURE.md.
func TestTree(t *testing.T) {
	for _, c := range kittest.New(t, everything()...).Capabilities() {
		folder := strings.ReplaceAll(c.Name, "-", "")
		main := folder + ".go"
		for _, name := range []string{main, "types.go", "config.go", "routes.go", "errors.go", "store.go", "migrations"} {
			if _, err := os.Stat(filepath.Join(folder, name)); err != nil && (name != "routes.go" || len(c.Routes) > 0) {
				t.Errorf("%s has no %s", folder, name)
			}
		}
		describes := read(t, folder, main)
		if !strings.Contains(describes, ") Capability() capability.Capability {") {
			t.Errorf("%s/%s does not describe the capability", folder, main)
		}
		if !strings.Contains(describes, "// Package "+folder+" ") {
			t.Errorf("%s/%s does not hold the package's promise", folder, main)
		}
		keepsSQLInStores(t, folder)
	}
}

// TestTreeOfSignIn holds the sign-in library and the packages of its subjects to the
// same files, and to imports that go one way: what a subject must not know.
func TestTreeOfSignIn(t *testing.T) {
	const module, signIn = "github.com/kitbackend/kit/", "auth/signin"
	for folder, unknown := range map[string][]string{
		signIn:               nil,
		signIn + "/oauth":    {module + "auth", module + "database"},
		signIn + "/passkey":  {module + "auth"},
		signIn + "/factor":   {module + "auth"},
		signIn + "/mailcode": {module + "auth"},
	} {
		name := filepath.Base(folder)
		for _, file := range []string{name + ".go", "types.go", "errors.go"} {
			if read(t, folder, file) == "" && (folder != signIn || file != "types.go") {
				t.Errorf("%s has no %s", folder, file)
			}
		}
		if !strings.Contains(read(t, folder, name+".go"), "// Package "+name+" ") {
			t.Errorf("%s/%s.go does not hold the package's promise", folder, name)
		}
		keepsSQLInStores(t, folder)
		for _, imported := range imports(t, folder) {
			if slices.Contains(unknown, imported) {
				t.Errorf("%s imports %s", folder, imported)
			}
		}
	}
}

// keepsSQLInStores refuses SQL in the files of a package that are no store.
func keepsSQLInStores(t *testing.T, folder string) {
	t.Helper()
	for _, name := range sources(t, folder) {
		if !strings.HasPrefix(filepath.Base(name), "store") && sqlText.MatchString(read(t, name)) {
			t.Errorf("%s holds SQL, which belongs into a store file", name)
		}
	}
}

// imports lists what a package imports.
func imports(t *testing.T, folder string) (paths []string) {
	t.Helper()
	for _, name := range sources(t, folder) {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ImportsOnly)
		if err != nil {
			t.Fatal(err)
		}
		for _, spec := range file.Imports {
			paths = append(paths, strings.Trim(spec.Path.Value, `"`))
		}
	}
	return paths
}

// sources lists the files of a package that are no tests.
func sources(t *testing.T, folder string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(folder, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(files, func(name string) bool { return strings.HasSuffix(name, "_test.go") })
}

// read returns the text of a file, or "" where there is none.
func read(t *testing.T, elements ...string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(elements...))
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return string(text)
}

// TestArchitectureNamesWhatExists keeps the table of places true.
func TestArchitectureNamesWhatExists(t *testing.T) {
	named := regexp.MustCompile("`([a-z]+(?:/[a-z_]+)+(?:\\.go|/)?)`")
	for _, match := range named.FindAllStringSubmatch(read(t, "ARCHITECTURE.md"), -1) {
		if _, err := os.Stat(strings.TrimSuffix(match[1], "/")); err != nil {
			t.Errorf("ARCHITECTURE.md names %s, which does not exist", match[1])
		}
	}
}
