package kit_test

import (
	"os"
	"path/filepath"
	"regexp"
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
		files, err := filepath.Glob(filepath.Join(folder, "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range files {
			base := filepath.Base(name)
			if strings.HasPrefix(base, "store") || strings.HasSuffix(base, "_test.go") {
				continue
			}
			if sqlText.MatchString(read(t, name)) {
				t.Errorf("%s holds SQL, which belongs into a store file", name)
			}
		}
	}
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
