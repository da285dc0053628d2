package kit_test

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"github.com/kitbackend/kit"
	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/database/databasetest"
	"github.com/kitbackend/kit/internal/mount"
	"github.com/kitbackend/kit/jobs"
	"github.com/kitbackend/kit/kittest"
	"github.com/kitbackend/kit/kv"
)

// lines are the migrations of everything.
func lines(k *kittest.Kit) []database.Migrations {
	all := []database.Migrations{jobs.Migrations(), kv.Migrations(), mount.Migrations()}
	for _, c := range k.Capabilities() {
		all = append(all, c.Lines()...)
	}
	return all
}

// files returns the files of a line by their names.
func files(t *testing.T, line database.Migrations) map[string]string {
	t.Helper()
	texts := make(map[string]string)
	err := fs.WalkDir(line.FS, ".", func(file string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || path.Ext(file) != ".sql" {
			return err
		}
		text, err := fs.ReadFile(line.FS, file)
		texts[path.Base(file)] = strings.ReplaceAll(string(text), "\r\n", "\n")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return texts
}

// TestMigrationsStand holds every landed migration to its checksum: one that has
// changed would be refused by every database that it was applied to.
func TestMigrationsStand(t *testing.T) {
	var b strings.Builder
	for _, line := range lines(kittest.New(t, everything()...)) {
		texts := files(t, line)
		for _, name := range sorted(texts) {
			sum := sha256.Sum256([]byte(texts[name]))
			fmt.Fprintf(&b, "%s/%s %s\n", line.Name, name, hex.EncodeToString(sum[:]))
		}
	}
	const golden = "testdata/migrations.golden"
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if *update {
		for line := range strings.Lines(string(want)) {
			if !strings.Contains(b.String(), line) {
				t.Fatalf("-update adds files and changes none: restore %s; only one that never landed may have its line changed by hand", strings.Fields(line)[0])
			}
		}
		want = []byte(b.String())
		if err := os.WriteFile(golden, want, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff(string(want), b.String()); diff != "" {
		t.Errorf("migrations changed; a new one is added with go test -run TestMigrationsStand -update ., a landed one is never changed\n%s", diff)
	}
}

func sorted[V any](m map[string]V) []string {
	var names []string
	for name := range m {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// breaking is what the version before would stumble over: what goes, or is called
// otherwise.
var breaking = regexp.MustCompile(`(?i)\bDROP\s+(TABLE|COLUMN)\b|\bRENAME\b|\bALTER\s+COLUMN\b`)

// added are columns that INSERTs of the version before do not know.
var added = regexp.MustCompile(`(?i)\bADD COLUMN\b[^;]*`)

// before are files from before the rule.
var before = []string{"email/0002_suppressions.sql"}

// TestMigrationsAreKindToTheVersionBefore holds what CONTRIBUTING.md demands.
func TestMigrationsAreKindToTheVersionBefore(t *testing.T) {
	for _, line := range lines(kittest.New(t, everything()...)) {
		for name, text := range files(t, line) {
			bad := breaking.FindString(text)
			for _, column := range added.FindAllString(text, -1) {
				if upper := strings.ToUpper(column); strings.Contains(upper, "NOT NULL") && !strings.Contains(upper, "DEFAULT") {
					bad = column
				}
			}
			if bad != "" && !strings.Contains(name, "_needs_") && !slices.Contains(before, line.Name+"/"+name) {
				t.Errorf("%s/%s: %q: a node of the version before would fail; do it a release later, in a file whose name ends in _needs_NNNN", line.Name, name, bad)
			}
		}
	}
}

// TestOlderNodeRunsAndRestartsOnANewerSchema applies to every line what the next
// release may bring: a table, an index, and a column with a default in every table
// that is there. The node that runs goes on, and starts again.
func TestOlderNodeRunsAndRestartsOnANewerSchema(t *testing.T) {
	older := func(t *testing.T, db *database.DB) {
		running := lived(t, db, new(syncBuffer))
		var newer []database.Migrations
		for _, line := range lines(running) {
			next := fstest.MapFS{}
			highest := ""
			for name, text := range files(t, line) {
				next[name] = &fstest.MapFile{Data: []byte(text)}
				highest = max(highest, name[:4])
			}
			var number int
			if _, err := fmt.Sscanf(highest, "%d", &number); err != nil {
				t.Fatal(err)
			}
			var text strings.Builder
			for _, match := range regexp.MustCompile(`(?im)^\s*CREATE TABLE ([a-z_]+)`).FindAllStringSubmatch(joined(files(t, line)), -1) {
				if statement := "ALTER TABLE " + match[1] + " ADD COLUMN of_the_next BIGINT NOT NULL DEFAULT 0;\n"; exists(t, db, match[1]) && !strings.Contains(text.String(), statement) {
					text.WriteString(statement)
				}
			}
			text.WriteString("CREATE TABLE next_" + strings.NewReplacer("-", "_", "/", "_", ".", "_").Replace(line.Name) + " (id TEXT NOT NULL PRIMARY KEY);\n")
			next[fmt.Sprintf("%04d_next.sql", number+1)] = &fstest.MapFile{Data: []byte(text.String())}
			newer = append(newer, database.Migrations{Name: line.Name, FS: next})
		}
		if err := db.Migrate(t.Context(), newer...); err != nil {
			t.Fatal(err)
		}
		works(t, running, "running")
		works(t, kittest.New(t, append(everything(), kit.WithDatabase(db))...), "restarted")
	}
	t.Run("memory", func(t *testing.T) { older(t, databasetest.Memory(t)) })
	t.Run("postgres", func(t *testing.T) { older(t, databasetest.Postgres(t)) })
}

func joined(texts map[string]string) string {
	var b strings.Builder
	for _, name := range sorted(texts) {
		b.WriteString(texts[name] + "\n")
	}
	return b.String()
}

func exists(t *testing.T, db *database.DB, table string) bool {
	t.Helper()
	return len(column(t, db, database.Text(`SELECT name FROM sqlite_master WHERE type = 'table' AND name = '`+table+`'`,
		`SELECT table_name FROM information_schema.tables WHERE table_schema = current_schema() AND table_name = '`+table+`'`))) > 0
}

// works uses what writes the most tables.
func works(t *testing.T, k *kittest.Kit, who string) {
	t.Helper()
	user := k.User("user-" + who)
	user.Get("/ledger/coins").Want(200, "")
	user.Post("/vector/notes/documents", map[string]any{"documents": []map[string]any{{"id": who, "text": who}}}).Want(200, "")
	user.Post("/support/feedback", map[string]any{"subject": who, "message": who}).Want(201, "")
	user.Post("/matchmaking/games/duel/rooms", `{}`).Want(201, "")
	user.Post("/storage", map[string]any{"path": who + ".txt", "size": 3, "contentType": "text/plain"}).Want(201, "")
	k.User("server", "leaderboard:submit").Post("/leaderboard/arcade", `{"score":5,"userId":"ada"}`).Want(200, "")
	k.User("server", "rating:record").Post("/rating/games/duel/outcomes", `{"ranks":{"ada":1,"bob":2}}`).Want(200, "")
	k.RunJobs()
	if err := k.EraseUser(t.Context(), "user-"+who); err != nil {
		t.Fatal(err)
	}
	k.RunJobs()
	if e, err := k.Erasure(t.Context(), "user-"+who); err != nil || e.FinishedAt.IsZero() {
		t.Errorf("%s: the erasure is not done: %+v %v", who, e, err)
	}
}
