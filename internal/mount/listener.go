package mount

import (
	"cmp"
	"io"
	"net"
	"os"
	"sync/atomic"
	"time"
)

// Listener returns connections whose peers must read each write at a rate, in bytes a second, after
// a grace; by default it is the rate at which they must send bodies. A peer that reads nothing
// would otherwise keep its connection, and the file that is sent, open forever. Write deadlines
// that other code sets are kept. Connections that are not TCP are unchanged.
func Listener(l net.Listener, grace time.Duration, rate int64) net.Listener {
	return takers{l, grace, cmp.Or(rate, minRate)}
}

type takers struct {
	net.Listener
	grace time.Duration
	rate  int64
}

func (l takers) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if tcp, ok := conn.(*net.TCPConn); ok && err == nil {
		return &taker{TCPConn: tcp, grace: l.grace, rate: l.rate}, nil
	}
	return conn, err
}

// taker is a connection whose peer must read. It has one writer at a time.
type taker struct {
	*net.TCPConn
	grace time.Duration
	rate  int64
	other atomic.Bool // other code sets the write deadlines
}

func (c *taker) SetDeadline(t time.Time) error {
	c.other.Store(!t.IsZero())
	return c.TCPConn.SetDeadline(t)
}

func (c *taker) SetWriteDeadline(t time.Time) error {
	c.other.Store(!t.IsZero())
	return c.TCPConn.SetWriteDeadline(t)
}

func (c *taker) Write(b []byte) (int, error) {
	c.within(int64(len(b)))
	return c.TCPConn.Write(b)
}

// within bounds the next write.
func (c *taker) within(size int64) {
	if !c.other.Load() {
		_ = c.TCPConn.SetWriteDeadline(time.Now().Add(c.grace + time.Duration(size)*time.Second/time.Duration(c.rate)))
	}
}

// takenAtOnce is how much of a file the system sends within one deadline, in bytes.
const takenAtOnce = 256 << 10

// ReadFrom lets the system send a file, a part at a time. Other sources may take any time to read,
// so each of their writes has its own deadline.
func (c *taker) ReadFrom(r io.Reader) (n int64, err error) {
	rest, ok := r.(*io.LimitedReader)
	if !ok {
		rest = &io.LimitedReader{R: r, N: 1<<63 - 1}
	}
	if !regular(rest.R) {
		return io.Copy(struct{ io.Writer }{c}, r)
	}
	for rest.N > 0 {
		part := &io.LimitedReader{R: rest.R, N: min(rest.N, takenAtOnce)}
		size := part.N
		c.within(size)
		sent, err := c.TCPConn.ReadFrom(part)
		n, rest.N = n+sent, rest.N-sent
		if err != nil || sent < size {
			return n, err
		}
	}
	return n, nil
}

// regular reports whether a source is a file, which has its bytes at once.
func regular(r io.Reader) bool {
	f, ok := r.(*os.File)
	if !ok {
		return false
	}
	stat, err := f.Stat()
	return err == nil && stat.Mode().IsRegular()
}
