package kit_test

import (
	"fmt"
	"math/rand/v2"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/kitbackend/kit"
	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/kittest"
)

// BenchmarkGrowth prints what each GET route takes with a thousand users, and again with as many as KIT_BENCH_GROWTH
// says. They are copies of one who has left data in every capability.
func BenchmarkGrowth(b *testing.B) {
	users, err := strconv.Atoi(os.Getenv("KIT_BENCH_GROWTH"))
	if err != nil {
		b.Skip("KIT_BENCH_GROWTH is no number of users")
	}
	for b.Loop() {
		db, err := database.OpenFile(filepath.Join(b.TempDir(), "kit.db"))
		if err != nil {
			b.Fatal(err)
		}
		growth(b, lived(b, db, new(syncBuffer)), 1000, users)
		if err := db.Close(); err != nil {
			b.Fatal(err)
		}
	}
}

func growth(b *testing.B, k *kittest.Kit, few, many int) {
	calls := reads(b, k)
	g := &grower{b: b, k: k}
	g.find()
	g.fill(few)
	before := make(map[string]time.Duration)
	for _, c := range calls {
		before[c.path] = c.median(k)
	}
	g.fill(many)
	fmt.Printf("%-64s %6s %10d %10d users\n", "", "status", few, many)
	for _, c := range calls {
		after := c.median(k)
		fmt.Printf("%-64s %6d %10s %10s  %.1f\n", c.named(), c.status, before[c.path], after, float64(after)/float64(before[c.path]))
	}
}

// reading is a call of a GET route.
type reading struct {
	route  kit.Route
	path   string
	status int
}

// reads finds parameters with which each GET route succeeds, among all the ids that responses and tables hold.
func reads(b *testing.B, k *kittest.Kit) (calls []reading) {
	w := &walker{Rand: rand.New(rand.NewPCG(3, 1)), document: readDocument(b, k), ids: []string{"ada", "bob", "coins", "arcade", "duel", "notes", "n1", "user"}}
	ids := w.ids
	for _, name := range ordinary(b, k.Database()) {
		for _, id := range column(b, k.Database(), `SELECT name FROM pragma_table_info('`+name+`') WHERE name IN ('id', 'token', 'code')`) {
			ids = append(ids, column(b, k.Database(), `SELECT CAST("`+id+`" AS TEXT) FROM `+name+` LIMIT 3`)...)
		}
	}
	for _, r := range k.Routes() {
		op := w.document.paths[braced(r.Path)]["get"]
		if r.Method != "GET" || op == nil || strings.HasSuffix(r.Path, "/socket") || strings.HasSuffix(r.Path, "/presence") || strings.HasPrefix(r.Path, "/auth/callback") {
			continue
		}
		c := reading{route: r}
		for _, path := range paths(r.Path, ids) {
			k.Clock.Advance(time.Second)
			if c.path, c.status = path, admittedBy(k, r).Get(path).Status; c.status < 300 {
				break
			}
		}
		calls = append(calls, c)
		for _, query := range w.filters(op) {
			k.Clock.Advance(time.Second)
			calls = append(calls, reading{r, c.path + "?" + query, admittedBy(k, r).Get(c.path + "?" + query).Status})
		}
	}
	return calls
}

// filters are queries with one parameter each, most of them of values that few rows or none have.
func (w *walker) filters(op *operation) (queries []string) {
	for _, p := range op.Parameters {
		if p.In != "query" || p.Name == "cursor" || p.Name == "limit" {
			continue
		}
		values := []any{"ada", "nothing-of-this-name"}
		switch {
		case len(p.Schema.Enum) > 0:
			values = p.Schema.Enum
		case p.Schema.Format == "date-time":
			values = []any{"2020-01-01T00:00:00.000Z", "2030-01-01T00:00:00.000Z"}
		case p.Schema.Type == "boolean":
			values = []any{true, false}
		}
		for _, v := range values {
			queries = append(queries, url.Values{p.Name: {fmt.Sprint(v)}}.Encode())
		}
	}
	return queries
}

// paths fills in the parameters of a pattern.
func paths(pattern string, ids []string) []string {
	all := []string{""}
	for part := range strings.SplitSeq(strings.TrimPrefix(pattern, "/"), "/") {
		var longer []string
		for _, path := range all {
			if !strings.HasPrefix(part, ":") {
				longer = append(longer, path+"/"+part)
				continue
			}
			for _, id := range ids {
				longer = append(longer, path+"/"+url.PathEscape(id))
			}
		}
		all = longer[:min(len(longer), 3000)]
	}
	return all
}

func (c reading) named() string {
	_, query, _ := strings.Cut(c.path, "?")
	return c.route.Path + " " + query
}

func (c reading) median(k *kittest.Kit) time.Duration {
	took := make([]time.Duration, 21)
	for i := range took {
		k.Clock.Advance(time.Second)
		client := admittedBy(k, c.route)
		began := time.Now()
		client.Get(c.path)
		took[i] = time.Since(began)
	}
	slices.Sort(took)
	return took[len(took)/2].Round(time.Microsecond)
}

