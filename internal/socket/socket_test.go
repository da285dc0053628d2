package socket_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/gorilla/websocket"

	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/internal/socket"
)

// world is a server of sockets on pipes, whose clock is the bubble's: nothing
// is buffered between the peers, and nothing takes time.
type world struct {
	t       *testing.T
	group   *socket.Group
	handler socket.Handler
	refused atomic.Pointer[capability.Error]
	recheck atomic.Pointer[error]
	conns   chan net.Conn
	done    chan struct{}
}

func inBubble(t *testing.T, o socket.Options, h socket.Handler, test func(*world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		o.Log = slog.New(slog.DiscardHandler)
		w := &world{t: t, group: socket.NewGroup(o), handler: h, conns: make(chan net.Conn), done: make(chan struct{})}
		server := &http.Server{Handler: w}
		served := make(chan struct{})
		go func() { _ = server.Serve(w); close(served) }()
		test(w)
		if err := w.group.Close(context.Background()); err != nil {
			t.Error(err)
		}
		if users, sockets := w.group.Users(); users+sockets != 0 {
			t.Errorf("after close: %d users, %d sockets", users, sockets)
		}
		_ = server.Close()
		<-served
	})
}

func (w *world) Accept() (net.Conn, error) {
	select {
	case c := <-w.conns:
		return c, nil
	case <-w.done:
		return nil, net.ErrClosed
	}
}

func (w *world) Close() error   { close(w.done); return nil }
func (w *world) Addr() net.Addr { return &net.TCPAddr{} }

func (w *world) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	origin := &capability.RequestInfo{RequestID: "r", Caller: capability.Caller{UserID: r.URL.Query().Get("user")}}
	r = r.WithContext(capability.WithRequestInfo(r.Context(), origin))
	call := capability.NewCall(rw, r, &capability.Route{}, origin, nil)
	call.Recheck = func(context.Context) error {
		if err := w.recheck.Load(); err != nil {
			return *err
		}
		return nil
	}
	if err := w.group.Accept(call, w.handler); err != nil {
		refusal := capability.AsError(err)
		w.refused.Store(refusal)
		rw.WriteHeader(refusal.Status)
	}
}

// dial connects as a user, or returns the status of the refusal. The group has
// the connection by then, so that the first to dial is the oldest.
func (w *world) dial(user string, protocols ...string) (*websocket.Conn, int) {
	w.t.Helper()
	dialer := websocket.Dialer{Subprotocols: protocols, NetDialContext: func(context.Context, string, string) (net.Conn, error) {
		ours, theirs := net.Pipe()
		w.conns <- theirs
		return ours, nil
	}}
	ws, response, err := dialer.Dial("ws://kit/?user="+user, nil) //nolint:bodyclose // a handshake has none
	if err != nil {
		if response == nil {
			w.t.Fatal(err)
		}
		return nil, response.StatusCode
	}
	w.t.Cleanup(func() { _ = ws.Close() })
	synctest.Wait() // the response comes before
	return ws, response.StatusCode
}

// frame is any frame of the tests.
type frame struct {
	Type         string `json:"type"`
	ID           string `json:"id,omitempty"`
	N            int    `json:"n,omitempty"`
	Code         string `json:"code,omitempty"`
	RetryAfterMs int64  `json:"retryAfterMs,omitempty"`
}

func read(t *testing.T, ws *websocket.Conn) frame {
	t.Helper()
	_, raw, err := ws.ReadMessage()
	if err != nil {
		t.Fatal(err)
	}
	var f frame
	if err := json.Unmarshal(raw, &f); err != nil {
		t.Fatal(err)
	}
	return f
}

// closed reads until the connection ends and returns the close code and reason.
func closed(t *testing.T, ws *websocket.Conn) (int, string) {
	t.Helper()
	for {
		_, _, err := ws.ReadMessage()
		if end := new(websocket.CloseError); errors.As(err, &end) {
			return end.Code, end.Text
		}
		if err != nil {
			return 0, err.Error()
		}
	}
}

func say(t *testing.T, ws *websocket.Conn, text string) {
	t.Helper()
	if err := ws.WriteMessage(websocket.TextMessage, []byte(text)); err != nil {
		t.Fatal(err)
	}
}

