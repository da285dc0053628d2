package socket

import (
	"encoding/binary"
	"math"
	"sync"
	"time"

	"github.com/gorilla/websocket"
)

// write starts the writing goroutine unless it runs. The lock is held.
func (c *Conn) write() {
	if !c.writing && !c.ended {
		c.writing = true
		c.group.start(c.drain)
	}
}

// flush writes the replies of a frame's handler, unless another goroutine is writing. Replies that
// are queued meanwhile are left to the writing goroutine, so that the reader can read.
func (c *Conn) flush() {
	c.mu.Lock()
	mine := !c.writing && !c.ended && len(c.queue) > 0
	c.writing = c.writing || mine
	c.mu.Unlock()
	if !mine {
		return
	}
	defer c.recovered()
	if c.one() == nothing {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.writing = false; len(c.queue) > 0 || c.changed || c.beating || c.closing || c.pong != nil {
		c.write()
	}
}

// step is one thing to write.
type step int

const (
	nothing step = iota
	reply
	farewell
	heartbeat
	pong
	state
)

// next returns the next thing to write: replies first, state last.
func (c *Conn) next() (step, []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.ended:
	case len(c.queue) > 0:
		frame := c.queue[0][0]
		if c.queue[0] = c.queue[0][1:]; len(c.queue[0]) == 0 {
			c.queue = c.queue[1:]
		}
		return reply, frame
	case c.goodbye != nil:
		frame := c.goodbye
		c.goodbye = nil
		return farewell, frame
	case c.closing:
	case c.beating:
		c.beating = false
		return heartbeat, nil
	case c.pong != nil:
		frame := c.pong
		c.pong = nil
		return pong, frame
	case c.changed:
		c.changed = false
		return state, nil
	}
	c.writing, c.queue = false, nil
	return nothing, nil
}

// follows takes the state if it is what comes next, so that it leaves in one
// piece with the reply before it.
func (c *Conn) follows() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	follows := c.changed && len(c.queue) == 0 && !c.closing && !c.ended && !c.beating
	c.changed = c.changed && !follows
	return follows
}

// drain writes until nothing is waiting.
func (c *Conn) drain() {
	defer c.recovered()
	for c.one() != nothing {
	}
}

// one writes the next thing, such as a reply with the state after it. It returns nothing if there
// is none, or if the connection has ended.
func (c *Conn) one() step {
	what, frame := c.next()
	var err error
	switch what {
	case nothing:
		return nothing
	case reply:
		err = c.reply(frame)
	case heartbeat:
		err = c.ping()
	case pong:
		err = c.control(websocket.PongMessage, frame)
	case state:
		if c.proven() {
			err = c.text(c.latest())
		}
	case farewell:
		if err = c.control(websocket.CloseMessage, frame); err == nil {
			_ = c.ws.SetReadDeadline(time.Now().Add(closeWait))
		}
	}
	if err != nil {
		_ = c.ws.Close() // the reader ends the connection
		c.mu.Lock()
		c.ended = true
		c.mu.Unlock()
		return nothing
	}
	return what
}

func (c *Conn) reply(frame []byte) error {
	if !c.proven() {
		return nil
	}
	if c.follows() {
		return c.text(frame, c.latest())
	}
	return c.text(frame)
}

// control writes a control frame.
func (c *Conn) control(kind int, frame []byte) error {
	_ = c.ws.SetWriteDeadline(time.Now().Add(writeWait))
	return c.ws.WriteMessage(kind, frame)
}

var buffers = sync.Pool{New: func() any { return new([]byte) }}

// text writes text frames in one piece, which the library does not; those that
// are nil are left out. Nothing else is written to the connection meanwhile: it
// has one writer at a time.
func (c *Conn) text(frames ...[]byte) error {
	b := buffers.Get().(*[]byte)
	defer buffers.Put(b)
	*b = (*b)[:0]
	for _, frame := range frames {
		if frame != nil {
			*b = append(appendHeader(*b, len(frame)), frame...)
		}
	}
	if len(*b) == 0 {
		return nil
	}
	conn := c.ws.NetConn()
	_ = conn.SetWriteDeadline(time.Now().Add(writeWait))
	_, err := conn.Write(*b)
	if cap(*b) > maxBuffer {
		*b = nil
	}
	return err
}

// maxBuffer is the largest buffer that is kept for the next write, in bytes.
const maxBuffer = 64 << 10

// appendHeader begins a text frame that is a whole message, RFC 6455 section 5.2.
func appendHeader(b []byte, size int) []byte {
	const final, text, two, eight = 0x80, 1, 126, 127
	switch b = append(b, final|text); {
	case size < two:
		return append(b, byte(size))
	case size <= math.MaxUint16:
		return binary.BigEndian.AppendUint16(append(b, two), uint16(size))
	default:
		return binary.BigEndian.AppendUint64(append(b, eight), uint64(size))
	}
}

// ping sends a ping of the protocol, and a heartbeat frame for pages, which cannot see the former.
func (c *Conn) ping() error {
	if !c.proven() {
		return nil
	}
	if err := c.control(websocket.PingMessage, nil); err != nil {
		return err
	}
	frame, err := encode(struct {
		Type string `json:"type"`
		TS   int64  `json:"ts"`
	}{"ping", time.Now().UnixMilli()})
	if err != nil {
		return err
	}
	return c.text(frame)
}

// latest returns the frame of the state, or nil.
func (c *Conn) latest() []byte {
	if c.handler.Latest == nil {
		return nil
	}
	frame := c.handler.Latest(c)
	if frame == nil {
		return nil
	}
	raw, err := encode(frame)
	if err != nil {
		c.fail("state", err)
		return nil
	}
	return raw
}
