package database_test

import (
	"fmt"
	"io/fs"
	"maps"
	"strings"
	"sync"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/database/databasetest"
)

// files makes a file system of names and texts.
func files(pairs ...string) fs.FS {
	fsys := fstest.MapFS{}
	for i := 0; i < len(pairs); i += 2 {
		fsys[pairs[i]] = &fstest.MapFile{Data: []byte(pairs[i+1])}
	}
	return fsys
}

func TestMigrate(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		ctx := t.Context()
		first := []string{"migrations/0001_first.sql", "CREATE TABLE one_a (id TEXT PRIMARY KEY);\r\nCREATE TABLE one_b (id TEXT PRIMARY KEY);"}
		second := []string{
			"migrations/0002_second.sqlite.sql", `ALTER TABLE one_a ADD COLUMN n BIGINT;
				CREATE TRIGGER one_a_stays BEFORE DELETE ON one_a BEGIN SELECT RAISE(ABORT, 'stays'); END;`,
			"migrations/0002_second.postgres.sql", `ALTER TABLE one_a ADD COLUMN n BIGINT;
				CREATE FUNCTION one_stays() RETURNS trigger AS $$ BEGIN RAISE 'stays'; END $$ LANGUAGE plpgsql;
				CREATE TRIGGER one_a_stays BEFORE DELETE ON one_a FOR EACH ROW EXECUTE FUNCTION one_stays();`,
		}
		one := database.Migrations{Name: "one", FS: files(first...)}
		two := database.Migrations{Name: "two", FS: files("0001_first.sql", "CREATE TABLE two_a (id TEXT REFERENCES one_a (id));")}
		for range 2 {
			if err := db.Migrate(ctx, one, two); err != nil {
				t.Fatal(err)
			}
		}
		first[1] = strings.ReplaceAll(first[1], "\r\n", "\n")
		one.FS = files(append(first, second...)...)
		if err := db.Migrate(ctx, one, two); err != nil {
			t.Fatal(err)
		}
		execute(t, db, ctx, `INSERT INTO one_a (id, n) VALUES ('a', 1)`)
		if _, err := db.Exec(ctx, `DELETE FROM one_a`); err == nil || !strings.Contains(err.Error(), "stays") {
			t.Errorf("the trigger: %v", err)
		}
		got, err := database.All(ctx, db, scanText, `SELECT capability || '/' || name FROM kit_migrations ORDER BY capability, name`)
		if diff := cmp.Diff([]string{"one/0001_first", "one/0002_second", "two/0001_first"}, got); err != nil || diff != "" {
			t.Error(err, diff)
		}
	})
}

// While a new version is rolled out, nodes of the old one start on its schema,
// unless it says that it needs more.
func TestOlderCodeStartsOnANewerSchema(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		files := fstest.MapFS{}
		migrate := func() error {
			return db.Migrate(t.Context(), database.Migrations{Name: "rolling", FS: files})
		}
		add := func(name, text string) {
			files[name] = &fstest.MapFile{Data: []byte(text)}
			if err := migrate(); err != nil {
				t.Fatal(err)
			}
		}
		add("0001_a.sql", "CREATE TABLE rolling (id TEXT);")
		add("0002_b.sql", "ALTER TABLE rolling ADD COLUMN n BIGINT NOT NULL DEFAULT 0;")
		delete(files, "0002_b.sql")
		if err := migrate(); err != nil {
			t.Fatalf("the version before does not start: %v", err)
		}
		files["0002_b.sql"] = &fstest.MapFile{Data: []byte("ALTER TABLE rolling ADD COLUMN n BIGINT NOT NULL DEFAULT 0;")}
		add("0003_drop_needs_0002.sql", "ALTER TABLE rolling DROP COLUMN id;")
		delete(files, "0003_drop_needs_0002.sql")
		if err := migrate(); err != nil {
			t.Fatalf("a version that knows what is needed does not start: %v", err)
		}
		delete(files, "0002_b.sql")
		if err := migrate(); err == nil || !strings.Contains(err.Error(), "0003_drop_needs_0002: is applied but unknown") {
			t.Errorf("a version that is too old: %v", err)
		}
	})
}

