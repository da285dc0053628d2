package multiplayer_test

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"github.com/kitbackend/kit"
	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/database/databasetest"
	"github.com/kitbackend/kit/internal/processor"
	"github.com/kitbackend/kit/multiplayer"
)

// line is a client that only counts; b.Fatal may only be called from the benchmark's own goroutine.
type line struct {
	*websocket.Conn
	err error
}

func (n *served) lines(b *testing.B, session string, players []string) []*line {
	b.Helper()
	lines := make([]*line, len(players))
	for i, p := range players {
		ws, err := connect(n.server.URL, session, n.token(p))
		if err != nil {
			b.Fatal(err)
		}
		lines[i] = &line{Conn: ws}
		b.Cleanup(func() { _ = ws.Close() })
	}
	return lines
}

func connect(server, session, token string) (*websocket.Conn, error) {
	dialer := websocket.Dialer{Subprotocols: []string{"kit.v1", "kit.bearer." + token}, ReadBufferSize: 512, WriteBufferPool: new(sync.Pool)}
	ws, _, err := dialer.Dial(strings.Replace(server, "http", "ws", 1)+"/multiplayer/sessions/"+session+"/socket", nil) //nolint:bodyclose // a handshake has none
	return ws, err
}

// until reads frames up to one that contains a text.
func (l *line) until(text string) bool {
	for l.err == nil {
		var raw []byte
		if _, raw, l.err = l.ReadMessage(); strings.Contains(string(raw), text) {
			return l.err == nil
		}
	}
	return false
}

func names(prefix string, n int) (list []string) {
	for i := range n {
		list = append(list, fmt.Sprintf("%s-%04d", prefix, i))
	}
	return list
}

// BenchmarkSocketActions measures actions over sockets, one at a time per player, in many sessions:
// from sending one to its durable acknowledgement. A socket accepts 20 a second, so there are many.
func BenchmarkSocketActions(b *testing.B) {
	for name, open := range map[string]func() *database.DB{
		"file":     func() *database.DB { return databasetest.File(b) },
		"postgres": func() *database.DB { return databasetest.Postgres(b) },
	} {
		b.Run(name, func(b *testing.B) {
			n := newServed(b, kit.WithDatabase(open()))
			const sessions = 200
			var all []*line
			for i := range sessions {
				players := names(fmt.Sprintf("s%d", i), 2)
				all = append(all, n.lines(b, n.start("endless", players...), players)...)
			}
			var turns atomic.Int64
			b.ResetTimer()
			var wg sync.WaitGroup
			for _, l := range all {
				wg.Go(func() {
					for i := 0; turns.Add(1) <= int64(b.N); i++ {
						l.err = l.WriteMessage(websocket.TextMessage, fmt.Appendf(nil, `{"type":"action","id":"a%d","data":{"add":1}}`, i))
						for l.err == nil {
							var raw []byte
							if _, raw, l.err = l.ReadMessage(); strings.Contains(string(raw), `"kit/rate_limited"`) {
								i--
								break
							} else if strings.Contains(string(raw), `"ack"`) {
								break
							}
						}
						if l.err != nil {
							return
						}
					}
				})
			}
			wg.Wait()
			for _, l := range all {
				if l.err != nil {
					b.Fatal(l.err)
				}
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "actions/s")
		})
	}
}

// BenchmarkSocketFanOut measures how an action reaches a thousand players at the table: with a
// state that is the same for all, and with one that has a secret for each.
func BenchmarkSocketFanOut(b *testing.B) {
	for _, game := range []string{"plain-hall", "hall"} {
		b.Run(game, func(b *testing.B) {
			n := newServed(b, kit.WithDatabase(databasetest.File(b)))
			players := names("p", 1000)
			id := n.start(game, players...)
			all := n.lines(b, id, players)
			for _, l := range all {
				if !l.until(`"view"`) {
					b.Fatal(l.err)
				}
			}
			var took []time.Duration
			b.ResetTimer()
			for i := range b.N {
				took = append(took, n.fanOut(b, id, players[0], all, fmt.Sprintf(`"to":%d,`, i+2))...)
			}
			b.StopTimer()
			slices.Sort(took)
			for name, at := range map[string]int{"p50-ms": len(took) / 2, "p99-ms": len(took) * 99 / 100, "max-ms": len(took) - 1} {
				b.ReportMetric(float64(took[at].Microseconds())/1000, name)
			}
		})
	}
}

// fanOut lets a player act and returns how long it took until each player received it.
func (n *served) fanOut(b *testing.B, id, player string, all []*line, mark string) []time.Duration {
	b.Helper()
	seen := make([]time.Duration, len(all))
	var wg sync.WaitGroup
	start := time.Now()
	for at, l := range all {
		wg.Go(func() {
			if l.until(mark) {
				seen[at] = time.Since(start)
			}
		})
	}
	if _, err := n.Multiplayer().Act(b.Context(), id, player, multiplayer.Action{Data: []byte(`{"add":1}`)}); err != nil {
		b.Fatal(err)
	}
	wg.Wait()
	return seen
}

const holder = "KIT_BENCH_SOCKETS"

// BenchmarkSocketsHeld measures ten thousand idle sockets, whose clients are a process of their
// own: the memory of each, and the processor time of all.
func BenchmarkSocketsHeld(b *testing.B) {
	const tables, seats = 2500, 4
	n := newServed(b, kit.WithDatabase(databasetest.File(b)))
	var in strings.Builder
	for i := range tables {
		players := names(fmt.Sprintf("t%d", i), seats)
		id := n.start("table", players...)
		for _, p := range players {
			fmt.Fprintf(&in, "%s %s %s\n", n.server.URL, id, n.token(p))
		}
	}
	before := resident(b)
	cmd := exec.CommandContext(b.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), holder+"=1")
	cmd.Stdin = strings.NewReader(in.String())
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		b.Fatal(err)
	}
	start := time.Now()
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || line != "held\n" {
		b.Fatal(line, err)
	}
	b.ReportMetric(tables*seats/time.Since(start).Seconds(), "connects/s")
	b.ReportMetric(float64(resident(b)-before)/tables/seats/1024, "KiB/socket")
	from, used := time.Now(), processor.Spent()
	time.Sleep(20 * time.Second) //nolint:forbidigo // measure the cost of idle sockets
	b.ReportMetric(100*(processor.Spent()-used).Seconds()/time.Since(from).Seconds(), "cpu-%")
	_, _ = cmd.Process.Signal(os.Interrupt), cmd.Wait()
}

// holdSockets is the clients' process of BenchmarkSocketsHeld: it opens the sockets that it reads
// from told, reports each, and reads until it is ended.
func holdSockets(told io.Reader) {
	jobs := make(chan [3]string)
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			for j := range jobs {
				ws := must(connect(j[0], j[1], j[2]))
				go func() {
					for {
						if _, _, err := ws.ReadMessage(); err != nil {
							return
						}
					}
				}()
			}
		})
	}
	scanner := bufio.NewScanner(told)
	for scanner.Scan() {
		var j [3]string
		_, _ = fmt.Sscan(scanner.Text(), &j[0], &j[1], &j[2])
		jobs <- j
	}
	close(jobs)
	wg.Wait()
	fmt.Println("held")
	select {}
}

func resident(b *testing.B) (bytes int64) {
	b.Helper()
	runtime.GC()
	debug.FreeOSMemory()
	raw, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		b.Skip("needs /proc")
	}
	var size int64
	_, _ = fmt.Sscan(string(raw), &size, &bytes)
	return bytes * int64(os.Getpagesize())
}
