package multiplayer

import (
	"encoding/json"
	"errors"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/internal/socket"
)

const (
	// protocolVersion is the member v of hello.
	protocolVersion = 1
	// maxKept bounds the state that is kept for every socket to make patches from, in bytes; a view
	// with a larger one is sent whole.
	maxKept = 64 << 10
	// frameOverhead is the minimum size of a view without its players and state, in bytes.
	frameOverhead = 256
)

// The frames that a server sends, apart from error, ping and pong.
type (
	// helloFrame is the first frame. Resume reports that the session is not over, so that a client
	// that loses the connection should reconnect.
	helloFrame struct {
		Type        string `json:"type"`
		V           int    `json:"v"`
		SessionID   string `json:"sessionId"`
		You         string `json:"you"`
		Version     int64  `json:"version"`
		HeartbeatMs int64  `json:"heartbeatMs"`
		Resume      bool   `json:"resume"`
		TS          int64  `json:"ts"`
	}
	// viewFrame is everything the player sees; it replaces the client's view.
	viewFrame struct {
		Type    string `json:"type"`
		Version int64  `json:"version"`
		View    View   `json:"view"`
	}
	// patchFrame changes the view of version From into the view of version To.
	patchFrame struct {
		Type string      `json:"type"`
		From int64       `json:"from"`
		To   int64       `json:"to"`
		Ops  []operation `json:"ops"`
	}
	ackFrame struct {
		Type string `json:"type"`
		Ack
	}
	// closedFrame follows the last view. The socket is closed after it.
	closedFrame struct {
		Type   string  `json:"type"`
		Phase  Phase   `json:"phase"`
		Result *Result `json:"result"`
	}
)

// The frames that a client sends, apart from ping and pong.
type (
	actionFrame struct {
		Type   string          `json:"type"`
		ID     string          `json:"id"`
		Expect int64           `json:"expect"`
		Data   json.RawMessage `json:"data"`
	}
	// resumeFrame requests the whole view: a patch does not apply to the client's version.
	resumeFrame struct {
		Type    string `json:"type"`
		Version int64  `json:"version"`
	}
)

// socket upgrades a player's request. Membership is checked before the upgrade, so that the refusal
// is an HTTP response, and again with every view.
func (m *Multiplayer) socket(c *capability.Call) error {
	s, err := m.current(c.Context(), c.Param("id"))
	if err != nil {
		return err
	}
	if !slices.Contains(s.players, c.Caller.UserID) {
		return ErrNotAMember
	}
	p := &seat{hub: m.hub, sessionID: s.id, version: s.version, over: s.phase.Terminal()}
	return m.hub.group.Accept(c, socket.Handler{
		FramesPerSecond: s.game.FramesPerSecond, Opened: p.opened, Frame: p.frame, Latest: p.latest, Closed: p.closed})
}

// seat is one socket of a player, who may have several.
type seat struct {
	hub       *hub
	sessionID string
	// version and over are those of the session at the upgrade.
	version int64
	over    bool
	conn    *socket.Conn
	table   *table

	sent  atomic.Int64 // the version of the client's view
	whole atomic.Bool  // the client requested the whole view
	// replying is held from a frame to its reply, which latest waits for before it closes the
	// socket.
	replying sync.Mutex
	// acting reports that an action is under way, whose reply includes the newest view.
	acting atomic.Bool
	last   *View // the client's view, or nil; used by the writing goroutine only
}

func (p *seat) opened(c *socket.Conn) {
	p.conn = c
	c.Send(helloFrame{
		Type: "hello", V: protocolVersion, SessionID: p.sessionID, You: c.Caller().UserID, Version: p.version,
		HeartbeatMs: socket.Heartbeat.Milliseconds(), Resume: !p.over, TS: p.hub.m.now().UnixMilli(),
	})
	p.hub.enter(p)
	p.hub.heard(p.table, 0) // for changes before the subscription
}

