package multiplayer

// Warm answers how many sessions this node has at hand.
func (m *Multiplayer) Warm() int {
	m.owners.mu.Lock()
	defer m.owners.mu.Unlock()
	return len(m.owners.warm)
}

// Waiting answers how many callers of a session wait.
func (m *Multiplayer) Waiting(id string) int {
	o := m.owners.of(id)
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.queue)
}

// Busy answers how many sessions of this node are under way.
func (m *Multiplayer) Busy() (n int) {
	m.owners.mu.Lock()
	defer m.owners.mu.Unlock()
	for _, o := range m.owners.warm {
		o.mu.Lock()
		if o.serving && len(o.queue) == 0 {
			n++
		}
		o.mu.Unlock()
	}
	return n
}
