package main

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// What another system lacks, or holds in fewer bits, is found in the code and in its
// tests; what suits it is not.
func TestFindsWhatASystemLacks(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"go.mod":        "module example.com/m\n\ngo 1.26\n",
		"m.go":          "package m\n\nimport \"os\"\n\nconst large = 1 << 40\n\nfunc Name() (string, error) { return os.Hostname() }\n",
		"m_test.go":     "package m\n\nimport \"testing\"\n\nfunc TestLarge(t *testing.T) {\n\tvar n int = large\n\t_ = n\n}\n",
		"only_plan9.go": "package m\n\nvar _ = missing\n",
		"out_test.go":   "package m_test\n\nimport (\n\t\"testing\"\n\n\t\"example.com/m\"\n)\n\nfunc TestName(t *testing.T) { _, _ = m.Name() }\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for system, want := range map[string]string{runtime.GOOS + "/amd64": "", "linux/386": "constant 1099511627776", "plan9/amd64": "undefined: missing"} {
		faults, err := check(dir, system)
		if err != nil {
			t.Fatal(err)
		}
		switch {
		case want == "" && len(faults) > 0:
			t.Errorf("%s: %v", system, faults)
		case want != "" && (len(faults) == 0 || !strings.Contains(faults[0].Error(), want)):
			t.Errorf("%s: %v, want %q", system, faults, want)
		}
	}
}
