// Package socket holds WebSocket connections (RFC 6455): the upgrade of a guarded request, JSON
// frames with a type, and bounds on everything a peer can do. It does not know what the frames
// mean.
//
// A connection never grows with a slow peer: replies wait in a short queue
// whose overflow closes the socket, and state has no queue at all, only a mark that it has changed;
// the state sent is the one when the peer can take it. A connection ends with its credential, which
// is verified again before each frame in either direction, and every second while idle. Control
// frames count as frames, and the bytes of a peer are read no faster than its frames could come.
package socket

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/gorilla/websocket"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/metric"

	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/internal/strictjson"
)

// Protocol is the subprotocol that the kit selects for a client that offers
// any. A browser, which cannot set headers, offers it next to its access token.
const Protocol = "kit.v1"

// The close codes of the kit, in addition to those of RFC 6455 section 7.4.
const (
	Unauthenticated = 4001 // the proof has expired or was revoked
	NotMember       = 4003 // the caller may no longer see this
	Slow            = 4008 // replies pile up faster than the peer reads them
	Superseded      = 4010 // the same user opened too many newer sockets
	Ended           = websocket.CloseNormalClosure
	Restart         = websocket.CloseServiceRestart
)

// Bounds of a connection.
const (
	MaxFrame   = 16 << 10 // bytes of an incoming frame
	maxQueue   = 32       // replies waiting to be written
	Heartbeat  = 15 * time.Second
	readWait   = 25 * time.Second // silence after which the peer is gone
	writeWait  = 5 * time.Second
	closeWait  = 2 * time.Second // for the peer's reply to a close
	watchEvery = time.Second     // how often the credential of an idle socket is verified
	// restartSpread is the time over which the clients of a node that stops reconnect to the
	// others.
	restartSpread = 10 * time.Second
)

// FramesPerSecond is how many frames one connection may send a second, and in a burst, unless its
// handler sets another number.
const FramesPerSecond = 20

// Options of a group; zero fields have defaults.
type Options struct {
	// PerUser is how many sockets a user may hold on this node; one more closes
	// the oldest with [Superseded]. Default 16.
	PerUser int
	// PerNode is how many sockets the group holds. Default 50,000.
	PerNode int
	Log     *slog.Logger
}

// Group is the sockets of one capability on this node.
type Group struct {
	o        Options
	upgrader websocket.Upgrader

	mu     sync.Mutex
	users  map[string][]*Conn // oldest first
	open   int
	meter  metric.Int64UpDownCounter // the same over all groups of the process
	closed bool
	cut    bool           // connections are cut, without waiting for peers
	wg     sync.WaitGroup // every goroutine of every connection

	free  chan func()   // to a goroutine that waits for something to write
	ended chan struct{} // closed when none of them is needed any more
	once  sync.Once
}

// NewGroup makes an empty group.
func NewGroup(o Options) *Group {
	if o.PerUser == 0 {
		o.PerUser = 16
	}
	if o.PerNode == 0 {
		o.PerNode = 50_000
	}
	if o.Log == nil {
		o.Log = slog.Default()
	}
	meter, err := otel.Meter("github.com/kitbackend/kit").Int64UpDownCounter("kit.sockets.open",
		metric.WithDescription("Sockets that are open on this node."))
	if err != nil {
		otel.Handle(err)
	}
	return &Group{
		o: o, meter: meter, users: make(map[string][]*Conn), free: make(chan func()), ended: make(chan struct{}),
		upgrader: websocket.Upgrader{
			Subprotocols:    []string{Protocol},
			ReadBufferSize:  1 << 10,
			WriteBufferSize: 4 << 10,
			WriteBufferPool: new(sync.Pool),                                          // an idle connection holds no write buffer
			CheckOrigin:     func(*http.Request) bool { return true },                // the kit did, of a caller proved by a cookie
			Error:           func(http.ResponseWriter, *http.Request, int, error) {}, // the kit responds
		},
	}
}

// Handler holds the callbacks of a socket; nil ones do nothing. Opened, Frame and Closed are called
// one at a time.
type Handler struct {
	// FramesPerSecond is how many frames the peer may send a second, and in a burst; zero means
	// [FramesPerSecond]. At most 512 KiB a second are read, whatever the number.
	FramesPerSecond int
	// Opened runs before the first frame is read.
	Opened func(*Conn)
	// Frame takes a frame of the peer; while it runs none is read.
	Frame func(*Conn, Frame)
	// Latest returns the state to send after [Conn.Refresh], or nil.
	Latest func(*Conn) any
	// Closed runs when the connection has ended, however it did.
	Closed func(*Conn)
}