// echo returns frames of type echo.
func echo(c *socket.Conn, f socket.Frame) {
	var in struct {
		Type string `json:"type"`
		ID   string `json:"id"`
		N    int    `json:"n"`
	}
	if f.Type != "echo" {
		c.Refuse(f.ID, f.Unknown())
		return
	}
	if err := f.Decode(&in); err != nil {
		c.Refuse(f.ID, err)
		return
	}
	c.Send(frame{Type: "echo", ID: f.ID, N: in.N})
}

func TestFrames(t *testing.T) {
	inBubble(t, socket.Options{}, socket.Handler{Frame: echo}, func(w *world) {
		ws, _ := w.dial("ada", "kit.v1", "kit.bearer.secret")
		if got := ws.Subprotocol(); got != socket.Protocol {
			t.Errorf("subprotocol %q", got)
		}
		invalid := frame{Type: "error", Code: "kit/invalid_request"}
		for _, tt := range []struct {
			text string
			want frame
		}{
			{`{"type":"echo","id":"a","n":7}`, frame{Type: "echo", ID: "a", N: 7}},
			{`{"type":"ping","ts":1}`, frame{Type: "pong"}},
			{`{"type":"other","id":"b"}`, frame{Type: "error", ID: "b", Code: "kit/invalid_request"}},
			{`{"type":"echo","id":"c","m":7}`, frame{Type: "error", ID: "c", Code: "kit/invalid_request"}},
			{`{"Type":"echo"}`, invalid},
			{`{"type":"echo","type":"echo"}`, invalid},
			{`{"type":7}`, invalid},
			{`{"type":""}`, invalid},
			{`{"id":"x"}`, invalid},
			{`{"type":"echo","id":7}`, invalid},
			{`{"type":"echo","id":"` + strings.Repeat("x", 65) + `"}`, invalid},
			{`["type"]`, invalid},
			{`null`, invalid},
			{`{"type":"echo"} `, frame{Type: "echo"}},
			{`{"type":"echo"}}`, invalid},
			{"\xff", invalid},
			{``, invalid},
		} {
			say(t, ws, tt.text)
			if diff := cmp.Diff(tt.want, read(t, ws)); diff != "" {
				t.Errorf("%s: %s", tt.text, diff)
			}
		}
	})
}

func TestWhatIsNoFrameCloses(t *testing.T) {
	inBubble(t, socket.Options{}, socket.Handler{Frame: echo}, func(w *world) {
		for _, tt := range []struct {
			kind, size, code int
		}{
			{websocket.BinaryMessage, 2, websocket.CloseUnsupportedData},
			{websocket.TextMessage, socket.MaxFrame + 1, websocket.CloseMessageTooBig},
			{websocket.TextMessage, 8 << 20, websocket.CloseMessageTooBig},
		} {
			ws, _ := w.dial("ada")
			go func() { _ = ws.WriteMessage(tt.kind, make([]byte, tt.size)) }()
			if code, _ := closed(t, ws); code != tt.code {
				t.Errorf("%+v: closed with %d", tt, code)
			}
		}
	})
}

func TestRefusals(t *testing.T) {
	inBubble(t, socket.Options{PerNode: 1}, socket.Handler{}, func(w *world) {
		client := http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(context.Context, string, string) (net.Conn, error) {
			ours, theirs := net.Pipe()
			w.conns <- theirs
			return ours, nil
		}}}
		response, err := client.Get("http://kit/")
		if err != nil || !w.refused.Load().Is(capability.ErrInvalidRequest) {
			t.Errorf("no handshake: %v %v", w.refused.Load(), err)
		}
		_ = response.Body.Close()
		ws, _ := w.dial("ada")
		if _, status := w.dial("bob"); status != 503 || !w.refused.Load().Is(capability.ErrUnavailable) {
			t.Errorf("a full node: %d %v", status, w.refused.Load())
		}
		_ = ws.Close()
		synctest.Wait()
		if _, status := w.dial("bob"); status != 101 {
			t.Errorf("a place that came free: %d", status)
		}
		_ = w.group.Close(context.Background())
		if _, status := w.dial("eve"); status != 503 {
			t.Errorf("after close: %d", status)
		}
	})
}

