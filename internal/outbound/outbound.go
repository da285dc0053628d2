// Package outbound keeps requests that the kit makes for others away from the
// machines of its own network.
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

// ErrNotPublic is the cause of a connection that was not made.
var ErrNotPublic = errors.New("not a public address")

// global is where the addresses of IPv6 are that the Internet has.
var global = netip.MustParsePrefix("2000::/3")

// reserved are the ranges that are not private by name and not public either:
// those of a network's own, of documents, and of IPv6 that lead to IPv4.
var reserved = []netip.Prefix{
	netip.MustParsePrefix("0.0.0.0/8"), netip.MustParsePrefix("100.64.0.0/10"), netip.MustParsePrefix("192.0.0.0/24"),
	netip.MustParsePrefix("192.0.2.0/24"), netip.MustParsePrefix("192.88.99.0/24"), netip.MustParsePrefix("198.18.0.0/15"),
	netip.MustParsePrefix("198.51.100.0/24"), netip.MustParsePrefix("203.0.113.0/24"), netip.MustParsePrefix("240.0.0.0/4"),
	netip.MustParsePrefix("2001::/23"), netip.MustParsePrefix("2001:db8::/32"), netip.MustParsePrefix("2002::/16"),
	netip.MustParsePrefix("3fff::/20"),
}

// Public reports whether an address is one of the Internet.
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

// Bounds of what a server may send and of how many connections are kept to it.
const (
	maxHeader = 64 << 10 // bytes
	maxConns  = 16
	maxIdle   = 4
)

// NewClient returns a client that follows no redirect, uses no proxy, and takes
// timeout at most for a request and its response. It looks at the address that a
// name has led to, at each connection, and refuses one that is not public with
// [ErrNotPublic], unless private is true.
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