// Accept upgrades the request and returns; the connection stays open. It refuses a request that is
// no WebSocket handshake with kit/invalid_request, and refuses with kit/unavailable when the node
// is full or stopping.
func (g *Group) Accept(call *capability.Call, h Handler) error {
	if err := g.reserve(); err != nil {
		return err
	}
	ws, err := g.upgrader.Upgrade(throttled{call.Writer()}, call.Request(), nil)
	if err != nil {
		g.release()
		if bad := (websocket.HandshakeError{}); errors.As(err, &bad) {
			return capability.ErrInvalidRequest.Saying("This route takes WebSocket handshakes (RFC 6455).").Because(err)
		}
		return capability.ErrUnavailable.Because(err)
	}
	c := newConn(g, ws, call, h)
	g.add(c)
	g.wg.Go(c.run)
	return nil
}

// Of returns the sockets of a user on this node.
func (g *Group) Of(userID string) []*Conn {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.users[userID])
}

// Close asks every peer to reconnect after a random delay, and waits until all connections have
// ended; those still open when ctx ends are cut. The group accepts no more.
func (g *Group) Close(ctx context.Context) error {
	for _, c := range g.all(&g.closed) {
		c.restart()
	}
	ended := make(chan struct{})
	go func() { g.wg.Wait(); close(ended) }()
	select {
	case <-ended:
	case <-ctx.Done():
		for _, c := range g.all(&g.cut) {
			c.sever()
		}
		<-ended
	}
	g.once.Do(func() { close(g.ended) })
	return nil
}

// idleWriter is how long a goroutine waits for something else to write.
const idleWriter = time.Second

// start runs f in an idle goroutine if there is one: a new one would first have to grow its stack
// for writing.
func (g *Group) start(f func()) {
	g.wg.Add(1)
	select {
	case g.free <- f:
	default:
		go g.work(f)
	}
}

func (g *Group) work(f func()) {
	idle := time.NewTimer(idleWriter)
	defer idle.Stop()
	for {
		f()
		g.wg.Done()
		idle.Reset(idleWriter)
		select {
		case f = <-g.free:
		case <-g.ended:
			return
		case <-idle.C:
			return
		}
	}
}

// all sets a mark, which connections being accepted check, and returns the open connections.
func (g *Group) all(mark *bool) (all []*Conn) {
	g.mu.Lock()
	defer g.mu.Unlock()
	*mark = true
	for _, list := range g.users {
		all = append(all, list...)
	}
	return all
}

// reserve counts a connection before the upgrade, so that a refusal is an HTTP response.
func (g *Group) reserve() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed || g.open >= g.o.PerNode {
		return capability.ErrUnavailable.Saying("This node takes no more sockets. Try again.")
	}
	g.open++
	g.meter.Add(context.Background(), 1)
	g.wg.Add(1)
	return nil
}

func (g *Group) release() {
	g.mu.Lock()
	g.open--
	g.mu.Unlock()
	g.meter.Add(context.Background(), -1)
	g.wg.Done()
}

func (g *Group) add(c *Conn) {
	user := c.caller.UserID
	g.mu.Lock()
	defer g.mu.Unlock()
	g.users[user] = append(g.users[user], c)
	for i := range len(g.users[user]) - g.o.PerUser {
		g.users[user][i].Close(Superseded, "too many sockets of one user")
	}
	switch {
	case g.cut:
		c.sever()
	case g.closed:
		c.restart()
	}
}

func (g *Group) remove(c *Conn) {
	user := c.caller.UserID
	g.mu.Lock()
	left := slices.DeleteFunc(g.users[user], func(other *Conn) bool { return other == c })
	if g.users[user] = left; len(left) == 0 {
		delete(g.users, user)
	}
	g.mu.Unlock()
	g.release()
}

// retryAfter is the reason of a close after which the peer may come back.
func retryAfter(d time.Duration) string {
	return fmt.Sprintf(`{"retryAfterMs":%d}`, d.Milliseconds())
}

// Frame is what a peer sent: one JSON object with a type.
type Frame struct {
	// Type is the member type, never empty.
	Type string
	// ID is the member id, by which a reply names the frame; "" without one.
	ID string
	// Members are all of the object, those two included.
	Members []strictjson.Member
	raw     []byte
}

// encode writes a frame as JSON.
func encode(frame any) ([]byte, error) {
	if raw, ok := frame.(json.RawMessage); ok {
		return raw, nil
	}
	return json.Marshal(frame)
}
