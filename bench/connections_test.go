package bench

import (
	"bufio"
	"bytes"
	"fmt"
	"net"
	"net/http"
	"runtime"
	"testing"

	"github.com/kitbackend/kit/database/databasetest"
)

// BenchmarkConnections prints the memory that an open connection takes, heap and stacks, including
// the client's end in the same process: an idle connection between requests, and a presence socket.
// Both are compared with a connection of net/http whose handler does nothing.
func BenchmarkConnections(b *testing.B) {
	k := quickstart(b, databasetest.File(b))
	p := newPlayers(b, k)
	nothing := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	kept := p.heads("GET /leaderboard/arcade/me")
	sockets := p.heads("GET /matchmaking/presence")
	for i := range sockets {
		sockets[i] += "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
	}
	for _, c := range []struct {
		name   string
		h      http.Handler
		heads  []string
		status string
	}{{"net-http", nothing, kept, "200"}, {"kept", k, kept, "200"}, {"presence", k, sockets, "101"}} {
		b.Run(c.name, func(b *testing.B) {
			for b.Loop() {
				b.ReportMetric(memory(b, c.h, c.heads, c.status), "B/connection")
			}
		})
	}
}

// memory opens two connections for each head and returns the memory that one takes.
func memory(b *testing.B, h http.Handler, heads []string, status string) float64 {
	b.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	server := &http.Server{Handler: h}
	go func() { _ = server.Serve(listener) }()
	defer server.Close()
	before := held()
	conns := make([]net.Conn, 0, 2*len(heads))
	defer func() {
		for _, conn := range conns {
			_ = conn.Close()
		}
	}()
	in := bufio.NewReader(nil)
	for i := range cap(conns) {
		conn, err := net.Dial("tcp", listener.Addr().String())
		if err != nil {
			b.Fatal(err)
		}
		conns = append(conns, conn)
		if _, err := fmt.Fprintf(conn, "%s\r\n", heads[i%len(heads)]); err != nil {
			b.Fatal(err)
		}
		in.Reset(conn)
		line, err := in.ReadSlice('\n')
		if err != nil || !bytes.HasPrefix(line, []byte("HTTP/1.1 "+status)) {
			b.Fatalf("%q, %v, want %s", line, err, status)
		}
	}
	return float64(held()-before) / float64(len(conns))
}

// held returns the size of the heap and the stacks.
func held() int64 {
	runtime.GC()
	runtime.GC() // frees what the first one has finalized
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc + m.StackInuse)
}
