package vector_test

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kitbackend/kit"
	"github.com/kitbackend/kit/auth"
	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/database/databasetest"
	"github.com/kitbackend/kit/kittest"
	"github.com/kitbackend/kit/vector"
)

func eachKit(t *testing.T, fn func(t *testing.T, k *kittest.Kit)) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		fn(t, kittest.New(t, kit.WithDatabase(db), kit.WithAuth(auth.Config{}), kit.WithVector(config)))
	})
}

type object = map[string]any

// TestHTTP calls the four routes.
func TestHTTP(t *testing.T) {
	eachKit(t, func(t *testing.T, k *kittest.Kit) {
		ada, bob := k.User("ada"), k.User("bob")
		var out vector.Upserted
		ada.Post("/vector/notes/documents", object{"documents": []object{
			{"id": "a", "text": "the first note", "metadata": object{"kind": "x", "nested": object{"a": []int{1}}}}, {"id": "b", "text": "another"}}}).Want(200, "").JSON(&out)
		if len(out.Items) != 2 || !out.Items[0].Created {
			t.Errorf("%+v", out)
		}
		ada.Post("/vector/notes/documents", object{"text": "by itself"}).Want(200, "").JSON(&out)
		if len(out.Items) != 1 || len(out.Items[0].ID) != 26 {
			t.Errorf("%+v", out)
		}
		bob.Post("/vector/notes/documents", `{"id":"a","text":"of bob"}`).Want(200, "")
		var a vector.Result
		ada.Post("/vector/notes/query", object{"text": "first", "mode": "hybrid", "topK": 1, "include": []string{"metadata", "text", "vector"}}).Want(200, "").JSON(&a)
		if len(a.Items) != 1 || a.Items[0].ID != "a" || a.Items[0].Text != "the first note" || len(a.Items[0].Vector) != 384 || a.Items[0].Distance == nil {
			t.Errorf("%+v", a)
		}
		var d vector.Stored
		ada.Get("/vector/notes/documents/a").Want(200, "").JSON(&d)
		if d.Text != "the first note" || d.Vector != nil || d.Dimensions != 384 {
			t.Errorf("%+v", d)
		}
		ada.Get("/vector/notes/documents/a?include=vector").Want(200, "").JSON(&d)
		if len(d.Vector) != 384 {
			t.Errorf("%+v", d)
		}
		foreign, missing := bob.Get("/vector/notes/documents/b"), bob.Get("/vector/notes/documents/none")
		foreign.Want(404, "vector/document_not_found")
		missing.Want(404, "vector/document_not_found")
		bob.Do("DELETE", "/vector/notes/documents/b", nil).Want(404, "vector/document_not_found")
		bob.Post("/vector/notes/query", object{"documentId": "b"}).Want(404, "vector/document_not_found")
		ada.Do("DELETE", "/vector/notes/documents/b", nil).Want(204, "")
		ada.Get("/vector/notes/documents/b").Want(404, "vector/document_not_found")
		bob.Get("/vector/notes/documents/a").Want(200, "").JSON(&d)
		if d.Text != "of bob" {
			t.Errorf("%+v", d)
		}
	})
}

var requestID = regexp.MustCompile(`"requestId":"[^"]*"`)

// TestForeign checks that a document of another owner looks like one that does not exist, on every
// route: the same body, in about the same time.
func TestForeign(t *testing.T) {
	k := kittest.New(t, kit.WithAuth(auth.Config{}), kit.WithVector(config))
	ada, bob := k.User("ada"), k.User("bob")
	for i := range 20 {
		ada.Post("/vector/notes/documents", object{"id": fmt.Sprintf("a%d", i), "text": "a note of ada"}).Want(200, "")
	}
	bob.Post("/vector/notes/documents", object{"id": "own", "text": "a note of bob"}).Want(200, "")
	for name, ask := range map[string]func(id string) *kittest.Response{
		"get":    func(id string) *kittest.Response { return bob.Get("/vector/notes/documents/" + id) },
		"delete": func(id string) *kittest.Response { return bob.Do("DELETE", "/vector/notes/documents/"+id, nil) },
		"query":  func(id string) *kittest.Response { return bob.Post("/vector/notes/query", object{"documentId": id}) },
	} {
		var foreign, missing []time.Duration
		timed := func(list *[]time.Duration, id string) string {
			began := time.Now()
			response := ask(id).Want(404, "vector/document_not_found")
			*list = append(*list, time.Since(began))
			return requestID.ReplaceAllString(string(response.Body), "")
		}
		for range 60 {
			if a, b := timed(&foreign, "a7"), timed(&missing, "z7"); a != b {
				t.Fatalf("%s: a foreign document gives %s, a missing one %s", name, a, b)
			}
		}
		slices.Sort(foreign)
		slices.Sort(missing)
		if a, b := foreign[30], missing[30]; a > 3*b || b > 3*a {
			t.Errorf("%s: a foreign document takes %v, a missing one %v", name, a, b)
		}
	}
	ada.Get("/vector/notes/documents/a7").Want(200, "")
}

