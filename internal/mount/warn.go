package mount

import "strings"

// maxMisplaced bounds how many leading segments of a path are tried as a prefix.
const maxMisplaced = 4

// warnForwarded warns once of a proxy that WithTrustedProxies does not name.
func (m *Mount) warnForwarded(peer string) {
	m.forwardedOnce.Do(func() {
		m.Log.Warn("X-Forwarded-For came from a peer that is no trusted proxy: it is not believed, and all its clients "+
			"count as one; if it is your proxy, name its network with WithTrustedProxies", "peer", peer)
	})
}

// warnMisplaced warns once that the application mounts the kit under another path than the base
// URL's: the path is one of the table's behind another prefix.
func (m *Mount) warnMisplaced(path string) {
	rest := path
	for range maxMisplaced {
		next := strings.IndexByte(strings.TrimPrefix(rest, "/"), '/')
		if next < 0 {
			return
		}
		rest = rest[next+1:]
		if !m.paths.Has(rest) {
			continue
		}
		prefix := strings.TrimSuffix(path, rest)
		m.misplaceOnce.Do(func() {
			m.Log.Warn("a request matches a route of the kit behind another prefix than the base URL's: mount the kit there, "+
				"or end the address of WithBaseURL with the prefix", "prefix", prefix, "baseURL", m.BaseURL.String())
		})
		return
	}
}
