package socket

import (
	"bufio"
	"net"
	"net/http"
	"time"
)

// Bounds of the bytes read from one peer: a little more than those of the frames it may send, so
// that empty frames, of which a message can have any number, cost no more than others.
const (
	bytesPerSecond = 512 << 10
	bytesAtOnce    = 256 << 10
	bytesPaused    = 16 << 10 // read at least between two pauses
)

// throttled is a response writer whose hijacked connection is read at a bounded rate.
type throttled struct{ http.ResponseWriter }

func (t throttled) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := http.NewResponseController(t.ResponseWriter).Hijack()
	if err != nil {
		return nil, nil, err
	}
	return &slowConn{Conn: conn, tokens: bytesAtOnce, at: time.Now()}, rw, nil
}

// slowConn is read by one goroutine at a time.
type slowConn struct {
	net.Conn
	tokens int64
	at     time.Time
}

func (c *slowConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	now := time.Now()
	gained := min(now.Sub(c.at), time.Second) * bytesPerSecond / time.Second
	c.tokens, c.at = min(c.tokens+int64(gained), bytesAtOnce)-int64(n), now
	if c.tokens < 0 && err == nil {
		time.Sleep(time.Duration(bytesPaused-c.tokens) * time.Second / bytesPerSecond)
	}
	return n, err
}
