package support

import (
	"net"
	"net/http"
	"time"
)

// Timed bounds the reads of a connection as the listener does.
func Timed(conn net.Conn, timeout time.Duration) net.Conn {
	return &counted{Conn: conn, done: func() {}, timeout: timeout}
}

// ReachSNS makes s call SNS through another transport.
func ReachSNS(s *Support, transport http.RoundTripper) { s.ses.Client.Transport = transport }
