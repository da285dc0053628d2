package bench

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/kitbackend/kit"
	"github.com/kitbackend/kit/auth"
	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/database/databasetest"
	"github.com/kitbackend/kit/internal/processor"
	"github.com/kitbackend/kit/internal/processtest"
	"github.com/kitbackend/kit/storage"
	"github.com/kitbackend/kit/storage/bucket"
	"github.com/kitbackend/kit/storage/bucket/buckettest"
	"github.com/kitbackend/kit/storage/bucket/file"
	"golang.org/x/sync/errgroup"
)

const objectSize = 32 << 20

func composeStorage(b *testing.B, db *database.DB, url string, objects string) *kit.Kit {
	b.Helper()
	k, err := kit.New(kit.WithDatabase(db), kit.WithEnvironment("test"), kit.WithBaseURL(url), kit.WithLogger(slog.New(slog.DiscardHandler)),
		kit.WithAuth(auth.Config{}), kit.WithStorage(storage.Config{Bucket: file.New(objects)}))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = k.Close(context.Background()) })
	return k
}

// BenchmarkStorageBytes moves 32 MiB over loopback: through the kit, by its signed URLs, and by
// http.ServeFile of the same bytes.
func BenchmarkStorageBytes(b *testing.B) {
	var handler http.Handler
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { handler.ServeHTTP(w, r) }))
	defer server.Close()
	k := composeStorage(b, databasetest.File(b), server.URL, filepath.Join(b.TempDir(), "objects"))
	body := bytes.Repeat([]byte("0123456789abcdef"), objectSize/16)
	o, err := k.Storage().Put(b.Context(), storage.Upload{OwnerID: "ada", Path: "a", Size: objectSize, Visibility: storage.VisibilityPublic}, bytes.NewReader(body))
	if err != nil {
		b.Fatal(err)
	}
	link, err := k.Storage().Sign(b.Context(), storage.ByID(o.ID), storage.SignOptions{TTL: time.Hour})
	if err != nil {
		b.Fatal(err)
	}
	plain := filepath.Join(b.TempDir(), "plain")
	if err := os.WriteFile(plain, body, 0o600); err != nil {
		b.Fatal(err)
	}
	get := func(b *testing.B, h http.Handler, address string) {
		handler = h
		b.SetBytes(objectSize)
		before, n := processor.Spent(), 0
		defer func() {
			b.ReportMetric(float64((processor.Spent()-before).Microseconds())/1000/float64(max(n, 1)), "cpu-ms/op")
		}()
		for b.Loop() {
			n++
			response, err := http.Get(address)
			if err != nil {
				b.Fatal(err)
			}
			if n, err := io.Copy(io.Discard, response.Body); n != objectSize || err != nil {
				b.Fatal(n, err)
			}
			_ = response.Body.Close()
		}
	}
	b.Run("download/object", func(b *testing.B) { get(b, k, server.URL+"/storage/"+o.ID) })
	b.Run("download/signed", func(b *testing.B) { get(b, k, link.URL) })
	b.Run("download/ServeFile", func(b *testing.B) {
		get(b, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { http.ServeFile(w, r, plain) }), server.URL)
	})
	if nginx := os.Getenv("KIT_TEST_NGINX"); nginx != "" {
		b.Run("download/nginx", func(b *testing.B) { get(b, nil, serveByNginx(b, nginx, plain)) })
	}
	b.Run("upload/signed", func(b *testing.B) {
		handler = k
		b.SetBytes(objectSize)
		for b.Loop() {
			b.StopTimer()
			started, err := k.Storage().Start(b.Context(), storage.Upload{OwnerID: "ada", Path: "up", Size: objectSize})
			if err != nil {
				b.Fatal(err)
			}
			b.StartTimer()
			r, err := http.NewRequestWithContext(b.Context(), http.MethodPut, started.Upload.URL, bytes.NewReader(body))
			if err != nil {
				b.Fatal(err)
			}
			r.Header.Set("Content-Type", started.Upload.Headers["Content-Type"])
			response, err := http.DefaultClient.Do(r)
			if err != nil || response.StatusCode != http.StatusOK {
				b.Fatal(response, err)
			}
			_ = response.Body.Close()
			if _, err := k.Storage().Complete(b.Context(), storage.ByID(started.Object.ID), nil); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkStorageRows starts, completes and lists uploads, from 16 callers at once.
func BenchmarkStorageRows(b *testing.B) {
	each := func(b *testing.B, run func(b *testing.B, db *database.DB)) {
		b.Run("sqlite", func(b *testing.B) { run(b, databasetest.File(b)) })
		if os.Getenv("KIT_TEST_POSTGRES") != "" {
			b.Run("postgres", func(b *testing.B) { run(b, databasetest.Postgres(b)) })
		}
	}
	each(b, func(b *testing.B, db *database.DB) {
		s := composeStorage(b, db, "http://localhost:8080", "").Storage()
		n := make(chan int, 1)
		n <- 0
		next := func() int { i := <-n; n <- i + 1; return i }
		b.Run("start", func(b *testing.B) {
			b.SetParallelism(8)
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					i := next()
					if _, err := s.Start(context.Background(), storage.Upload{OwnerID: fmt.Sprint("start-", i%1000), Path: fmt.Sprint(i), Size: 1}); err != nil {
						b.Error(err)
						return
					}
				}
			})
		})
		b.Run("put", func(b *testing.B) { // start, bytes and complete
			b.SetParallelism(8)
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					i := next()
					if _, err := s.Put(context.Background(), storage.Upload{OwnerID: fmt.Sprint("put-", i%100), Path: fmt.Sprint("p/", i), Size: 1}, strings.NewReader("x")); err != nil {
						b.Error(err)
						return
					}
				}
			})
		})
		b.Run("list50", func(b *testing.B) {
			for b.Loop() {
				if _, err := s.List(context.Background(), storage.Filter{OwnerID: "put-1"}, capability.NewPage(50, "")); err != nil {
					b.Fatal(err)
				}
			}
		})
	})
}

