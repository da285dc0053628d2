package databasetest

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/kitbackend/kit/database"
)

// A statement that seeks reads less of tables that are larger.
const (
	mostRows  = 1000
	mostPages = 80
)

// Seeks fails the test if a statement, which only reads, walks through a table
// instead of seeking in an index, and returns its plan. On SQLite the plan shows
// it, but not whether the search of an index is narrow; derived names the
// subqueries that it may walk through, separated by spaces. On PostgreSQL it is
// run, so the table must have some thousand rows.
func Seeks(t testing.TB, db *database.DB, derived, text string, args ...any) (plan string) {
	t.Helper()
	walks := walksOnPostgres
	explain := "EXPLAIN (ANALYZE, BUFFERS) "
	if db.Dialect() == database.SQLite {
		explain = "EXPLAIN QUERY PLAN "
		walks = func(steps []string) bool {
			may := append(strings.Fields(derived), "CONSTANT", "json_each")
			return slices.ContainsFunc(steps, func(step string) bool {
				name, ok := strings.CutPrefix(step, "SCAN ")
				name, _, _ = strings.Cut(name, " ")
				return ok && !slices.Contains(may, name)
			})
		}
	}
	steps, err := database.All(t.Context(), db, func(row database.Scanner) (step string, err error) {
		into := []any{&step}
		if db.Dialect() == database.SQLite {
			into = []any{new(int64), new(int64), new(int64), &step}
		}
		return step, row.Scan(into...)
	}, explain+text, args...)
	if err != nil {
		t.Fatal(err)
	}
	plan = strings.Join(steps, "\n")
	if len(steps) == 0 || walks(steps) {
		t.Errorf("%s\n%s", text, plan)
	}
	return plan
}

var (
	actual  = regexp.MustCompile(`actual time=\S+ rows=(\d+)(?:\.\d+)? loops=(\d+)`)
	removed = regexp.MustCompile(`Rows Removed by .*: (\d+)`)
	buffers = regexp.MustCompile(`Buffers: shared(?: hit=(\d+))?(?: read=(\d+))?`)
)

func walksOnPostgres(steps []string) bool {
	if planning := slices.Index(steps, "Planning:"); planning >= 0 {
		steps = steps[:planning] // what follows tells of the catalog's pages
	}
	return slices.ContainsFunc(steps, func(step string) bool {
		n := func(pattern *regexp.Regexp, i int) int {
			if found := pattern.FindStringSubmatch(step); found != nil {
				n, _ := strconv.Atoi(found[i])
				return n
			}
			return 0
		}
		return n(actual, 1)*n(actual, 2) > mostRows || n(removed, 1) > mostRows || n(buffers, 1)+n(buffers, 2) > mostPages
	})
}
