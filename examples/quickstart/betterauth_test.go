package main

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestBetterAuthClient signs up and in with the official, unmodified client of better-auth, by
// every method that is enabled by default. It waits where sign-ins are rate limited, so it takes a
// minute, with the first of the named versions.
func TestBetterAuthClient(t *testing.T) {
	versions := filepath.SplitList(os.Getenv("KIT_TEST_BETTERAUTH"))
	if len(versions) == 0 {
		t.Skip("KIT_TEST_BETTERAUTH names no folder with node_modules that has better-auth")
	}
	t.Parallel()
	script, err := filepath.Abs("../../auth/signin/testdata/client.mjs")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	node := exec.CommandContext(ctx, "node", script, start(t)["API"])
	node.Dir, node.Env = versions[0], append(os.Environ(), "KIT_TEST_BETTERAUTH="+versions[0])
	if out, err := node.CombinedOutput(); err != nil || !strings.HasSuffix(string(out), "done\n") {
		t.Fatalf("%v\n%s", err, out)
	}
}