// serveByNginx runs nginx on the directory of a file and returns the URL of the file.
func serveByNginx(b *testing.B, program, served string) string {
	b.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	address, dir := l.Addr().String(), b.TempDir()
	_ = l.Close()
	config := fmt.Sprintf("daemon off; master_process off; pid %[1]s/pid; error_log %[1]s/errors;\nevents {}\nhttp { access_log off; sendfile on;"+
		" client_body_temp_path %[1]s/a; proxy_temp_path %[1]s/b; fastcgi_temp_path %[1]s/c; uwsgi_temp_path %[1]s/d; scgi_temp_path %[1]s/e;"+
		" server { listen %[2]s; root %[3]s; } }", dir, address, filepath.Dir(served))
	file := filepath.Join(dir, "nginx.conf")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		b.Fatal(err)
	}
	cmd := exec.Command(program, "-c", file, "-p", dir, "-e", filepath.Join(dir, "errors"))
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	processtest.Listening(b, address)
	return "http://" + address + "/" + filepath.Base(served)
}

// listed is a bucket that lists n more objects than it stores.
type listed struct {
	bucket.Bucket
	n    int
	heap uint64 // the maximum in use at a page
}

// List implements [bucket.Bucket]. A key is its number in letters.
func (l *listed) List(_ context.Context, after string, limit int) (page []bucket.Object, err error) {
	from := 0
	for _, c := range after {
		from = from*10 + int(c-'a')
	}
	if after != "" {
		from++
	}
	for i := from; i < l.n && len(page) < limit; i++ {
		page = append(page, bucket.Object{Key: lettered(i)})
	}
	if from%50_000 == 0 || from%50_000 == 1 {
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		l.heap = max(l.heap, m.HeapInuse)
	}
	return page, nil
}