// TestHTTPRefuses produces every refusal code of the routes.
func TestHTTPRefuses(t *testing.T) {
	k := kittest.New(t, kit.WithAuth(auth.Config{}), kit.WithVector(config))
	ada := k.User("ada")
	for _, path := range []string{"/vector/none/documents/a", "/vector/no!/documents/a"} {
		ada.Get(path).Want(404, "vector/index_not_found")
		ada.Do("DELETE", path, nil).Want(404, "vector/index_not_found")
	}
	ada.Post("/vector/none/documents", object{"text": "x"}).Want(404, "vector/index_not_found")
	ada.Post("/vector/none/query", object{"text": "x"}).Want(404, "vector/index_not_found")
	ada.Post("/vector/manual/documents", object{"text": "x"}).Want(403, "vector/read_only")
	ada.Do("DELETE", "/vector/manual/documents/x", nil).Want(403, "vector/read_only")
	ada.Get("/vector/manual/documents/x").Want(404, "vector/document_not_found")
	if _, err := k.Vector().Upsert(t.Context(), vector.Space{Index: "manual"}, vector.Document{ID: "x", Text: "for all"}); err != nil {
		t.Fatal(err)
	}
	ada.Get("/vector/manual/documents/x").Want(200, "")
	ada.Post("/vector/manual/query", object{"text": "all"}).Want(200, "")
	ada.Post("/vector/angles/documents", object{"text": "x"}).Want(422, "vector/embedder_not_configured")
	ada.Post("/vector/angles/query", object{"text": "x"}).Want(422, "vector/embedder_not_configured")
	ada.Post("/vector/angles/documents", object{"vector": []int{1}}).Want(422, "vector/dimension_mismatch")
	ada.Post("/vector/angles/query", object{"vector": []int{1}}).Want(422, "vector/dimension_mismatch")
	ada.Post("/vector/points/documents", object{"vector": []int{0, 0}, "model": "m"}).Want(200, "")
	ada.Post("/vector/points/documents", object{"vector": []int{1, 1}}).Want(409, "vector/model_mismatch")
	var six []object
	for i := range 6 {
		six = append(six, object{"vector": []int{i, 1}, "model": "m"})
	}
	ada.Post("/vector/points/documents", object{"documents": six}).Want(413, "vector/quota_exceeded")
	for _, body := range []string{`{}`, `{"documents":[]}`, `{"text":1}`, `{"vector":[1e39,1]}`, `{"vector":["a",1]}`, `{"vector":[NaN,1]}`, `{"vector":[null,1]}`, `{"vector":[0,0]}`,
		`{"text":"x","ownerId":"bob"}`, `{"documents":[{"id":"a","vector":[1,1]},{"id":"a","vector":[1,1]}]}`, `{"text":"x","documents":[{"text":"x"}]}`,
		`{"text":"x","text":"y"}`, `{"documents":[` + strings.Repeat(`{"vector":[1,1]},`, 100) + `{"vector":[1,1]}]}`, `{"vector":[1,1],"metadata":{"":1}}`} {
		ada.Post("/vector/angles/documents", body).Want(400, "kit/invalid_request")
	}
	ada.Post("/vector/notes/documents", `{"text":"`+strings.Repeat("x", 8<<20)+`"}`).Want(413, "kit/body_too_large")
	ada.Post("/vector/notes/query", `{"text":"`+strings.Repeat("x", 256<<10)+`"}`).Want(413, "kit/body_too_large")
	ada.Post("/vector/angles/documents", `{"vector":[1`+strings.Repeat(",1", (8<<20-64)/2)+`]}`).Want(422, "vector/dimension_mismatch")
	for _, body := range []string{`{}`, `{"text":"x","topK":0.5}`, `{"text":"x","topK":101}`, `{"text":"x","filter":{"year":null}}`, `{"text":"x","filter":{"year":{"like":"x"}}}`,
		`{"text":"x","filter":{"year":{}}}`, `{"text":"x","filter":{"or":[]}}`, `{"text":"x","filter":{"or":{"year":1}}}`, `{"text":"x","filter":{"not":{}}}`,
		`{"text":"x","filter":{"year":{"gt":true}}}`, `{"text":"x","filter":{"year":{"in":1}}}`, `{"text":"x","filter":{"year":{"in":[[]]}}}`, `{"text":"x","filter":{"year":{"exists":1}}}`,
		`{"text":"x","filter":{"ownerId":"bob"}}`, `{"text":"x","filter":{"not":{"not":{"not":{"not":{"year":1}}}}}}`, `{"text":"x","filter":[]}`,
		`{"text":"x","filter":{"and":[` + strings.Repeat(`{"year":1},`, 32) + `{"year":1}]}}`,
		`{"text":"x","filter":{"or":[` + strings.Repeat(`{"year":{"gt":1,"lt":2}},`, 16) + `{"year":1}]}}`,
		`{"text":"x","filter":{"kind":{"in":["` + strings.Repeat(`x","`, 100) + `x"]}}}`} {
		ada.Post("/vector/notes/query", body).Want(400, "kit/invalid_request")
	}
}

