package socket

import (
	"cmp"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"runtime/debug"
	"sync"
	"time"

	"github.com/gorilla/websocket"

	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/internal/rate"
	"github.com/kitbackend/kit/internal/strictjson"
)

// Conn is one connection. It has one goroutine, which reads, and a second one
// while there is something to write. Its methods may be called from anywhere
// and do not wait for the peer.
type Conn struct {
	group   *Group
	ws      *websocket.Conn
	caller  capability.Caller
	handler Handler
	recheck func(context.Context) error
	ctx     context.Context
	cancel  context.CancelFunc
	beat    *time.Timer
	watch   *time.Timer
	limit   rate.Limit
	tokens  rate.Bucket // the reader's own

	mu      sync.Mutex
	queue   [][][]byte // replies, each of one frame or of several that belong together
	changed bool       // the state is to be sent
	beating bool       // a heartbeat is to be sent
	pong    []byte     // replies to a ping of the protocol; nil for none
	closing bool       // nothing is taken or queued any more
	goodbye []byte
	writing bool
	ended   bool
}

func newConn(g *Group, ws *websocket.Conn, call *capability.Call, h Handler) *Conn {
	// The request's context ends with the handler; the caller stays the same.
	ctx, cancel := context.WithCancel(capability.WithRequestInfo(context.Background(), capability.RequestInfoOf(call.Context())))
	c := &Conn{
		group: g, ws: ws, caller: call.Caller, handler: h, recheck: call.Recheck,
		ctx: ctx, cancel: cancel, limit: rate.Limit{Events: cmp.Or(h.FramesPerSecond, FramesPerSecond), Per: time.Second},
	}
	c.tokens = c.limit.Full(time.Now())
	ws.SetPongHandler(func(string) error { c.heard(); c.counted(); return nil })
	ws.SetPingHandler(c.pinged)
	c.beat = time.AfterFunc(Heartbeat, c.heartbeat)
	if c.recheck != nil {
		c.watch = time.AfterFunc(watchEvery, c.watched)
	}
	return c
}

// pinged queues the reply to a ping of the protocol, the last of several, unless the peer sends too
// many.
func (c *Conn) pinged(data string) error {
	c.heard()
	if c.counted() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.pong = append([]byte{}, data...)
		c.write()
	}
	return nil
}

// Caller returns the caller who opened the socket.
func (c *Conn) Caller() capability.Caller { return c.caller }

// Context ends with the connection and carries the caller's origin.
func (c *Conn) Context() context.Context { return c.ctx }

// Send queues a frame: a value that encodes to JSON, or a [json.RawMessage].
// When 32 are waiting the peer does not read: the socket is closed with [Slow].
func (c *Conn) Send(frame any) { c.SendAll(frame) }

// SendAll queues frames that belong together; they take one of the 32 places.
func (c *Conn) SendAll(frames ...any) {
	c.add(frames, false, true)
}

// Reply is [Conn.Send], followed by [Conn.Refresh] if refresh is true, for a handler of a frame:
// both are written together once it returns, without another goroutine.
func (c *Conn) Reply(frame any, refresh bool) {
	c.add([]any{frame}, refresh, false)
}

func (c *Conn) add(frames []any, refresh, write bool) {
	list := make([][]byte, 0, len(frames))
	for _, frame := range frames {
		raw, err := encode(frame)
		if err != nil {
			c.fail("frame", err)
			return
		}
		list = append(list, raw)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case len(list) == 0 || c.closing || c.ended:
	case len(c.queue) == maxQueue:
		c.queue = nil
		c.shut(Slow, "replies are not read")
	default:
		c.queue = append(c.queue, list)
		c.changed = c.changed || refresh
		if write {
			c.write()
		}
	}
}

// Refresh sends the latest state when the peer can take it. Any number of calls before that count
// as one.
func (c *Conn) Refresh() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.changed = true
	c.write()
}

// refusal is the frame that carries a refusal.
type refusal struct {
	Type         string `json:"type"`
	ID           string `json:"id,omitempty"`
	Code         string `json:"code"`
	Message      string `json:"message"`
	Details      any    `json:"details,omitempty"`
	RetryAfterMs int64  `json:"retryAfterMs,omitempty"`
}

