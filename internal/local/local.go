// Package local tells requests of a developer at this machine from all others.
// Routes that exist only in development answer nobody else.
package local

import (
	"net"
	"net/http"
	"net/netip"
	"strings"
)

// FromThisMachine reports whether the client runs on this machine and speaks
// to it directly: a loopback peer, a Host that no rebound DNS name can be, and
// no trace of a proxy.
func FromThisMachine(r *http.Request) bool {
	peer, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil || !peer.Addr().Unmap().IsLoopback() {
		return false
	}
	for name := range r.Header {
		switch name = strings.ToLower(name); {
		case name == "forwarded", name == "via", name == "x-real-ip", strings.HasPrefix(name, "x-forwarded"):
			return false
		}
	}
	host, _, err := net.SplitHostPort(r.Host)
	if err != nil {
		host = r.Host
	}
	switch strings.ToLower(host) {
	case "localhost", "127.0.0.1", "[::1]", "::1":
		return true
	default:
		return false
	}
}

// FromOtherSite reports whether a page of another origin sent the browser here.
func FromOtherSite(r *http.Request) bool {
	site := r.Header.Get("Sec-Fetch-Site")
	return site != "" && site != "none" && site != "same-origin"
}
