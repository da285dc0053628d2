package kit_test

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestReadmeSnippets holds that every Go snippet of the README is part of a
// program or example that go test ./... compiles and runs.
func TestReadmeSnippets(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	var code strings.Builder
	err = filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err == nil && (strings.HasPrefix(path, "examples/") && strings.HasSuffix(path, ".go") || path == "example_test.go") {
			raw, err := os.ReadFile(path)
			code.WriteString(flatten(raw))
			return err
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?s)```go\n(.*?)```").FindAllSubmatch(readme, -1)
	if len(blocks) == 0 {
		t.Fatal("no snippets found")
	}
	for _, block := range blocks {
		if !strings.Contains(code.String(), flatten(block[1])) {
			t.Errorf("no program or example holds this snippet:\n%s", block[1])
		}
	}
}

// TestReadmeLinks holds that what the README and the other pages link to exists.
func TestReadmeLinks(t *testing.T) {
	for _, page := range []string{"README.md", "DESIGN.md", "SECURITY.md", "bench/README.md"} {
		raw, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, link := range regexp.MustCompile(`\]\(([^)#]+)\)`).FindAllSubmatch(raw, -1) {
			target := string(link[1])
			if strings.Contains(target, "://") {
				continue
			}
			if _, err := os.Stat(filepath.Join(filepath.Dir(page), target)); err != nil {
				t.Errorf("%s: %v", page, err)
			}
		}
	}
}

// flatten makes indentation and comments at line ends not matter.
func flatten(code []byte) string {
	var b bytes.Buffer
	for line := range bytes.Lines(code) {
		line, _, _ = bytes.Cut(line, []byte(" //"))
		b.Write(bytes.Join(bytes.Fields(line), []byte(" ")))
		b.WriteByte('\n')
	}
	return b.String()
}
