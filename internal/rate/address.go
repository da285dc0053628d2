package rate

import "net/netip"

// AddressKey returns the key by which an address is limited: the /64 of IPv6, which one client
// owns.
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

// NetworkKey returns the network of an address that one party may own as a whole: the /24 of IPv4,
// the /48 of IPv6.
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
