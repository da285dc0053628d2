package mount

import (
	"io"
	"net/http"
	"time"

	"github.com/labstack/echo/v4"
)

// A client must send its body at this rate, in bytes a second, after a grace
// for the first of it. With the route's limit this bounds how long any read of
// a body can take.
const (
	minRate      = 16 << 10
	defaultGrace = 5 * time.Second
)

// lingering is how long the connection of a finished request may stay open for
// a body that nobody read.
const lingering = 500 * time.Millisecond

// paced is a request body that must arrive at a minimum rate. It sets a deadline on the connection
// only to end a read that is too slow, so that the host's own deadlines stay.
type paced struct {
	io.ReadCloser
	control *http.ResponseController
	grace   time.Duration
	start   time.Time
	read    int64
	ended   bool
	timer   *time.Timer
}

// pace replaces the body of a request by a paced one, and has the response sent without waiting for
// a body that is not read.
func pace(w *echo.Response, r *http.Request, grace time.Duration) {
	if r.Body == nil || r.Body == http.NoBody {
		return
	}
	p := &paced{ReadCloser: r.Body, control: http.NewResponseController(w), grace: grace}
	r.Body = p
	w.Before(func() { p.release(w.Header(), r) })
}

func (p *paced) Read(b []byte) (int, error) {
	now := time.Now()
	if p.start.IsZero() {
		p.start = now
	}
	left := p.start.Add(p.grace + time.Duration(p.read)*time.Second/minRate).Sub(now)
	if p.timer == nil {
		p.timer = time.AfterFunc(left, p.end)
	} else {
		p.timer.Reset(left)
	}
	n, err := p.ReadCloser.Read(b)
	p.timer.Stop()
	p.read += int64(n)
	p.ended = p.ended || err != nil
	return n, err
}

// end makes the read that is under way fail, and every later one.
func (p *paced) end() {
	_ = p.control.SetReadDeadline(time.Unix(1, 0))
}

// release has the response sent without waiting for a body that is not read; the connection closes
// within the time of lingering.
func (p *paced) release(h http.Header, r *http.Request) {
	if p.ended || r.ContentLength >= 0 && p.read >= r.ContentLength {
		return
	}
	if r.ProtoMajor == 1 {
		h.Set("Connection", "close")
	}
	_ = p.control.SetReadDeadline(time.Now().Add(lingering))
}
