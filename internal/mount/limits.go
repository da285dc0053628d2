package mount

import (
	"net"
	"net/http"
	"net/netip"
	"strings"

	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/internal/wait"
)

// limit takes a token of the row's rate class.
func (x *exchange) limit(key string) error {
	limiter := x.m.limiters[x.row.entry.Route.RateClass()]
	if limiter == nil {
		return nil
	}
	after, ok := limiter.Allow(key)
	if ok {
		return nil
	}
	wait.Tell(x.w.Header(), after)
	return capability.ErrRateLimited
}

// clientIP is the peer's address, or, through trusted proxies only, the
// nearest address in X-Forwarded-For that is not one of them.
func (m *Mount) clientIP(r *http.Request) string {
	host := peer(r)
	if len(m.TrustedProxies) == 0 || !m.trusted(host) {
		if len(r.Header["X-Forwarded-For"]) > 0 {
			m.warnForwarded(host)
		}
		return host
	}
	hops := strings.Split(strings.Join(r.Header["X-Forwarded-For"], ","), ",")
	for i := len(hops) - 1; i >= 0; i-- {
		addr, ok := hopAddress(strings.TrimSpace(hops[i]))
		if !ok {
			break
		}
		host = addr.Unmap().String()
		if !m.trusted(host) {
			break
		}
	}
	return host
}

// hopAddress reads an address of X-Forwarded-For, to which some proxies add the port.
func hopAddress(hop string) (netip.Addr, bool) {
	if to, err := netip.ParseAddrPort(hop); err == nil {
		return to.Addr(), true
	}
	hop = strings.TrimSuffix(strings.TrimPrefix(hop, "["), "]")
	addr, err := netip.ParseAddr(hop)
	return addr, err == nil
}

// peer is the address of the connection.
func peer(r *http.Request) string {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return r.RemoteAddr
	}
	return host
}

func (m *Mount) trusted(host string) bool {
	addr, err := netip.ParseAddr(host)
	if err != nil {
		return false
	}
	for _, prefix := range m.TrustedProxies {
		if prefix.Contains(addr.Unmap()) {
			return true
		}
	}
	return false
}