func TestOldestSocketOfAUserGivesWay(t *testing.T) {
	inBubble(t, socket.Options{PerUser: 2}, socket.Handler{Frame: echo}, func(w *world) {
		first, _ := w.dial("ada")
		other, _ := w.dial("bob")
		second, _ := w.dial("ada")
		third, _ := w.dial("ada")
		if code, _ := closed(t, first); code != socket.Superseded {
			t.Errorf("closed with %d", code)
		}
		for _, ws := range []*websocket.Conn{other, second, third} {
			say(t, ws, `{"type":"echo"}`)
			read(t, ws)
		}
		if users, sockets := w.group.Users(); users != 2 || sockets != 3 {
			t.Errorf("%d users, %d sockets", users, sockets)
		}
		if got := len(w.group.Of("ada")); got != 2 {
			t.Errorf("ada holds %d", got)
		}
	})
}

// A peer that does not read costs one frame on its way and a mark, however
// often the state changes; what it reads then is the last one.
func TestLatestWins(t *testing.T) {
	var version, rendered atomic.Int64
	opened := make(chan *socket.Conn, 1)
	h := socket.Handler{
		Opened: func(c *socket.Conn) { opened <- c },
		Latest: func(*socket.Conn) any {
			rendered.Add(1)
			return frame{Type: "view", N: int(version.Load())}
		},
	}
	inBubble(t, socket.Options{}, h, func(w *world) {
		ws, _ := w.dial("ada")
		c := <-opened
		for range 1000 {
			version.Add(1)
			c.Refresh()
			synctest.Wait()
		}
		if first, last := read(t, ws), read(t, ws); first.N != 1 || last.N != 1000 {
			t.Errorf("read %d, then %d", first.N, last.N)
		}
		if n := rendered.Load(); n != 2 {
			t.Errorf("rendered %d times", n)
		}
	})
}

func TestSlowPeers(t *testing.T) {
	opened := make(chan *socket.Conn, 1)
	var ended sync.WaitGroup
	h := socket.Handler{
		Opened: func(c *socket.Conn) { ended.Add(1); opened <- c },
		Closed: func(*socket.Conn) { ended.Done() },
	}
	inBubble(t, socket.Options{}, h, func(w *world) {
		ws, _ := w.dial("ada")
		c := <-opened
		for i := range 40 {
			c.Send(frame{Type: "n", N: i})
			synctest.Wait()
		}
		if code, _ := closed(t, ws); code != socket.Slow {
			t.Errorf("a full queue closed with %d", code)
		}
		ended.Wait()

		start := time.Now()
		_, _ = w.dial("ada")
		(<-opened).Send(frame{Type: "n"})
		ended.Wait()
		if took := time.Since(start); took != 5*time.Second {
			t.Errorf("a frame nobody read: ended after %v", took)
		}
	})
}

func TestHeartbeat(t *testing.T) {
	var ended sync.WaitGroup
	h := socket.Handler{Opened: func(*socket.Conn) { ended.Add(1) }, Closed: func(*socket.Conn) { ended.Done() }}
	inBubble(t, socket.Options{}, h, func(w *world) {
		start := time.Now()
		ws, _ := w.dial("alive")
		for i := range 240 { // the client library replies to pings while it reads
			if f := read(t, ws); f.Type != "ping" {
				t.Fatal(f)
			}
			if at := time.Since(start); at != time.Duration(i+1)*socket.Heartbeat {
				t.Fatalf("heartbeat %d after %v", i, at)
			}
		}
		_ = ws.Close()
		ended.Wait()

		start = time.Now()
		dead, _ := w.dial("dead")
		dead.SetPingHandler(func(string) error { return nil })
		closed(t, dead)
		ended.Wait()
		if took := time.Since(start); took != 25*time.Second {
			t.Errorf("a silent peer stayed %v", took)
		}
	})
}

