package rate

import "net/netip"

// AddressKey is the unit an address is limited by: an IPv6 client owns its /64.
func AddressKey(ip string) string {
	addr, err := netip.ParseAddr(ip)
	if err != nil {
		return ip
	}
	if addr = addr.Unmap(); addr.Is4() {
		return addr.String()
	}
	prefix, err := addr.Prefix(64)
	if err != nil {
		return ip
	}
	return prefix.String()
}

// NetworkKey is the network that an address is in, which one party may have the
// whole of: /24 of IPv4, /48 of IPv6.
func NetworkKey(ip string) string {
	addr, err := netip.ParseAddr(ip)
	if err != nil {
		return ip
	}
	bits := 48
	if addr = addr.Unmap(); addr.Is4() {
		bits = 24
	}
	prefix, err := addr.Prefix(bits)
	if err != nil {
		return ip
	}
	return prefix.String()
}
