package signin_test

import (
	"context"
	"encoding/json"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kitbackend/kit/database/databasetest"
)

// TestAlikeWithBetterAuth makes the same calls of a server of better-auth and of
// the kit. They may differ where docs/better-auth.md says so, and only there.
func TestAlikeWithBetterAuth(t *testing.T) {
	modules := os.Getenv("KIT_TEST_BETTERAUTH")
	if modules == "" {
		t.Skip("KIT_TEST_BETTERAUTH names no folder with node_modules that has better-auth")
	}
	script, err := filepath.Abs("testdata/compare.mjs")
	must(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	node := exec.CommandContext(ctx, "node", script, serve(t, databasetest.Memory(t)))
	node.Dir, node.Stderr = modules, os.Stderr
	out, err := node.Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	type pair struct{ Theirs, Kit string }
	calls := make(map[string]pair)
	must(t, json.Unmarshal(out, &calls))
	listed := make(map[string]pair)
	for name, cells := range differences(t) {
		listed[name] = pair{cells[0], cells[1]}
	}
	alike := 0
	for _, name := range slices.Sorted(maps.Keys(calls)) {
		got, want := calls[name], listed[name]
		delete(listed, name)
		switch {
		case (got.Theirs == got.Kit || codeless(got.Theirs, got.Kit)) && want == pair{}:
			alike++
		case got != want:
			t.Errorf("%s: better-auth %q, kit %q; the table says %q and %q", name, got.Theirs, got.Kit, want.Theirs, want.Kit)
		}
	}
	for name := range listed {
		t.Errorf("%s: the table lists a call that nobody makes", name)
	}
	t.Logf("%d calls, %d alike", len(calls), alike)
}

// codeless reports whether the kit gives a refusal of theirs without a code one.
func codeless(theirs, kit string) bool {
	return len(theirs) == 3 && theirs >= "400" && strings.HasPrefix(kit, theirs+" ") && strings.Count(kit, " ") == 1
}

// differences reads the table of docs/better-auth.md: what each of the two returns
// to a call, by its name.
func differences(t *testing.T) map[string][2]string {
	t.Helper()
	text, err := os.ReadFile("../../docs/better-auth.md")
	must(t, err)
	rows := make(map[string][2]string)
	for line := range strings.Lines(string(text)) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		if len(cells) != 5 || !strings.HasPrefix(strings.TrimSpace(cells[1]), "`") {
			continue
		}
		bare := func(cell string) string { return strings.Trim(strings.TrimSpace(cell), "`") }
		if bare(cells[3]) == "" || bare(cells[4]) == "" {
			t.Errorf("a row of the table lacks its reason or its option: %s", line)
		}
		rows[bare(cells[0])] = [2]string{bare(cells[1]), bare(cells[2])}
	}
	return rows
}
