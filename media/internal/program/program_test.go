//go:build unix

package program

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

var plenty = Limits{Time: time.Minute, Memory: 4 << 30, File: 1 << 20}

func run(t *testing.T, limits Limits, script string, args ...string) (string, error) {
	t.Helper()
	out, err := Run(t.Context(), t.TempDir(), limits, "/bin/sh", append([]string{"-c", script, "x"}, args...)...)
	return string(out), err
}

func TestArgumentsArriveAsTheyAre(t *testing.T) {
	const odd = "$(touch ran) `x` ; \"'\n*"
	if out, err := run(t, plenty, `printf %s "$1"`, odd); err != nil || out != odd {
		t.Errorf("%q %v", out, err)
	}
}

func TestFailureSaysWhy(t *testing.T) {
	if _, err := run(t, plenty, "echo no good >&2; exit 3"); !errors.Is(err, ErrFailed) || !strings.Contains(err.Error(), "no good") {
		t.Error(err)
	}
	if _, err := Run(t.Context(), t.TempDir(), plenty, "/none/at/all"); !errors.Is(err, ErrFailed) {
		t.Error(err)
	}
}

func TestTimeEndsEverythingThatWasStarted(t *testing.T) {
	limits := plenty
	limits.Time = 200 * time.Millisecond
	began := time.Now()
	if _, err := run(t, limits, "sleep 60 & sleep 60"); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
	if took := time.Since(began); took > patience {
		t.Errorf("took %s: what the program started goes on", took)
	}
}

func TestFilesAndOutputAreBounded(t *testing.T) {
	dir := t.TempDir()
	_, err := Run(t.Context(), dir, plenty, "/bin/sh", "-c", "head -c 4000000 /dev/zero > out; exit 0")
	stat, missing := os.Stat(filepath.Join(dir, "out"))
	if missing != nil || stat.Size() > plenty.File+1024 {
		t.Errorf("%v %v %v", stat, missing, err)
	}
	if out, err := run(t, plenty, "head -c 4000000 /dev/zero"); err != nil || len(out) != maxOutput {
		t.Errorf("%d %v", len(out), err)
	}
}
