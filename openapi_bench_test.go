package kit_test

import (
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kitbackend/kit/kittest"
)

// BenchmarkOpenAPI computes the document of every capability; it should stay
// below 20 ms. With KIT_BENCH_SIZE it prints the size of a program that computes
// documents and of one that does not, and how long each takes from its start to its
// first response.
func BenchmarkOpenAPI(b *testing.B) {
	k := kittest.New(b, everything()...)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := k.OpenAPI(); err != nil {
			b.Fatal(err)
		}
	}
	if os.Getenv("KIT_BENCH_SIZE") == "" {
		return
	}
	for name, line := range map[string]string{"without": "", "with": "_, _ = k.OpenAPI()"} {
		path := program(b, line)
		info, err := os.Stat(path)
		if err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(float64(info.Size()), "bytes-"+name)
		var starts []time.Duration
		for range 7 {
			starts = append(starts, start(b, path))
		}
		slices.Sort(starts)
		b.ReportMetric(float64(starts[3].Microseconds())/1000, "ms-start-"+name)
	}
}

// start returns how long a program takes to its first response.
func start(b *testing.B, path string) time.Duration {
	b.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	address := listener.Addr().String()
	_ = listener.Close()
	began := time.Now()
	run := exec.CommandContext(b.Context(), path, address)
	if err := run.Start(); err != nil {
		b.Fatal(err)
	}
	defer func() {
		_ = run.Process.Kill()
		_ = run.Wait()
	}()
	look := time.NewTicker(time.Millisecond)
	defer look.Stop()
	for ; time.Since(began) < time.Minute; <-look.C {
		response, err := http.Get("http://" + address + "/health") //nolint:noctx // killed with the program
		if err == nil {
			_ = response.Body.Close()
			return time.Since(began)
		}
	}
	b.Fatal("the program does not respond")
	return 0
}

// program builds the smallest application with one more line.
func program(b *testing.B, line string) string {
	b.Helper()
	if err := os.MkdirAll("testdata/size", 0o750); err != nil {
		b.Fatal(err)
	}
	defer os.RemoveAll("testdata/size")
	const program = `package main

import (
	"net/http"
	"os"

	"github.com/kitbackend/kit"
	"github.com/kitbackend/kit/auth"
	"github.com/kitbackend/kit/ledger"
)

func main() {
	k, err := kit.New(kit.WithAuth(auth.Config{}), kit.WithEnvironment("test"),
		kit.WithLedger(ledger.Config{Currencies: []ledger.Currency{{Code: "coins", Name: "Coins"}}}))
	if err != nil {
		panic(err)
	}
	LINE
	panic(http.ListenAndServe(os.Args[1], http.HandlerFunc(k.ServeHTTP)))
}
`
	source := filepath.Join("testdata/size", "main.go")
	if err := os.WriteFile(source, []byte(strings.Replace(program, "LINE", line, 1)), 0o600); err != nil {
		b.Fatal(err)
	}
	out := filepath.Join(b.TempDir(), "program")
	if text, err := exec.CommandContext(b.Context(), "go", "build", "-trimpath", "-ldflags=-s -w", "-o", out, source).CombinedOutput(); err != nil {
		b.Fatalf("%v\n%s", err, text)
	}
	return out
}
