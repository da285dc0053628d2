package kit_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestSecurityNamesTestsThatExist holds each row of SECURITY.md's list to a test:
// those that it names are in the tree, and no row names none.
func TestSecurityNamesTestsThatExist(t *testing.T) {
	text, err := os.ReadFile("SECURITY.md")
	if err != nil {
		t.Fatal(err)
	}
	defined := make(map[string]bool)
	function := regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)\w+)\(`)
	err = filepath.WalkDir(".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		source, err := os.ReadFile(path)
		for _, match := range function.FindAllSubmatch(source, -1) {
			defined[string(match[1])] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	named := regexp.MustCompile("`((?:Test|Fuzz)\\w+)`")
	for line := range strings.Lines(string(text)) {
		cells := strings.Split(strings.TrimSpace(line), " | ")
		if len(cells) < 3 || strings.HasPrefix(line, "| Threat") {
			continue
		}
		proofs := cells[len(cells)-1]
		if !strings.Contains(proofs, "`") {
			t.Errorf("nothing proves the row: %s", cells[0])
		}
		for _, match := range named.FindAllStringSubmatch(proofs, -1) {
			if !defined[match[1]] {
				t.Errorf("%s names %s, which is in no test file", cells[0], match[1])
			}
		}
	}
}
