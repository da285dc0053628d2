package kittest_test

import (
	"fmt"
	"net/http"
	"runtime"
	"strings"
	"testing"

	"github.com/kitbackend/kit/kittest"
)

// failing is a test that records why it failed.
type failing struct {
	testing.TB
	why string
}

func (f *failing) Fatalf(format string, args ...any) {
	f.why = fmt.Sprintf(format, args...)
	runtime.Goexit()
}

// TestResponseThatIsCutOffFailsTheTest checks that only the test fails, not the whole test program.
func TestResponseThatIsCutOffFailsTheTest(t *testing.T) {
	f := &failing{TB: t}
	k := kittest.New(f)
	ended := make(chan any, 1)
	go func() {
		defer func() { ended <- recover() }()
		k.Anonymous().Via(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })).Get("/torn")
	}()
	if p := <-ended; p != nil || !strings.Contains(f.why, "GET /torn") {
		t.Errorf("the test ended by %v, failed for %q", p, f.why)
	}
}
