//go:build linux || darwin

package soak

import (
	"bufio"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/kitbackend/kit/internal/processtest"
)

// duration is how long all tests together may take, about.
func duration(t *testing.T) time.Duration {
	t.Helper()
	text := os.Getenv("KIT_TEST_SOAK")
	if text == "" || testing.Short() {
		t.Skip("KIT_TEST_SOAK is not set, or -short is")
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// process is a node in a process of its own.
type process struct {
	cmd   *exec.Cmd
	lines chan string // closed at its end
}

func spawn(t *testing.T, address string, env ...string) *process {
	t.Helper()
	p := &process{cmd: exec.Command(os.Args[0]), lines: make(chan string, 1<<16)}
	p.cmd.Env = append(append(os.Environ(), nodeDatabase+"="+address), env...)
	p.cmd.Stderr = os.Stderr
	output, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.cmd.Process.Kill() })
	go func() {
		defer close(p.lines)
		for lines := bufio.NewScanner(output); lines.Scan(); {
			p.lines <- lines.Text()
		}
	}()
	return p
}

// take reads what a node acknowledges: n lines, or as many as come within d. It
// fails a test whose node has ended.
func (p *process) take(t *testing.T, acked acknowledged, n int, d time.Duration) (taken int) {
	t.Helper()
	limit := time.After(d)
	for taken < n {
		select {
		case line, running := <-p.lines:
			if !running {
				t.Fatal("a node ended by itself")
			}
			acked.add(t, line)
			taken++
		case <-limit:
			return taken
		}
	}
	return taken
}

// kill ends a node and reads what it still had acknowledged.
func (p *process) kill(t *testing.T, acked acknowledged) {
	t.Helper()
	if err := p.cmd.Process.Kill(); err != nil {
		t.Error(err)
	}
	for line := range p.lines {
		acked.add(t, line)
	}
	_ = p.cmd.Wait() // killed
}

// forever bounds a wait for a node: it fails rather than hangs.
const forever = time.Minute

// Nodes that are killed at any moment lose nothing that they acknowledged, and
// do nothing twice.
func TestKilledNodes(t *testing.T) {
	limit := duration(t) / 4
	t.Run("file", func(t *testing.T) {
		address := filepath.Join(t.TempDir(), "kit.db")
		acked, rounds := acknowledged{}, 0
		for began := time.Now(); time.Since(began) < limit && !t.Failed(); rounds++ {
			p := spawn(t, address)
			if n := 50 + rand.IntN(400); p.take(t, acked, n, forever) < n {
				t.Fatal("a node makes no progress")
			}
			p.kill(t, acked)
			check(t, address, acked)
		}
		t.Logf("%d acknowledged effects in %d rounds", acked.count(), rounds)
	})
	t.Run("postgres", func(t *testing.T) {
		address, _ := processtest.Database(t)
		acked, rounds := acknowledged{}, 0
		nodes := []*process{spawn(t, address), spawn(t, address)}
		for began := time.Now(); time.Since(began) < limit && !t.Failed(); rounds++ {
			for _, p := range nodes {
				if n := 50 + rand.IntN(200); p.take(t, acked, n, forever) < n {
					t.Fatal("a node makes no progress")
				}
			}
			one := rounds % len(nodes)
			nodes[one].kill(t, acked)
			nodes[one] = spawn(t, address)
		}
		for _, p := range nodes {
			p.kill(t, acked)
		}
		check(t, address, acked)
		t.Logf("%d acknowledged effects in %d rounds", acked.count(), rounds)
	})
}

// A node that stands still, with whatever locks it holds, stops the other for as
// long as the server leaves it a transaction, and no longer; when it goes on, it
// does nothing twice.
func TestPausedNode(t *testing.T) {
	limit := duration(t) / 4
	address, _ := processtest.Database(t)
	const pause, blocked = 14 * time.Second, 11 * time.Second
	acked := acknowledged{}
	nodes := []*process{spawn(t, address), spawn(t, address)}
	for began, round := time.Now(), 0; (round == 0 || time.Since(began) < limit) && !t.Failed(); round++ {
		still, other := nodes[round%2], nodes[(round+1)%2]
		if still.take(t, acked, 100, forever) < 100 || other.take(t, acked, 100, forever) < 100 {
			t.Fatal("a node makes no progress")
		}
		if err := still.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		before := other.take(t, acked, 1<<30, blocked)
		if after := other.take(t, acked, 1<<30, pause-blocked); after == 0 {
			t.Errorf("one node stands still: the other did %d things in %v, then none in %v", before, blocked, pause-blocked)
		}
		if err := still.cmd.Process.Signal(syscall.SIGCONT); err != nil {
			t.Fatal(err)
		}
	}
	for _, p := range nodes {
		if p.take(t, acked, 50, forever) < 50 {
			t.Error("a node makes no progress after it stood still")
		}
		p.kill(t, acked)
	}
	check(t, address, acked)
	t.Logf("%d acknowledged effects", acked.count())
}

