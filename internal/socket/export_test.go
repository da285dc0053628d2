package socket

// Users returns how many users hold a socket on this node, and how many sockets.
func (g *Group) Users() (users, sockets int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.users), g.open
}