// retryLater is how long a peer waits before it retries a frame that was refused temporarily.
const retryLater = time.Second

// Refuse replies to the frame with this id with an error; an error that is not a refusal is logged
// and sent as kit/internal.
func (c *Conn) Refuse(frameID string, err error) {
	c.Send(c.refusal(frameID, err))
}

func (c *Conn) refusal(frameID string, err error) refusal {
	r := capability.AsError(err)
	if r.Status >= http.StatusInternalServerError && c.ctx.Err() == nil {
		c.fail(r.Code, err)
	}
	reply := refusal{Type: "error", ID: frameID, Code: r.Code, Message: r.Message, Details: r.Details}
	if r.Status == http.StatusTooManyRequests || r.Status == http.StatusServiceUnavailable {
		reply.RetryAfterMs = retryLater.Milliseconds()
	}
	return reply
}

// Close sends what is queued, then the code and the reason, at most 123 bytes.
// The first call counts.
func (c *Conn) Close(code int, reason string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.shut(code, reason)
}

// restart closes the connection and asks the peer to reconnect after a random delay.
func (c *Conn) restart() {
	c.Close(Restart, retryAfter(time.Duration(rand.Int64N(int64(restartSpread)))))
}

// sever ends the connection without a close frame.
func (c *Conn) sever() {
	c.cancel()
	_ = c.ws.Close()
}

// drop is Close without what is queued.
func (c *Conn) drop(code int, reason string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.queue = nil
	c.shut(code, reason)
}

func (c *Conn) shut(code int, reason string) {
	if !c.closing {
		c.closing, c.goodbye = true, websocket.FormatCloseMessage(code, reason)
		c.write()
	}
}

// run reads until the connection ends.
func (c *Conn) run() {
	defer c.end()
	defer c.recovered()
	if c.handler.Opened != nil {
		c.handler.Opened(c)
	}
	for {
		c.heard()
		kind, raw, err := c.read()
		switch {
		case err != nil:
			return
		case c.isClosing(): // nothing can be sent any more
		case kind != websocket.TextMessage:
			c.Close(websocket.CloseUnsupportedData, "text frames only")
		case len(raw) > MaxFrame:
			c.Close(websocket.CloseMessageTooBig, "a frame has at most 16 KiB")
		case c.proven():
			c.take(raw)
		}
	}
}

// read returns the next frame, of a long one a byte too many: the connection
// has to go on for its close to arrive.
func (c *Conn) read() (kind int, raw []byte, err error) {
	kind, r, err := c.ws.NextReader()
	if err != nil {
		return 0, nil, err
	}
	raw, err = io.ReadAll(io.LimitReader(r, MaxFrame+1))
	return kind, raw, err
}

// heard moves the deadline after which silence means that the peer has gone.
func (c *Conn) heard() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.closing {
		_ = c.ws.SetReadDeadline(time.Now().Add(readWait))
	}
}

func (c *Conn) isClosing() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.closing
}

// take hands a frame to the handler. Over the rate it is refused, and the next
// one is read when there is a token for it.
func (c *Conn) take(raw []byte) {
	f, err := parse(raw)
	if wait, ok := c.tokens.Take(c.limit, time.Now()); !ok {
		r := c.refusal(f.ID, capability.ErrRateLimited)
		r.RetryAfterMs = max(wait.Milliseconds(), 1)
		c.Send(r)
		c.pause(wait)
		return
	}
	switch {
	case err != nil:
		c.Refuse(f.ID, err)
	case f.Type == "ping":
		c.Send(json.RawMessage(`{"type":"pong"}`))
	case f.Type == "pong":
	case c.handler.Frame != nil:
		c.handler.Frame(c, f)
		c.flush()
	default:
		c.Refuse(f.ID, f.Unknown())
	}
}