// BenchmarkStorageSweep sweeps buckets of increasing sizes whose objects all have rows: the memory
// in use stays the same. Ten thousand are also swept on an object server.
func BenchmarkStorageSweep(b *testing.B) {
	sizes := []int{10_000, 100_000, 1_000_000}
	if testing.Short() {
		sizes = sizes[:1]
	}
	for _, n := range sizes {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			objects := &listed{Bucket: file.New(b.TempDir()), n: n}
			sweepAll(b, objects, n)
			b.ReportMetric(float64(objects.heap)/(1<<20), "heap-MB")
		})
	}
	b.Run("s3", func(b *testing.B) {
		objects := buckettest.S3(b)
		n := sizes[0]
		var callers errgroup.Group
		callers.SetLimit(16)
		for i := range n {
			callers.Go(func() error {
				_, err := objects.Put(b.Context(), lettered(i), strings.NewReader("x"), 1, "text/plain")
				return err
			})
		}
		if err := callers.Wait(); err != nil {
			b.Fatal(err)
		}
		sweepAll(b, objects, n)
	})
}

// lettered returns a key: a number in letters.
func lettered(i int) string {
	key := []byte(fmt.Sprintf("%026d", i))
	for j := range key {
		key[j] += 'a' - '0'
	}
	return string(key)
}

// sweepAll sweeps a bucket of n objects, all of which have rows.
func sweepAll(b *testing.B, objects bucket.Bucket, n int) {
	db := databasetest.File(b)
	k, err := kit.New(kit.WithDatabase(db), kit.WithEnvironment("test"), kit.WithLogger(slog.New(slog.DiscardHandler)),
		kit.WithStorage(storage.Config{Bucket: objects}))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = k.Close(context.Background()) })
	letters := "printf('%026d', i)"
	for digit := range 10 {
		letters = fmt.Sprintf("replace(%s, '%d', '%c')", letters, digit, 'a'+digit)
	}
	for from := 0; from < n; from += 10_000 {
		if _, err := db.Exec(b.Context(), `WITH RECURSIVE n (i) AS (SELECT $1 UNION ALL SELECT i + 1 FROM n WHERE i + 1 < $1 + 10000)
			INSERT INTO storage_object SELECT 'o' || i, '', 'ada', 'p' || i, `+letters+`, 'ready', 1, 'text/plain', 'private',
				'', '{}', '', 0, TRUE, 1, 1, 1, 0, 0 FROM n`, from); err != nil {
			b.Fatal(err)
		}
	}
	for b.Loop() {
		swept, err := k.Storage().Sweep(b.Context())
		if err != nil || swept != (storage.Swept{}) {
			b.Fatal(swept, err)
		}
	}
}

// BenchmarkStorageListing reads the first and the last page of a prefix with a
// million objects, flat and by folders.
func BenchmarkStorageListing(b *testing.B) {
	objects := 1_000_000
	if testing.Short() {
		objects = 10_000
	}
	db := databasetest.File(b)
	s := composeStorage(b, db, "http://localhost:8080", "").Storage()
	for from := 0; from < objects; from += 10_000 { // a statement has a limit of ten seconds
		if _, err := db.Exec(b.Context(), `WITH RECURSIVE n (i) AS (SELECT $1 UNION ALL SELECT i + 1 FROM n WHERE i + 1 < $1 + 10000)
		INSERT INTO storage_object SELECT 'o' || i, '', 'ada', 'p/' || substr('000000' || (i / 100), -6) || '/' || i, 'k' || i, 'ready', 1, 'text/plain', 'private',
			'', '{}', '', 0, TRUE, 1, 1, 1, 0, 0 FROM n`, from); err != nil {
			b.Fatal(err)
		}
	}
	last := func(delimiter string) string { // the cursor of the second last page
		text := fmt.Sprintf(`["p/%06d/"]`, objects/100-1)
		if delimiter != "" {
			text = fmt.Sprintf(`["p/%06d"]`, objects/100-51)
		}
		return base64.RawURLEncoding.EncodeToString([]byte(text))
	}
	for _, delimiter := range []string{"", "/"} {
		for name, cursor := range map[string]string{"first": "", "last": last(delimiter)} {
			b.Run(fmt.Sprintf("%s/delimiter=%q", name, delimiter), func(b *testing.B) {
				for b.Loop() {
					page, err := s.List(b.Context(), storage.Filter{OwnerID: "ada", Prefix: "p/", Delimiter: delimiter}, capability.NewPage(50, cursor))
					if err != nil || len(page.Items)+len(page.Prefixes) != 50 {
						b.Fatal(len(page.Items), len(page.Prefixes), err)
					}
				}
			})
		}
	}
}
