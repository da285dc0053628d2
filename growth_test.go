package kit_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/kitbackend/kit"
	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/kittest"
)

// TestGrowth calls each GET route with about 1,000 rows in each table, and again with as many as KIT_TEST_GROWTH says: none
// may take longer because its tables are larger. What the rows are copied from is what a walk over all routes leaves.
//
//	KIT_TEST_GROWTH=100000 go test -run TestGrowth -timeout 60m -v .
func TestGrowth(t *testing.T) {
	most, err := strconv.Atoi(os.Getenv("KIT_TEST_GROWTH"))
	if err != nil {
		t.Skip("KIT_TEST_GROWTH is not set to a number of rows")
	}
	const fewest, rounds = 1000, 9
	k := composed(t)
	g := &grower{t: t, k: k}
	ids := g.walk()
	g.findTables()
	g.fill(fewest)
	var calls []*growthCall
	for _, r := range k.Routes() {
		if r.Method == "GET" && !strings.HasSuffix(r.Path, "/socket") && !strings.HasSuffix(r.Path, "/presence") {
			calls = append(calls, g.choose(r, ids))
		}
	}
	for _, c := range calls {
		c.few = g.median(c, rounds)
	}
	g.fill(most)
	t.Logf("%-60s %6s %12s %12s", "route", "status", fmt.Sprint(fewest), fmt.Sprint(most))
	for _, c := range calls {
		many := g.median(c, rounds)
		t.Logf("%-60s %6d %12s %12s  %4.1f", c.route.Path, c.status, c.few, many, float64(many)/float64(c.few))
		if many > 3*c.few && many-c.few > 2*time.Millisecond {
			t.Errorf("GET %s (%d) takes %s with %d rows and %s with %d", c.path, c.status, c.few, fewest, many, most)
		}
	}
}

type growthCall struct {
	route  kit.Route
	path   string
	status int
	few    time.Duration
}

// grower fills the tables of a kit on SQLite.
type grower struct {
	t      *testing.T
	k      *kittest.Kit
	tables []*grownTable
}

// grownTable is a table with rows to copy.
type grownTable struct {
	name    string
	columns []string
	numbers map[string]bool // columns of integers
	copies  int             // of each of its first rows, so far
	vary    []string        // columns that make a copy another row
}

// walk makes rows by calls of every route, and returns the ids that were seen.
func (g *grower) walk() []string {
	g.k.Anonymous().Get("/control-plane/ping") // connects
	raw, err := g.k.OpenAPI()
	if err != nil {
		g.t.Fatal(err)
	}
	w := &walker{Rand: rand.New(rand.NewPCG(1, 1)), document: readDocument(g.t, raw), ids: []string{"ada", "bob", "coins", "arcade", "duel", "notes"}}
	for range 4 * walkSteps {
		for _, r := range g.k.Routes() {
			op := w.document.paths[braced(r.Path)][strings.ToLower(r.Method)]
			if op == nil || r.Method == "DELETE" || strings.HasSuffix(r.Path, "*") || strings.HasSuffix(r.Path, "/socket") || strings.HasSuffix(r.Path, "/presence") {
				continue
			}
			g.k.Clock.Advance(time.Second)
			w.remember(admittedBy(g.k, r).Do(r.Method, w.path(r.Path, op), w.body(op)))
		}
	}
	return w.ids
}

// choose looks for parameters that a route takes, by one id for each.
func (g *grower) choose(r kit.Route, ids []string) *growthCall {
	c := &growthCall{route: r}
	tries := []string{""}
	for part := range strings.SplitSeq(strings.TrimPrefix(r.Path, "/"), "/") {
		var longer []string
		for _, path := range tries {
			if !strings.HasPrefix(part, ":") {
				longer = append(longer, path+"/"+part)
				continue
			}
			for _, id := range ids {
				longer = append(longer, path+"/"+url.PathEscape(id))
			}
		}
		tries = longer[:min(len(longer), 500)]
	}
	for _, path := range tries {
		g.k.Clock.Advance(time.Second)
		if c.path, c.status = path, admittedBy(g.k, r).Get(path).Status; c.status < 300 {
			break
		}
	}
	return c
}

func (g *grower) median(c *growthCall, rounds int) time.Duration {
	took := make([]time.Duration, rounds)
	for i := range took {
		g.k.Clock.Advance(time.Second)
		client := admittedBy(g.k, c.route)
		began := time.Now()
		client.Get(c.path)
		took[i] = time.Since(began)
	}
	slices.Sort(took)
	return took[rounds/2].Round(time.Microsecond)
}