func TestMigrateRefuses(t *testing.T) {
	good := map[string]string{"0001_a.sql": "CREATE TABLE a (id TEXT);", "0002_b.sql": "CREATE TABLE b (id TEXT);"}
	with := func(name, text string) map[string]string {
		m := maps.Clone(good)
		m[name] = text
		return m
	}
	tests := []struct {
		name  string
		files map[string]string
		want  string
	}{
		{"a changed file", with("0001_a.sql", "CREATE TABLE a (id TEXT, n BIGINT);"), "0001_a: has changed"},
		{"a gap", with("0004_d.sql", "SELECT 1;"), "0004_d: has the number 0004 instead of 0003"},
		{"a number twice", with("0002_c.sql", "SELECT 1;"), "0002_c: has the number 0002 instead of 0003"},
		{"a strange name", with("3_c.sql", "SELECT 1;"), "3_c.sql: is not named like NNNN_name.sql"},
		{"half a pair", with("0003_c.sqlite.sql", "SELECT 1;"), "0003_c: is neither one file nor a pair"},
		{"a pair and a common file", with("0002_b.postgres.sql", "SELECT 1;"), "0002_b: is neither one file nor a pair"},
		{"no files", nil, "migration x: holds no files"},
		{"code without an earlier file", map[string]string{"0001_x.sql": "SELECT 1;"}, "0001_a: is applied but unknown to this version"},
		{"a renamed file", map[string]string{"0001_a.sql": good["0001_a.sql"], "0002_c.sql": good["0002_b.sql"]}, "0002_b: is applied but unknown"},
		{"SQL that fails", with("0003_c.sql", "CREATE TABLE c (id TEXT); CREATE TABLE a (id TEXT);"), "0003_c"},
	}
	set := func(files map[string]string) database.Migrations {
		fsys := fstest.MapFS{}
		for name, text := range files {
			fsys[name] = &fstest.MapFile{Data: []byte(text)}
		}
		return database.Migrations{Name: "x", FS: fsys}
	}
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		ctx := t.Context()
		if err := db.Migrate(ctx, set(good)); err != nil {
			t.Fatal(err)
		}
		for _, test := range tests {
			if err := db.Migrate(ctx, set(test.files)); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("%s: %v", test.name, err)
			}
		}
		if err := db.Migrate(ctx, set(good), set(good)); err == nil {
			t.Error("one name twice: no error")
		}
		if err := db.Migrate(ctx, set(good)); err != nil {
			t.Error(err)
		}
		if _, err := db.Exec(ctx, `SELECT id FROM c`); err == nil {
			t.Error("half a migration was applied")
		}
	})
}