// grower copies the rows of a user for others: what tells rows and people apart is another in each copy, and the same
// wherever it stands.
type grower struct {
	b      *testing.B
	k      *kittest.Kit
	tables []*grownTable
}

type grownTable struct {
	name    string
	columns []string // of a copy, as SQL
	copies  int
}

// ordinary lists the tables that hold rows of their own.
func ordinary(t testing.TB, db *database.DB) []string {
	return column(t, db, `SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%' AND sql NOT LIKE '%VIRTUAL%'
		AND name NOT LIKE 'vector_text_%' AND name NOT IN ('kit_migrations', 'kit_cron') ORDER BY name`)
}

// find lists the tables with rows and what a copy of their columns is.
func (g *grower) find() {
	db := g.k.Database()
	g.exec(`CREATE TABLE grown (id TEXT PRIMARY KEY) WITHOUT ROWID`)
	g.exec(`INSERT INTO grown VALUES ('ada'), ('bob')`)
	names := ordinary(g.b, db)
	unique := make(map[string]map[string]bool)
	for _, name := range names {
		if name == "grown" {
			continue
		}
		unique[name] = make(map[string]bool)
		for _, c := range column(g.b, db, `SELECT DISTINCT i.name FROM pragma_index_list('`+name+`') AS l, pragma_index_info(l.name) AS i WHERE l."unique" AND i.name IS NOT NULL
			UNION SELECT name FROM pragma_table_info('`+name+`') WHERE pk > 0`) {
			unique[name][c] = true
			g.exec(`INSERT OR IGNORE INTO grown SELECT "` + c + `" FROM ` + name + ` WHERE typeof("` + c + `") = 'text' AND (length("` + c + `") >= 16 OR "` + c + `" LIKE '%@%')`)
		}
	}
	for _, name := range names {
		t := &grownTable{name: name}
		if g.count(name) == 0 || name == "grown" {
			continue
		}
		g.exec(`CREATE TABLE grown_` + name + ` AS SELECT * FROM ` + name + ` LIMIT 12`)
		for _, c := range column(g.b, db, `SELECT name FROM pragma_table_info('`+name+`') ORDER BY cid`) {
			copied := `CASE WHEN typeof(t.` + c + `) = 'text' AND t.` + c + ` IN (SELECT id FROM grown) THEN CASE WHEN length(t.` + c + `) < 16 OR t.` + c + ` LIKE '%@%'
				THEN 'g' || copy || t.` + c + ` ELSE substr(t.` + c + `, 1, length(t.` + c + `) - 8) || printf('%08d', copy) END`
			if unique[name][c] {
				copied += ` WHEN typeof(t.` + c + `) = 'blob' THEN randomblob(length(t.` + c + `)) WHEN typeof(t.` + c + `) = 'integer' AND '` + c + `' IN ('number', 'position') THEN t.` + c + ` + 1000000 * copy`
			}
			t.columns = append(t.columns, copied+` ELSE t.`+c+` END`)
		}
		g.tables = append(g.tables, t)
	}
}

// fill adds users, until there are as many: first to the tables that others refer to.
func (g *grower) fill(users int) {
	began := time.Now()
	for pending := g.tables; len(pending) > 0; {
		var refused []*grownTable
		var fault error
		for _, t := range pending {
			if err := g.copy(t, users); err != nil {
				refused, fault = append(refused, t), err
			}
		}
		if len(refused) == len(pending) {
			g.b.Fatalf("%s: %v", refused[0].name, fault)
		}
		pending = refused
	}
	rows := 0
	var less []string
	for _, t := range g.tables {
		n := g.count(t.name)
		if rows += n; n < users {
			less = append(less, fmt.Sprintf("%s %d", t.name, n))
		}
	}
	fmt.Printf("%d users, %d rows in %d tables, after %s; fewer than users in %s\n", users, rows, len(g.tables), time.Since(began).Round(time.Second), strings.Join(less, ", "))
}

func (g *grower) copy(t *grownTable, users int) error {
	for t.copies < users {
		n := min(users-t.copies, 1000)
		if _, err := g.k.Database().Exec(g.b.Context(), fmt.Sprintf(`WITH RECURSIVE series (copy) AS (SELECT %d UNION ALL SELECT copy + 1 FROM series WHERE copy < %d)
			INSERT OR IGNORE INTO %s SELECT %s FROM grown_%[3]s AS t, series`, t.copies+1, t.copies+n, t.name, strings.Join(t.columns, ", "))); err != nil {
			return err
		}
		t.copies += n
	}
	return nil
}

func (g *grower) count(table string) int {
	n, err := strconv.Atoi(column(g.b, g.k.Database(), `SELECT CAST(count(*) AS TEXT) FROM `+table)[0])
	if err != nil {
		g.b.Fatal(err)
	}
	return n
}

func (g *grower) exec(statement string) {
	g.b.Helper()
	if _, err := g.k.Database().Exec(g.b.Context(), statement); err != nil {
		g.b.Fatalf("%s: %v", statement, err)
	}
}