func TestRate(t *testing.T) {
	inBubble(t, socket.Options{}, socket.Handler{Frame: echo}, func(w *world) {
		ws, _ := w.dial("ada")
		start := time.Now()
		go func() {
			for range 100 {
				_ = ws.WriteMessage(websocket.TextMessage, []byte(`{"type":"echo","id":"a"}`))
			}
		}()
		taken, refused := 0, 0
		for range 100 {
			switch f := read(t, ws); {
			case f.Type == "echo":
				taken++
			case f.Code == "kit/rate_limited" && f.ID == "a" && f.RetryAfterMs > 0:
				refused++
			default:
				t.Fatal(f)
			}
		}
		if took := time.Since(start); took < 1900*time.Millisecond || took > 2100*time.Millisecond || taken != 60 || refused != 40 {
			t.Errorf("100 frames in %v: %d taken, %d refused", took, taken, refused)
		}
	})
}

func TestProofThatEnds(t *testing.T) {
	var latest atomic.Int64
	opened := make(chan *socket.Conn, 1)
	h := socket.Handler{Frame: echo, Opened: func(c *socket.Conn) { opened <- c }, Latest: func(*socket.Conn) any {
		latest.Add(1)
		return frame{Type: "view"}
	}}
	for name, tt := range map[string]struct {
		after time.Duration
		act   func(*testing.T, *socket.Conn, *websocket.Conn)
		ends  time.Duration
	}{
		"a frame":        {time.Second, func(t *testing.T, _ *socket.Conn, ws *websocket.Conn) { say(t, ws, `{"type":"echo"}`) }, time.Second},
		"the state":      {time.Second, func(_ *testing.T, c *socket.Conn, _ *websocket.Conn) { c.Refresh() }, time.Second},
		"a queued reply": {0, func(_ *testing.T, c *socket.Conn, _ *websocket.Conn) { c.Send(frame{Type: "late"}) }, 0},
		"a fresh frame":  {0, func(t *testing.T, _ *socket.Conn, ws *websocket.Conn) { say(t, ws, `{"type":"echo"}`) }, 0},
		"an idle socket": {0, func(*testing.T, *socket.Conn, *websocket.Conn) {}, time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, socket.Options{}, h, func(w *world) {
				start := time.Now()
				ws, _ := w.dial("ada")
				c := <-opened
				w.recheck.Store(new(error(capability.ErrUnauthenticated)))
				time.Sleep(tt.after) //nolint:forbidigo // the bubble's clock
				tt.act(t, c, ws)
				code, _ := closed(t, ws)
				if took := time.Since(start); code != socket.Unauthenticated || took != tt.ends || latest.Load() > 0 {
					t.Errorf("closed with %d after %v, %d views", code, took, latest.Load())
				}
			})
		})
	}
	inBubble(t, socket.Options{}, h, func(w *world) {
		ws, _ := w.dial("ada")
		<-opened
		w.recheck.Store(new(error(capability.ErrUnavailable)))
		code, reason := closed(t, ws)
		if code != websocket.CloseTryAgainLater || reason != `{"retryAfterMs":1000}` {
			t.Errorf("nobody can tell: %d %s", code, reason)
		}
	})
}

func TestRestart(t *testing.T) {
	opened := make(chan *socket.Conn, 3)
	inBubble(t, socket.Options{}, socket.Handler{Opened: func(c *socket.Conn) { opened <- c }}, func(w *world) {
		ws, _ := w.dial("ada")
		dead, _ := w.dial("bob") // never replies to the close
		_, _ = dead, <-opened
		(<-opened).Send(frame{Type: "last"})
		start, ended := time.Now(), make(chan struct{})
		go func() { _ = w.group.Close(context.Background()); close(ended) }()
		code, reason := closed(t, ws)
		var retry struct{ RetryAfterMs *int64 }
		if err := json.Unmarshal([]byte(reason), &retry); code != socket.Restart || err != nil || *retry.RetryAfterMs < 0 || *retry.RetryAfterMs > 10_000 {
			t.Errorf("closed with %d %s", code, reason)
		}
		<-ended
		if took := time.Since(start); took > 10*time.Second {
			t.Errorf("a dead peer held the restart for %v", took)
		}
	})
	inBubble(t, socket.Options{}, socket.Handler{}, func(w *world) {
		_, _ = w.dial("ada")
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		start := time.Now()
		_ = w.group.Close(ctx)
		if took := time.Since(start); took != time.Second {
			t.Errorf("took %v", took)
		}
	})
}

