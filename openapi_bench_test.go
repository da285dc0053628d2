package kit_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kitbackend/kit/kittest"
)

// BenchmarkOpenAPI computes the document of every capability; it should stay
// below 20 ms. With KIT_BENCH_SIZE it prints the size of a program that computes
// documents and of one that does not.
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
	b.ReportMetric(programSize(b, ""), "bytes-without")
	b.ReportMetric(programSize(b, "_, _ = k.OpenAPI()"), "bytes-with")
}

// programSize builds the smallest application with one more line.
func programSize(b *testing.B, line string) float64 {
	b.Helper()
	if err := os.MkdirAll("testdata/size", 0o750); err != nil {
		b.Fatal(err)
	}
	defer os.RemoveAll("testdata/size")
	const program = `package main

import (
	"net/http"

	"github.com/kitbackend/kit"
	"github.com/kitbackend/kit/auth"
	"github.com/kitbackend/kit/ledger"
)

func main() {
	k, err := kit.New(kit.WithAuth(auth.Config{}),
		kit.WithLedger(ledger.Config{Currencies: []ledger.Currency{{Code: "coins", Name: "Coins"}}}))
	if err != nil {
		panic(err)
	}
	LINE
	panic(http.ListenAndServe("localhost:8080", k))
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
	info, err := os.Stat(out)
	if err != nil {
		b.Fatal(err)
	}
	return float64(info.Size())
}