func (p *seat) closed(*socket.Conn) { p.hub.leave(p) }

func (p *seat) frame(c *socket.Conn, f socket.Frame) {
	p.replying.Lock()
	defer p.replying.Unlock()
	var err error
	switch f.Type {
	case "action":
		err = p.action(f)
	case "resume":
		if err = f.Decode(new(resumeFrame)); err == nil {
			p.whole.Store(true)
			c.Refresh()
		}
	default:
		err = f.Unknown()
	}
	if err != nil {
		c.Refuse(f.ID, err)
	}
}

func (p *seat) action(f socket.Frame) error {
	a, err := readAction(f)
	switch {
	case err != nil:
		return err
	case a.ID == "":
		return capability.ErrInvalidRequest.Saying("An action has an id of the client's choice, by which it counts once.")
	case a.Data == nil:
		return capability.ErrInvalidRequest.Saying("An action has data.")
	}
	p.acting.Store(true)
	ack, err := p.hub.m.act(p.conn.Context(), p.sessionID, p.conn.Caller().UserID, Action{ID: a.ID, Expect: a.Expect, Data: a.Data})
	p.acting.Store(false)
	behind := p.sent.Load() < p.table.newest()
	switch {
	case err == nil:
		p.conn.Reply(json.RawMessage(ack.frame()), behind)
	case behind:
		p.conn.Refresh()
	}
	return err
}

// readAction reads a frame whose JSON is known to be valid. It leaves the refusal of a malformed
// action to Decode.
func readAction(f socket.Frame) (a actionFrame, err error) {
	a.Type, a.ID = f.Type, f.ID
	for _, m := range f.Members {
		switch m.Name {
		case "type", "id":
		case "data":
			a.Data = m.Value
		case "expect":
			a.Expect, err = strconv.ParseInt(string(m.Value), 10, 64)
		default:
			err = errUnknownMember
		}
		if err != nil {
			return a, f.Decode(&a)
		}
	}
	return a, nil
}

var errUnknownMember = errors.New("multiplayer: a member that an action does not have")

// frame is the ackFrame as JSON.
func (a Ack) frame() []byte {
	b := appendText(append(make([]byte, 0, 64), `{"type":"ack","id":`...), a.ID)
	return append(strconv.AppendInt(append(b, `,"version":`...), a.Version, 10), '}')
}

// latest returns the frame that updates the client to the newest view, or nil if the client has it.
func (p *seat) latest(c *socket.Conn) any {
	v, err := p.hub.m.viewAt(c.Context(), p.sessionID, c.Caller().UserID, p.table.newest())
	switch {
	case errors.Is(err, ErrNotAMember), errors.Is(err, ErrSessionNotFound):
		c.Close(socket.NotMember, capability.AsError(err).Code)
		return nil
	case err != nil:
		c.Refuse("", err)
		return nil
	}
	if p.sent.Load() >= v.Version && !p.whole.Load() {
		return nil
	}
	if p.sent.Store(v.Version); v.Phase.Terminal() { // both are sent after this view
		p.replying.Lock()
		defer p.replying.Unlock()
		c.Send(closedFrame{"closed", v.Phase, v.Result})
		c.Close(socket.Ended, string(v.Phase))
	}
	last := p.last
	if p.last = nil; len(v.State) <= maxKept {
		p.last = &v
	}
	if p.whole.Swap(false) || last == nil {
		return viewFrame{"view", v.Version, v}
	}
	return p.table.change(last, &v)
}

// shorter returns the patch from the last view if it is certainly shorter than the new view, and
// otherwise the view.
func shorter(last, v *View) any {
	least := frameOverhead + len(v.State)
	for _, player := range v.Players {
		least += len(player)
	}
	if ops, err := changes(last, v); err == nil && len(ops) > 0 {
		if patch := encodePatch(last.Version, v.Version, ops); len(patch) < least {
			return patch
		}
	}
	return viewFrame{"view", v.Version, *v}
}