// findTables lists the tables that have rows, and finds out what makes a copy of one another row.
func (g *grower) findTables() {
	for _, name := range g.strings(`SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%' ORDER BY name`) {
		table := &grownTable{name: name, columns: g.strings(`SELECT name FROM pragma_table_info($1) ORDER BY cid`, name), numbers: map[string]bool{}}
		for _, column := range g.strings(`SELECT name FROM pragma_table_info($1) WHERE type IN ('BIGINT', 'INTEGER')`, name) {
			table.numbers[column] = true
		}
		rows := g.strings(`SELECT CAST(count(*) AS TEXT) FROM ` + name)
		if rows[0] == "0" {
			g.t.Logf("%s is empty", name)
			continue
		}
		unique := [][]string{}
		for _, index := range g.strings(`SELECT name FROM pragma_index_list($1) WHERE "unique"`, name) {
			unique = append(unique, g.strings(`SELECT name FROM pragma_index_info($1) WHERE name IS NOT NULL ORDER BY seqno`, index))
		}
		if len(unique) == 0 {
			unique = append(unique, g.strings(`SELECT name FROM pragma_table_info($1) WHERE pk > 0 ORDER BY pk`, name))
		}
		if g.findVary(table, unique, nil) {
			g.tables = append(g.tables, table)
		} else {
			g.t.Logf("%s has rows that cannot be copied", name)
		}
	}
}

// findVary tries the columns of each unique index in turn.
func (g *grower) findVary(table *grownTable, unique [][]string, vary []string) bool {
	if len(unique) == 0 {
		table.vary, table.copies = vary, 0
		if g.copy(table, 2) == nil {
			return true
		}
		return false
	}
	if slices.ContainsFunc(unique[0], func(c string) bool { return slices.Contains(vary, c) }) {
		return g.findVary(table, unique[1:], vary)
	}
	ordered := slices.Clone(unique[0])
	slices.SortStableFunc(ordered, func(a, b string) int { return likely(b) - likely(a) })
	for _, column := range ordered {
		if g.findVary(table, unique[1:], append(slices.Clone(vary), column)) {
			return true
		}
	}
	return false
}

// likely orders columns by how likely they tell rows apart.
func likely(column string) int {
	switch {
	case column == "id", strings.HasSuffix(column, "_id"), column == "ref", strings.HasSuffix(column, "hash"):
		return 2
	case strings.Contains(column, "user"), strings.Contains(column, "subject"), strings.HasSuffix(column, "key"):
		return 1
	}
	return 0
}

// copied is how many rows of a table are copied.
const copied = 20

// fill brings every table to about so many rows.
func (g *grower) fill(rows int) {
	began := time.Now()
	for _, table := range g.tables {
		n := 0
		for _, text := range g.strings(`SELECT CAST(min(count(*), 20) AS TEXT) FROM ` + table.name) {
			n, _ = strconv.Atoi(text)
		}
		for copies := rows / n; table.copies < copies; {
			if err := g.copy(table, min(copies-table.copies, 20_000/n)); err != nil {
				g.t.Fatalf("%s: %v", table.name, err)
			}
		}
	}
	g.t.Logf("filled %d tables to %d rows in %s", len(g.tables), rows, time.Since(began).Round(time.Second))
}

// copy adds n copies of the first rows of a table.
func (g *grower) copy(table *grownTable, n int) error {
	values := make([]string, len(table.columns))
	for i, column := range table.columns {
		switch {
		case !slices.Contains(table.vary, column):
			values[i] = "t." + column
		case table.numbers[column]:
			values[i] = "t." + column + " + 1000000 * (1 + n)"
		default:
			values[i] = "CASE typeof(t." + column + ") WHEN 'blob' THEN randomblob(length(t." + column + ")) ELSE t." + column + " || 'g' || n END"
		}
	}
	_, err := g.k.Database().Exec(context.Background(), `WITH RECURSIVE series (n) AS (SELECT CAST($1 AS INTEGER) UNION ALL SELECT n + 1 FROM series WHERE n < $2)
		INSERT INTO `+table.name+` (`+strings.Join(table.columns, ", ")+`) SELECT `+strings.Join(values, ", ")+`
		FROM (SELECT * FROM `+table.name+` LIMIT `+strconv.Itoa(copied)+`) AS t, series`, table.copies, table.copies+n-1)
	if err == nil {
		table.copies += n
	}
	return err
}

func (g *grower) strings(query string, args ...any) []string {
	g.t.Helper()
	list, err := database.All(context.Background(), g.k.Database(), func(s database.Scanner) (text string, err error) {
		err = s.Scan(&text)
		return text, err
	}, query, args...)
	if err != nil {
		g.t.Fatalf("%s: %v", query, err)
	}
	return list
}