// counted takes a token for a control frame. Over the rate the next frame is
// read when there is one.
func (c *Conn) counted() bool {
	wait, ok := c.tokens.Take(c.limit, time.Now())
	if !ok {
		c.pause(wait)
	}
	return ok
}

func (c *Conn) pause(wait time.Duration) {
	select {
	case <-time.After(wait):
	case <-c.ctx.Done():
	}
}

// maxID bounds the id of a frame in bytes.
const maxID = 64

var errNoFrame = capability.ErrInvalidRequest.Saying("A frame is an object with a text type, and an id, if any, is a text.")

// parse reads what every frame has: it is an object with a type.
func parse(raw []byte) (Frame, error) {
	members, err := strictjson.Members(raw)
	if err != nil {
		return Frame{}, capability.ErrInvalidRequest.Saying("%s", err.Error())
	}
	f := Frame{Members: members, raw: raw}
	for _, m := range members {
		ok := true
		switch {
		case m.Name == "type":
			f.Type, ok = m.Text()
		case m.Name == "id" && string(m.Value) != "null":
			f.ID, ok = m.Text()
		}
		if !ok {
			return Frame{}, errNoFrame
		}
	}
	switch {
	case f.Type == "":
		return Frame{}, errNoFrame
	case len(f.ID) > maxID:
		f.ID = ""
		return f, capability.ErrInvalidRequest.Saying("An id has at most %d bytes.", maxID)
	}
	return f, nil
}

// Decode reads the frame strictly into a struct that names all its members,
// type included. Refuses with kit/invalid_request.
func (f Frame) Decode(into any) error {
	if err := strictjson.Decode(f.raw, into); err != nil {
		return capability.ErrInvalidRequest.Saying("%s", err.Error())
	}
	return nil
}

// Unknown is the refusal of a frame whose type the socket does not have.
func (f Frame) Unknown() error {
	kind := f.Type
	for i := range kind { // by runes: never a half one
		if i >= 40 {
			kind = kind[:i] + "…"
			break
		}
	}
	return capability.ErrInvalidRequest.Saying("There is no frame of type %q.", kind)
}

// proven reports whether the caller's credential is still valid; if not, it closes the socket.
func (c *Conn) proven() bool {
	if c.recheck == nil {
		return true
	}
	err := c.recheck(c.ctx)
	if err == nil {
		return true
	}
	if r := capability.AsError(err); r.Status == http.StatusUnauthorized || r.Status == http.StatusForbidden {
		c.drop(Unauthenticated, r.Code)
	} else {
		c.drop(websocket.CloseTryAgainLater, retryAfter(time.Second))
	}
	return false
}

// watched runs on the connection's timer, so that an idle socket is also closed when its credential
// ends.
func (c *Conn) watched() {
	defer c.recovered()
	if c.isClosing() || !c.proven() {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.ended {
		c.watch.Reset(watchEvery)
	}
}

// heartbeat runs on the connection's timer.
func (c *Conn) heartbeat() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.closing && !c.ended {
		c.beating = true
		c.beat.Reset(Heartbeat)
		c.write()
	}
}

func (c *Conn) end() {
	c.mu.Lock()
	c.ended, c.queue = true, nil
	c.mu.Unlock()
	c.cancel()
	c.beat.Stop()
	if c.watch != nil {
		c.watch.Stop()
	}
	_ = c.ws.Close()
	c.group.remove(c)
	if c.handler.Closed != nil {
		defer c.recovered()
		c.handler.Closed(c)
	}
}

// recovered turns a handler's panic into the end of its connection.
func (c *Conn) recovered() {
	if p := recover(); p != nil {
		c.group.o.Log.Error("socket: a handler panicked", slog.Any("panic", p), slog.String("stack", string(debug.Stack())))
		_ = c.ws.Close()
	}
}

func (c *Conn) fail(what string, err error) {
	attrs := []any{slog.String("what", what), slog.String("error", err.Error())}
	if o := capability.RequestInfoOf(c.ctx); o != nil {
		attrs = append(attrs, slog.String("requestId", o.RequestID), slog.String("route", o.Route))
	}
	c.group.o.Log.Error("socket: failed", attrs...)
}
