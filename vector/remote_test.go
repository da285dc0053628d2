package vector_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kitbackend/kit/capability/capabilitytest"
	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/database/databasetest"
	"github.com/kitbackend/kit/jobs"
	"github.com/kitbackend/kit/secrets"
	"github.com/kitbackend/kit/vector"
)

// TestRemote calls a service in batches, with responses in any order, repeats requests after
// temporary failures, and checks that no error contains the key.
func TestRemote(t *testing.T) {
	db := databasetest.Memory(t)
	host := capabilitytest.NewHost(t, db)
	s, err := secrets.New(host, secrets.Config{Provider: secrets.NewMemory(host.Now)}, secrets.Peers{})
	if err != nil {
		t.Fatal(err)
	}
	if err := db.Migrate(t.Context(), slices.Concat([]database.Migrations{jobs.Migrations()}, s.Capability().Lines())...); err != nil {
		t.Fatal(err)
	}
	if err := host.Jobs.Register(s.Capability().Jobs...); err != nil {
		t.Fatal(err)
	}
	var behave atomic.Pointer[func(w http.ResponseWriter, input []string) bool]
	var calls atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		calls.Add(1)
		var body struct {
			Model string
			Input []string
		}
		raw, _ := io.ReadAll(r.Body)
		if r.URL.Path != "/v1/embeddings" || r.Header.Get("Authorization") != "Bearer sesame" || json.Unmarshal(raw, &body) != nil || body.Model != "tiny" || len(body.Input) > 3 {
			t.Errorf("%s %s", r.URL, raw)
		}
		if f := behave.Load(); f != nil && (*f)(w, body.Input) {
			return
		}
		type item struct {
			Index     int       `json:"index"`
			Embedding []float32 `json:"embedding"`
		}
		var data []item
		for i, text := range slices.Backward(body.Input) {
			data = append(data, item{i, []float32{1, float32(len(text))}})
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"data": data, "usage": map[string]any{"total_tokens": len(data)}})
	}))
	defer server.Close()
	var pauses []time.Duration
	embedder := vector.WithoutWaiting(vector.Remote(vector.RemoteConfig{Model: "tiny", Dimensions: 2, Batch: 3}), func(d time.Duration) { pauses = append(pauses, d) })
	cfg := vector.Config{Indexes: []vector.Index{{Name: "x", Embedder: embedder}}}
	if _, err := vector.New(host, cfg, vector.Peers{}); err == nil || !strings.Contains(err.Error(), "needs the capability secrets") {
		t.Errorf("composed without secrets: %v", err)
	}
	n := open(t, db, cfg, vector.Peers{Secrets: s})
	ctx, space := t.Context(), vector.Space{Index: "x", OwnerID: "ada"}
	_, err = n.Query(ctx, space, vector.Query{Text: "no secret yet"})
	want(t, err, vector.ErrEmbeddingFailed)
	put := func(address string) error {
		_, err := s.Rotate(ctx, vector.Credentials, secrets.Blocks{"embedder": {"baseUrl": secrets.NewValue(address), "apiKey": secrets.NewValue("sesame")}})
		return err
	}
	for _, address := range []string{"ftp://example.com", "http://user@example.com", "http://example.com?a=b"} {
		if put(address) == nil {
			_, err = n.Query(ctx, space, vector.Query{Text: "a bad address"})
			want(t, err, vector.ErrEmbeddingFailed)
		}
	}
	if err := put(server.URL + "/v1/"); err != nil {
		t.Fatal(err)
	}
	var documents []vector.Document
	for i := range 7 {
		documents = append(documents, vector.Document{ID: string(rune('a' + i)), Text: strings.Repeat("x", i+1)})
	}
	out := must(n.Upsert(ctx, space, documents...))(t)
	if out.Usage.EmbeddedTokens != 7 || calls.Load() != 3 {
		t.Errorf("%+v in %d calls", out.Usage, calls.Load())
	}
	if d := must(n.Get(ctx, space, "e"))(t); d.Model != "tiny" || d.Vector[1] != 5 {
		t.Errorf("%+v", d)
	}
	for name, c := range map[string]struct {
		behave func(w http.ResponseWriter, input []string) bool
		calls  int64
	}{
		"overloaded": {func(w http.ResponseWriter, _ []string) bool {
			w.Header().Set("Retry-After", "3")
			w.WriteHeader(429)
			return true
		}, 4},
		"broken":    {func(w http.ResponseWriter, _ []string) bool { w.WriteHeader(500); return true }, 4},
		"unwilling": {func(w http.ResponseWriter, _ []string) bool { w.WriteHeader(401); return true }, 1},
		"elsewhere": {func(w http.ResponseWriter, _ []string) bool {
			w.Header().Set("Location", "/")
			w.WriteHeader(302)
			return true
		}, 1},
		"no JSON": {func(w http.ResponseWriter, _ []string) bool { _, _ = io.WriteString(w, "sesame"); return true }, 1},
		"endless": {func(w http.ResponseWriter, _ []string) bool { _, _ = w.Write(make([]byte, 2<<20)); return true }, 1},
		"none":    {func(w http.ResponseWriter, _ []string) bool { _, _ = io.WriteString(w, `{"data":[]}`); return true }, 1},
		"bad index": {func(w http.ResponseWriter, _ []string) bool {
			_, _ = io.WriteString(w, `{"data":[{"index":9,"embedding":[1,2]}]}`)
			return true
		}, 1},
		"other width": {func(w http.ResponseWriter, _ []string) bool {
			_, _ = io.WriteString(w, `{"data":[{"index":0,"embedding":[1,2,3]}]}`)
			return true
		}, 1},
		"no number": {func(w http.ResponseWriter, _ []string) bool {
			_, _ = io.WriteString(w, `{"data":[{"index":0,"embedding":[1,null]}]}`)
			return true
		}, 1},
		"zero": {func(w http.ResponseWriter, _ []string) bool {
			_, _ = io.WriteString(w, `{"data":[{"index":0,"embedding":[0,0]}]}`)
			return true
		}, 1},
	} {
		calls.Store(0)
		behave.Store(&c.behave)
		_, err := n.Query(ctx, space, vector.Query{Text: "x"})
		if want(t, err, vector.ErrEmbeddingFailed); strings.Contains(err.Error(), "sesame") || calls.Load() != c.calls {
			t.Errorf("%s: %v after %d calls", name, err, calls.Load())
		}
	}
	if !slices.Contains(pauses, 3*time.Second) {
		t.Errorf("Retry-After was not heeded: %v", pauses)
	}
	failures := 2
	again := func(w http.ResponseWriter, _ []string) bool {
		if failures--; failures >= 0 {
			w.WriteHeader(503)
		}
		return failures >= 0
	}
	behave.Store(&again)
	must(n.Query(ctx, space, vector.Query{Text: "x"}))(t)
}
