package socket

import (
	"bufio"
	"net"
	"net/http"
	"time"
)

// Bounds of what is read of one peer, in bytes: a little more than the frames
// it may send, so that frames without content, of which a message can have any
// number, take no more time than others.
const (
	bytesPerSecond = 512 << 10
	bytesAtOnce    = 256 << 10
	bytesPaused    = 16 << 10 // read at least between two pauses
)

// throttled hands out a connection that is read at a bounded speed.
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
