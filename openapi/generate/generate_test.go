package generate

import (
	"os"
	"os/exec"
	"testing"
)

// TestGoClientCompiles generates a client with oapi-codegen and compiles it.
func TestGoClientCompiles(t *testing.T) {
	const folder = "testdata/client"
	if err := os.MkdirAll(folder, 0o750); err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll("testdata")
	for _, args := range [][]string{
		{"tool", "oapi-codegen", "-generate", "types,client", "-package", "client", "-o", folder + "/client.go", "../../testdata/openapi.golden.json"},
		{"build", "./" + folder},
	} {
		if text, err := exec.CommandContext(t.Context(), "go", args...).CombinedOutput(); err != nil {
			t.Fatalf("go %v: %v\n%.4000s", args, err, text)
		}
	}
}
