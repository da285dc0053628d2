// Package local recognizes requests from this machine: routes that exist only in development serve
// no others.
package local

import (
	"net"
	"net/http"
	"net/netip"
	"slices"
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
	if !r.ProtoAtLeast(1, 1) || passedProxy(r.Header) { // HTTP/1.0 is what a common proxy speaks upstream
		return false
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

// Host reports whether the host of an address is this machine, for which plain http is as safe as
// https.
func Host(name string) bool {
	ip, err := netip.ParseAddr(name)
	return name == "localhost" || err == nil && ip.IsLoopback()
}

// proxyHeaders are what proxies, balancers and tunnels are known to add, in
// lower case; proxyPrefixes begin whole families of them.
var (
	proxyHeaders = []string{
		"forwarded", "via", "client-ip", "true-client-ip", "proxy-connection", "proxy-authorization",
		"fastly-client-ip", "fastly-ff", "ngrok-trace-id", "x-request-start", "x-real-ip", "x-client-ip",
		"x-cluster-client-ip", "x-original-for", "x-original-host", "x-original-proto", "x-original-url",
		"x-original-forwarded-for", "x-originating-ip", "x-remote-ip", "x-remote-addr", "x-host",
		"x-scheme", "x-https", "x-ssl", "x-url-scheme", "x-varnish", "x-rewrite-url", "x-coming-from",
		"x-arr-ssl", "x-arr-log-id", "x-nginx-proxy", "x-akamai-edgescape", "wl-proxy-client-ip",
		"front-end-https", "cdn-loop", "x-cdn", "surrogate-capability", "max-forwards",
	}
	proxyPrefixes = []string{
		"x-forwarded", "x-proxy", "x-envoy", "x-amz", "x-azure", "x-appengine", "x-cloud-trace", "x-goog",
		"x-haproxy", "x-traefik", "x-tunnel", "cf-", "fly-", "x-vercel", "x-netlify", "x-ms-",
	}
)

func passedProxy(h http.Header) bool {
	for name := range h {
		name = strings.ToLower(name)
		if slices.Contains(proxyHeaders, name) {
			return true
		}
		for _, prefix := range proxyPrefixes {
			if strings.HasPrefix(name, prefix) {
				return true
			}
		}
	}
	return false
}

// FromOtherSite reports whether a page of another origin sent the browser here.
func FromOtherSite(r *http.Request) bool {
	site := r.Header.Get("Sec-Fetch-Site")
	return site != "" && site != "none" && site != "same-origin"
}
