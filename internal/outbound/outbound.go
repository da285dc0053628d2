// Package outbound makes requests to addresses that others supplied, and keeps them from reaching
// machines of the kit's own network.
package outbound

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"syscall"
	"time"
)

// ErrNotPublic reports a connection that was refused because the address is not public.
var ErrNotPublic = errors.New("not a public address")

// global is the range of the global unicast addresses of IPv6.
var global = netip.MustParsePrefix("2000::/3")

// reserved lists ranges that [netip.Addr.IsPrivate] does not report and that are not public either:
// shared and local networks, documentation, and IPv6 ranges that lead to IPv4.
var reserved = []netip.Prefix{
	netip.MustParsePrefix("0.0.0.0/8"), netip.MustParsePrefix("100.64.0.0/10"), netip.MustParsePrefix("192.0.0.0/24"),
	netip.MustParsePrefix("192.0.2.0/24"), netip.MustParsePrefix("192.88.99.0/24"), netip.MustParsePrefix("198.18.0.0/15"),
	netip.MustParsePrefix("198.51.100.0/24"), netip.MustParsePrefix("203.0.113.0/24"), netip.MustParsePrefix("240.0.0.0/4"),
	netip.MustParsePrefix("2001::/23"), netip.MustParsePrefix("2001:db8::/32"), netip.MustParsePrefix("2002::/16"),
	netip.MustParsePrefix("3fff::/20"),
}

// Public reports whether an address is on the public Internet.
func Public(ip netip.Addr) bool {
	ip = ip.Unmap().WithZone("")
	if !ip.IsGlobalUnicast() || ip.IsPrivate() || ip.Is6() && !global.Contains(ip) {
		return false
	}
	for _, prefix := range reserved {
		if prefix.Contains(ip) {
			return false
		}
	}
	return true
}

// Bounds of a server's headers and of the connections kept to it.
const (
	maxHeader = 64 << 10 // bytes
	maxConns  = 16
	maxIdle   = 4
)

// NewClient returns a client that follows no redirect, uses no proxy, and takes
// timeout at most for a request and its response. At each connection it checks the address to which
// the name resolved, and refuses one that is not public with [ErrNotPublic], unless private is
// true.
func NewClient(timeout time.Duration, private bool) *http.Client {
	dialer := &net.Dialer{Timeout: timeout}
	if !private {
		dialer.ControlContext = refusePrivate
	}
	return &http.Client{
		Timeout:       timeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport: &http.Transport{
			DialContext:            dialer.DialContext,
			ForceAttemptHTTP2:      true,
			TLSHandshakeTimeout:    timeout,
			MaxResponseHeaderBytes: maxHeader,
			MaxConnsPerHost:        maxConns,
			MaxIdleConnsPerHost:    maxIdle,
			IdleConnTimeout:        time.Minute,
		},
	}
}

func refusePrivate(_ context.Context, _, address string, _ syscall.RawConn) error {
	if to, err := netip.ParseAddrPort(address); err != nil || !Public(to.Addr()) {
		return fmt.Errorf("%s is %w", address, ErrNotPublic)
	}
	return nil
}