// On a full disk writes are refused as unavailable, reads go on, the node says
// that it is not ready, and once there is room it works again: nothing that was
// acknowledged is lost.
func TestFullDisk(t *testing.T) {
	duration(t)
	address := filepath.Join(t.TempDir(), "kit.db")
	p := spawn(t, address, nodeMode+"=full")
	acked := acknowledged{}
	for line := range p.lines {
		acked.add(t, line)
	}
	if err := p.cmd.Wait(); err != nil {
		t.Errorf("the node on a full disk: %v", err)
	}
	if len(acked["http"]) < 20 {
		t.Errorf("%d credits were acknowledged, want 20 at least", len(acked["http"]))
	}
	check(t, address, acked)
}

// Bodies that never come keep no connection, and nobody else waiting.
func TestSlowBodies(t *testing.T) {
	duration(t)
	skew := new(atomic.Int64)
	n, err := start(filepath.Join(t.TempDir(), "kit.db"), skew)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: n, ReadHeaderTimeout: time.Minute}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	defer func() {
		if err := errors.Join(server.Close(), n.stop()); err != nil {
			t.Error(err)
		}
		if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	}()
	address := listener.Addr().String()
	var group sync.WaitGroup
	var held atomic.Int64
	for i := range 200 {
		lines := []string{"POST /ledger/coins/credit", "POST /auth/token/rotate", "POST /auth/sign-in/email", "GET /ledger/coins", "POST /nowhere"}
		request := lines[i%len(lines)] + " HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n" +
			"Authorization: Bearer " + n.token + "\r\n\r\n{"
		group.Go(func() {
			conn, err := net.Dial("tcp", address)
			if err != nil {
				t.Error(err)
				return
			}
			defer conn.Close()
			_ = conn.SetDeadline(time.Now().Add(forever))
			_, _ = io.WriteString(conn, request)
			if _, err := io.Copy(io.Discard, conn); errors.Is(err, os.ErrDeadlineExceeded) {
				held.Add(1)
			}
		})
	}
	began := time.Now()
	for range 20 {
		response, err := http.Get("http://" + address + "/health")
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
	}
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("20 requests took %v during uploads that stall", took)
	}
	group.Wait()
	if held.Load() > 0 {
		t.Errorf("%d connections were kept for bodies that never come", held.Load())
	}
}

// A clock that was ahead, or behind, leaves nothing that stands still once it is
// right again.
func TestClockAheadAndBack(t *testing.T) {
	duration(t)
	const year = 365 * 24 * time.Hour
	run := func(t *testing.T, address string) {
		skew := new(atomic.Int64)
		n, err := start(address, skew)
		if err != nil {
			t.Fatal(err)
		}
		ctx, acked := context.Background(), acknowledged{}
		i := 0
		at := func(offset time.Duration) {
			t.Helper()
			skew.Store(int64(offset))
			if _, err := n.Jobs().RunDue(ctx); err != nil {
				t.Fatal(err)
			}
			token, err := n.Auth().IssueToken(ctx, "admin", []string{"ledger:admin"}, time.Hour)
			if err != nil {
				t.Fatalf("%v off: %v", offset, err)
			}
			i, n.token = i+1, token
			ref := "clock-" + string(rune('a'+i))
			if err := n.credit(ref); err != nil {
				t.Errorf("%v off: a credit: %v", offset, err)
			}
			acked["http"] = append(acked["http"], ref)
		}
		for _, offset := range []time.Duration{0, year, 0, -time.Hour, 2 * year, 0, time.Hour + time.Minute, 2*time.Hour + time.Minute, 3*time.Hour + time.Minute} {
			at(offset)
		}
		right := time.Now().Add(3 * time.Hour).UTC().Truncate(time.Hour).Format(time.RFC3339)
		if ticks := n.counts(t, `SELECT tick, count(*) FROM soak_tick GROUP BY tick`); ticks[right] == 0 {
			t.Errorf("the schedule stands still after a clock that was ahead: no tick at %s among %v", right, ticks)
		}
		if err := n.Ready(ctx); err != nil {
			t.Errorf("not ready once the clock is right: %v", err)
		}
		if err := n.stop(); err != nil {
			t.Fatal(err)
		}
		check(t, address, acked)
	}
	t.Run("file", func(t *testing.T) { run(t, filepath.Join(t.TempDir(), "kit.db")) })
	t.Run("postgres", func(t *testing.T) {
		address, _ := processtest.Database(t)
		run(t, address)
	})
}
