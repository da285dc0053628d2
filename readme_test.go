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

// pages are those that people wrote: the README and the guides.
func pages(t *testing.T) (list []string) {
	t.Helper()
	guides, err := filepath.Glob("docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, page := range append([]string{"README.md"}, guides...) {
		if !strings.HasPrefix(read(t, page), generated) {
			list = append(list, page)
		}
	}
	return list
}

// TestReadmeSnippets holds that every Go snippet of the README and the guides is
// part of a program or example that go test ./... compiles and runs, and every
// snippet of JavaScript part of a page that a browser runs.
func TestReadmeSnippets(t *testing.T) {
	var code strings.Builder
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err == nil && (strings.HasPrefix(path, "examples/") && (strings.HasSuffix(path, ".go") || strings.HasSuffix(path, ".js")) || strings.HasSuffix(path, "example_test.go") && !strings.Contains(path, "/")) {
			raw, err := os.ReadFile(path)
			code.WriteString(flatten(raw))
			return err
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, page := range pages(t) {
		for _, block := range regexp.MustCompile("(?s)```(?:go|js)\n(.*?)```").FindAllStringSubmatch(read(t, page), -1) {
			if found++; !strings.Contains(code.String(), flatten([]byte(block[1]))) {
				t.Errorf("%s: no program or example holds this snippet:\n%s", page, block[1])
			}
		}
	}
	if found == 0 {
		t.Fatal("no snippets found")
	}
}

// TestReadmeLinks holds that what the README and the other pages link to exists.
func TestReadmeLinks(t *testing.T) {
	for _, page := range append(pages(t), "DESIGN.md", "SECURITY.md", "bench/README.md", "clients/ts/README.md") {
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
