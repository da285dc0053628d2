package signin_test

import (
	"context"
	"encoding/json"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kitbackend/kit/database/databasetest"
)

// TestAlikeWithBetterAuth makes the same calls of a server of each version of
// better-auth and of the kit. They may differ where docs/better-auth.md says so, and
// only there: one table holds for all versions.
func TestAlikeWithBetterAuth(t *testing.T) {
	for _, version := range betterAuths(t) {
		t.Run(version.version, func(t *testing.T) {
			t.Parallel()
			compare(t, version)
		})
	}
}

func compare(t *testing.T, version betterAuth) {
	t.Helper()
	text, err := os.ReadFile(differing)
	must(t, err)
	if !strings.Contains(string(text), "`"+version.version+"`") {
		t.Errorf("%s does not name version %s", differing, version.version)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	node := version.node(ctx, t, "compare.mjs", serve(t, databasetest.Memory(t)))
	node.Stderr = os.Stderr
	out, err := node.Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	type pair struct{ Theirs, Kit string }
	calls := make(map[string]pair)
	must(t, json.Unmarshal(out, &calls))
	listed := make(map[string]pair)
	for name, cells := range differences(t, string(text)) {
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

// differing documents the versions compared and what may differ.
const differing = "../../docs/better-auth.md"

// differences reads the table of the document: what each of the two returns to a
// call, by its name.
func differences(t *testing.T, text string) map[string][2]string {
	t.Helper()
	rows := make(map[string][2]string)
	for line := range strings.Lines(text) {
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