// TestHostileWords checks that user input never becomes a query of the database.
func TestHostileWords(t *testing.T) {
	eachKit(t, func(t *testing.T, k *kittest.Kit) {
		ada, bob := k.User("ada"), k.User("bob")
		for i, text := range []string{"plain words", "NEAR AND OR NOT words", "scope words: \"quoted\" 'single'", "日本語のテキスト", "naïve café", "a1b2 123abc 1e5 0x1f", "x' | 'y & !z:*"} {
			ada.Post("/vector/notes/documents", object{"id": fmt.Sprint(i), "text": text}).Want(200, "")
			bob.Post("/vector/notes/documents", object{"id": fmt.Sprint(i), "text": text}).Want(200, "")
		}
		for _, c := range []struct {
			text string
			ids  string
		}{
			{"plain", "0"}, {"NEAR(plain words)", "0 1 2"}, {`" OR scope:*`, "1 2"}, {"plain*", "0"}, {"'quoted", "2"}, {"-words ^plain", "0 1 2"}, {"日本", "3"}, {"CAFÉ", "4"},
			{"123abc", "5"}, {"0x1f", "5"}, {"1e5", "5"}, {"y | !z", "6"}, {"''", ""}, {`"`, ""}, {"(((", ""}, {"\\", ""}, {"{scope words}:plain", "0 1 2"}, {"plai", "0"}, {"plai ", ""},
			{"🙂", ""}, {"%_", ""}, {"$1; DROP TABLE vector_document", ""}, {strings.Repeat("word ", 1000), ""}, {strings.Repeat("é", 4000), ""},
		} {
			var a vector.Result
			ada.Post("/vector/notes/query", object{"text": c.text, "mode": "text"}).Want(200, "").JSON(&a)
			got := make(map[string]bool)
			for _, m := range a.Items {
				got[m.ID] = true
			}
			if want := strings.Fields(c.ids); len(got) != len(want) {
				t.Errorf("%.40q finds %v, want %v", c.text, got, want)
			} else {
				for _, id := range want {
					if !got[id] {
						t.Errorf("%.40q finds %v, want %v", c.text, got, want)
					}
				}
			}
			ada.Post("/vector/notes/query", object{"text": c.text, "mode": "hybrid"}).Want(200, "")
		}
	})
}