func TestNodesMigrateAtOnce(t *testing.T) {
	nodes := databasetest.Shared(t, 4)
	set := database.Migrations{Name: "x", FS: files(
		"0001_a.sql", "CREATE TABLE a (id TEXT PRIMARY KEY);",
		"0002_b.sql", "CREATE TABLE b (id TEXT PRIMARY KEY); INSERT INTO b (id) VALUES ('once');",
		"0003_c.sql", "ALTER TABLE b ADD COLUMN n BIGINT;")}
	var group sync.WaitGroup
	for _, db := range nodes {
		group.Go(func() {
			if err := db.Migrate(t.Context(), set); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	if n := count(t, nodes[0], t.Context(), `SELECT count(*) FROM kit_migrations`); n != 3 {
		t.Errorf("%d migrations", n)
	}
}

func TestTextIsOrderedByBytes(t *testing.T) {
	each(t, func(t *testing.T, db *database.DB) {
		ctx := t.Context()
		for _, id := range []string{"b", "a", "B", "ä", "_", "1"} {
			execute(t, db, ctx, insertAccount, id, 1)
		}
		got, err := database.All(ctx, db, scanText, `SELECT id FROM account ORDER BY id`)
		if diff := cmp.Diff([]string{"1", "B", "_", "a", "b", "ä"}, got); err != nil || diff != "" {
			t.Error(err, diff)
		}
	})
}

func TestAdapt(t *testing.T) {
	tests := []struct{ name, text, sqlite, postgres string }{
		{
			"types and options",
			"CREATE TABLE a (id TEXT PRIMARY KEY, n BIGINT NOT NULL, s smallint, ok BOOLEAN, x DOUBLE  PRECISION, b BYTEA);",
			"CREATE TABLE a (id TEXT PRIMARY KEY, n INTEGER NOT NULL, s INTEGER, ok INTEGER, x REAL  , b BLOB) STRICT;",
			`CREATE TABLE a (id TEXT COLLATE "C" PRIMARY KEY, n BIGINT NOT NULL, s smallint, ok BOOLEAN, x DOUBLE  PRECISION, b BYTEA);`,
		},
		{
			"no semicolon, quoted names, schema",
			`create table if not exists "main"."order" ("text" text, "bigint" bigint)`,
			`create table if not exists "main"."order" ("text" text, "bigint" INTEGER) STRICT`,
			`create table if not exists "main"."order" ("text" text COLLATE "C", "bigint" bigint)`,
		},
		{
			"constraints and nested parentheses",
			"CREATE TABLE a (k TEXT CONSTRAINT k CHECK (k IN ('TEXT)', 'b;')), PRIMARY KEY (k), CONSTRAINT text CHECK (CAST(k AS TEXT) <> ''), UNIQUE (k));",
			"CREATE TABLE a (k TEXT CONSTRAINT k CHECK (k IN ('TEXT)', 'b;')), PRIMARY KEY (k), CONSTRAINT text CHECK (CAST(k AS TEXT) <> ''), UNIQUE (k)) STRICT;",
			`CREATE TABLE a (k TEXT COLLATE "C" CONSTRAINT k CHECK (k IN ('TEXT)', 'b;')), PRIMARY KEY (k), CONSTRAINT text CHECK (CAST(k AS TEXT) <> ''), UNIQUE (k));`,
		},
		{
			"lists of checks",
			"CREATE TABLE a (k TEXT CHECK (k IN ('x', 'y''', 'z')), n BIGINT CONSTRAINT n CHECK (n IN (1, 2, 3)), CHECK (lower(k) IN ('x', 'y', 'z')));",
			"CREATE TABLE a (k TEXT CHECK (  k = 'x' OR k = 'y''' OR k = 'z'), n INTEGER CONSTRAINT n CHECK (n IN (1, 2, 3)), CHECK (lower(k) IN ('x', 'y', 'z'))) STRICT;",
			`CREATE TABLE a (k TEXT COLLATE "C" CHECK (k IN ('x', 'y''', 'z')), n BIGINT CONSTRAINT n CHECK (n IN (1, 2, 3)), CHECK (lower(k) IN ('x', 'y', 'z')));`,
		},
		{
			"options there already",
			"CREATE TABLE a (k TEXT) WITHOUT ROWID; CREATE TABLE b (k TEXT) STRICT; CREATE TABLE c (k TEXT) -- the end\n;",
			"CREATE TABLE a (k TEXT) WITHOUT ROWID, STRICT; CREATE TABLE b (k TEXT) STRICT; CREATE TABLE c (k TEXT) STRICT -- the end\n;",
			`CREATE TABLE a (k TEXT COLLATE "C") WITHOUT ROWID; CREATE TABLE b (k TEXT COLLATE "C") STRICT; CREATE TABLE c (k TEXT COLLATE "C") -- the end` + "\n;",
		},
		{
			"comments and strings",
			"-- CREATE TABLE a (k TEXT);\n/* CREATE TABLE b (k BIGINT); */\nINSERT INTO a VALUES ('it''s; CREATE TABLE c (k BIGINT);');",
			"-- CREATE TABLE a (k TEXT);\n/* CREATE TABLE b (k BIGINT); */\nINSERT INTO a VALUES ('it''s; CREATE TABLE c (k BIGINT);');",
			"-- CREATE TABLE a (k TEXT);\n/* CREATE TABLE b (k BIGINT); */\nINSERT INTO a VALUES ('it''s; CREATE TABLE c (k BIGINT);');",
		},
		{
			"escape and a collation there already",
			"CREATE TABLE a (k TEXT /*pg COLLATE \"C\" */, j TEXT COLLATE \"C\");",
			"CREATE TABLE a (k TEXT /*pg COLLATE \"C\" */, j TEXT COLLATE \"C\") STRICT;",
			"CREATE TABLE a (k TEXT  COLLATE \"C\"  , j TEXT COLLATE \"C\");",
		},
		{
			"columns added",
			"ALTER TABLE a ADD COLUMN n BIGINT NOT NULL DEFAULT 0; ALTER TABLE a ADD k TEXT; ALTER TABLE a RENAME COLUMN bigint TO text;",
			"ALTER TABLE a ADD COLUMN n INTEGER NOT NULL DEFAULT 0; ALTER TABLE a ADD k TEXT; ALTER TABLE a RENAME COLUMN bigint TO text;",
			`ALTER TABLE a ADD COLUMN n BIGINT NOT NULL DEFAULT 0; ALTER TABLE a ADD k TEXT COLLATE "C"; ALTER TABLE a RENAME COLUMN bigint TO text;`,
		},
		{
			"a trigger, then a table",
			"CREATE TRIGGER t BEFORE UPDATE ON a BEGIN SELECT CASE WHEN 1 THEN RAISE(ABORT, 'x') END; SELECT 2; END; CREATE TABLE b (n BIGINT);",
			"CREATE TRIGGER t BEFORE UPDATE ON a BEGIN SELECT CASE WHEN 1 THEN RAISE(ABORT, 'x') END; SELECT 2; END; CREATE TABLE b (n INTEGER) STRICT;",
			"CREATE TRIGGER t BEFORE UPDATE ON a BEGIN SELECT CASE WHEN 1 THEN RAISE(ABORT, 'x') END; SELECT 2; END; CREATE TABLE b (n BIGINT);",
		},
		{
			"a function, then a table",
			"CREATE FUNCTION f() RETURNS trigger AS $x$ BEGIN; CREATE TABLE q (k TEXT); END $x$ LANGUAGE plpgsql; CREATE TRIGGER t BEFORE UPDATE ON a EXECUTE FUNCTION f(); CREATE TABLE b (k TEXT);",
			"CREATE FUNCTION f() RETURNS trigger AS $x$ BEGIN; CREATE TABLE q (k TEXT); END $x$ LANGUAGE plpgsql; CREATE TRIGGER t BEFORE UPDATE ON a EXECUTE FUNCTION f(); CREATE TABLE b (k TEXT) STRICT;",
			`CREATE FUNCTION f() RETURNS trigger AS $x$ BEGIN; CREATE TABLE q (k TEXT); END $x$ LANGUAGE plpgsql; CREATE TRIGGER t BEFORE UPDATE ON a EXECUTE FUNCTION f(); CREATE TABLE b (k TEXT COLLATE "C");`,
		},
		{
			"tables left alone",
			"CREATE TABLE a AS SELECT 1; CREATE VIRTUAL TABLE b USING fts5(text); CREATE INDEX i ON a (text);",
			"CREATE TABLE a AS SELECT 1; CREATE VIRTUAL TABLE b USING fts5(text); CREATE INDEX i ON a (text);",
			"CREATE TABLE a AS SELECT 1; CREATE VIRTUAL TABLE b USING fts5(text); CREATE INDEX i ON a (text);",
		},
	}
	for _, test := range tests {
		if diff := cmp.Diff(test.sqlite, database.Adapt(database.SQLite, test.text)); diff != "" {
			t.Errorf("%s on SQLite: %s", test.name, diff)
		}
		if diff := cmp.Diff(test.postgres, database.Adapt(database.PostgreSQL, test.text)); diff != "" {
			t.Errorf("%s on PostgreSQL: %s", test.name, diff)
		}
	}
}

func FuzzAdapt(f *testing.F) {
	f.Add(schema)
	f.Add("CREATE TABLE a (k TEXT) STRICT; $$ ' \" /* --")
	f.Fuzz(func(t *testing.T, text string) {
		for _, dialect := range []database.Dialect{database.SQLite, database.PostgreSQL} {
			once := database.Adapt(dialect, text)
			if dialect == database.SQLite && !strings.Contains(strings.ToUpper(text), "TABLE") && once != text {
				t.Errorf("changed without a table: %q", once)
			}
		}
	})
}

func BenchmarkMigrate(b *testing.B) {
	sets := make([]database.Migrations, 16)
	for i := range sets {
		text := strings.ReplaceAll(schema, "CREATE TABLE ", fmt.Sprintf("CREATE TABLE c%d_", i))
		text = strings.ReplaceAll(text, "REFERENCES ", fmt.Sprintf("REFERENCES c%d_", i))
		sets[i] = database.Migrations{Name: fmt.Sprint(i), FS: files("0001_first.sql", text,
			"0002_second.sql", fmt.Sprintf("CREATE INDEX c%d_account_by_name ON c%d_account (name, id);", i, i))}
	}
	for b.Loop() {
		db, err := database.OpenMemory()
		if err != nil {
			b.Fatal(err)
		}
		if err := db.Migrate(b.Context(), sets...); err != nil {
			b.Fatal(err)
		}
		if err := db.Close(); err != nil {
			b.Fatal(err)
		}
	}
}