func TestPanicEndsOneConnection(t *testing.T) {
	h := socket.Handler{Frame: func(c *socket.Conn, f socket.Frame) {
		if f.Type == "panic" {
			panic("boom")
		}
		echo(c, f)
	}, Latest: func(*socket.Conn) any { panic("boom") }}
	opened := make(chan *socket.Conn, 3)
	h.Opened = func(c *socket.Conn) { opened <- c }
	inBubble(t, socket.Options{}, h, func(w *world) {
		good, _ := w.dial("ada")
		<-opened
		bad, _ := w.dial("bob")
		<-opened
		say(t, bad, `{"type":"panic"}`)
		closed(t, bad)
		worse, _ := w.dial("eve")
		(<-opened).Refresh()
		closed(t, worse)
		say(t, good, `{"type":"echo"}`)
		read(t, good)
	})
}

// What was queued while the proof held is not sent once it has ended.
func TestQueuedFramesNeedAProof(t *testing.T) {
	opened := make(chan *socket.Conn, 1)
	inBubble(t, socket.Options{}, socket.Handler{Opened: func(c *socket.Conn) { opened <- c }}, func(w *world) {
		ws, _ := w.dial("ada")
		c := <-opened
		for i := range 10 {
			c.Send(frame{Type: "n", N: i})
		}
		synctest.Wait() // the first one waits for the peer to read
		w.recheck.Store(new(error(capability.ErrUnauthenticated)))
		if f := read(t, ws); f.N != 0 {
			t.Errorf("read %+v first", f)
		}
		_, raw, err := ws.ReadMessage()
		if end := new(websocket.CloseError); !errors.As(err, &end) || end.Code != socket.Unauthenticated {
			t.Errorf("after the proof had ended: %s %v", raw, err)
		}
	})
}

// Control frames count as frames do: pings over the rate get no pong, and the
// peer is read no faster.
func TestControlFramesAreCounted(t *testing.T) {
	for name, kind := range map[string]int{"ping": websocket.PingMessage, "pong": websocket.PongMessage} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, socket.Options{}, socket.Handler{Frame: echo}, func(w *world) {
				ws, _ := w.dial("ada")
				pongs := 0
				ws.SetPongHandler(func(string) error { pongs++; return nil })
				start := time.Now()
				go func() {
					for range 60 {
						_ = ws.WriteMessage(kind, nil)
					}
					_ = ws.WriteMessage(websocket.TextMessage, []byte(`{"type":"echo"}`))
				}()
				read(t, ws)
				if took := time.Since(start); took < 900*time.Millisecond || pongs > 45 {
					t.Errorf("60 of them were taken in %v with %d pongs", took, pongs)
				}
			})
		})
	}
}

// A message of endless parts, each without content, is read slowly.
func TestEmptyPartsAreReadSlowly(t *testing.T) {
	inBubble(t, socket.Options{}, socket.Handler{Frame: echo}, func(w *world) {
		ws, _ := w.dial("ada")
		parts := bytes.Repeat([]byte{0x00, 0x80, 0, 0, 0, 0}, 1<<20/6)
		start := time.Now()
		raw := ws.UnderlyingConn()
		if _, err := raw.Write([]byte{0x01, 0x80, 0, 0, 0, 0}); err != nil { // a text that goes on
			t.Fatal(err)
		}
		if _, err := raw.Write(parts); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(start); took < time.Second {
			t.Errorf("a MiB of empty parts was read in %v", took)
		}
	})
}

// Frames that belong together take one place of the queue.
func TestSendAll(t *testing.T) {
	opened := make(chan *socket.Conn, 1)
	inBubble(t, socket.Options{}, socket.Handler{Opened: func(c *socket.Conn) { opened <- c }}, func(w *world) {
		ws, _ := w.dial("ada")
		var frames []any
		for i := range 100 {
			frames = append(frames, frame{Type: "n", N: i})
		}
		(<-opened).SendAll(frames...)
		for i := range 100 {
			if f := read(t, ws); f.N != i {
				t.Fatalf("frame %d is %+v", i, f)
			}
		}
	})
}
