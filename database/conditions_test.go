package database_test

import (
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/database/databasetest"
)

func TestConditionsFindWhatBeginsWithAPrefix(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		if err := db.Migrate(t.Context(), database.Migrations{Name: "words", FS: fstest.MapFS{"0001_word.sql": {Data: []byte("CREATE TABLE word (text TEXT NOT NULL PRIMARY KEY, kind TEXT NOT NULL);")}}}); err != nil {
			t.Fatal(err)
		}
		for _, text := range []string{"a", "ab", "ab\U0010FFFF", "ab\U0010FFFFc", "ab\uD7FFx", "ab\uE000", "abc", "ac", "b"} {
			if _, err := db.Exec(t.Context(), `INSERT INTO word (text, kind) VALUES ($1, $2)`, text, text[:1]); err != nil {
				t.Fatal(err)
			}
		}
		for _, c := range []struct {
			prefix, kind string
			want         []string
		}{
			{"ab", "", []string{"ab", "abc", "ab\uD7FFx", "ab\uE000", "ab\U0010FFFF", "ab\U0010FFFFc"}},
			{"ab\uD7FF", "", []string{"ab\uD7FFx"}},
			{"ab\U0010FFFF", "", []string{"ab\U0010FFFF", "ab\U0010FFFFc"}},
			{"\U0010FFFF", "", []string{}},
			{"", "b", []string{"b"}},
			{"a", "b", []string{}},
		} {
			var where database.Conditions
			where.Begins("text", c.prefix)
			where.Equal("kind", c.kind)
			got, err := database.All(t.Context(), db, func(s database.Scanner) (text string, err error) { return text, s.Scan(&text) },
				`SELECT text FROM word WHERE `+where.Text()+` ORDER BY text`, where.Args()...)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("begins with %q, kind %q: %s", c.prefix, c.kind, diff)
			}
		}
	})
}
