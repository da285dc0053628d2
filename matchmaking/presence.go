package matchmaking

import (
	"context"
	"encoding/json"
	"hash/maphash"
	"slices"
	"sync"
	"time"

	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/internal/id"
	"github.com/kitbackend/kit/internal/socket"
)

const (
	// nodeLease is how long a node counts as alive after it renewed its lease.
	nodeLease = 15 * time.Second
	renewLead = 10 * time.Second // how long before its end it is due for renewal
	// lingering is how long a user stays online after the last socket has closed, so that a user
	// who reconnects does not flicker.
	lingering = 10 * time.Second
	// tickEvery is how often leases and lingering users are checked.
	tickEvery = time.Second
	// stripes is how many users can come or go at the same time.
	stripes = 64
	// presenceBatch is how many users one query is about.
	presenceBatch = 200
)

// presence is the sockets of this node, and the rows that make its users visible to other nodes.
type presence struct {
	m       *Matchmaking
	node    string
	sockets *socket.Group
	seed    maphash.Seed
	edges   [stripes]sync.Mutex // serialize the coming and going of a user

	begin  sync.Once
	ctx    context.Context // of the background goroutines
	cancel context.CancelFunc
	work   sync.WaitGroup

	mu      sync.Mutex
	here    map[string]time.Time // users with a row, and when the row is removed, zero while connected
	renewAt time.Time
	closed  bool
	syncing bool
}

func newPresence(m *Matchmaking) *presence {
	p := &presence{
		m: m, node: id.New(m.host.Now()), sockets: socket.NewGroup(socket.Options{Log: m.host.Log}),
		seed: maphash.MakeSeed(), here: make(map[string]time.Time),
	}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	return p
}

// accept upgrades a request of the user that the guard verified. The first one registers this node.
func (p *presence) accept(c *capability.Call) error {
	p.begin.Do(func() {
		unlisten := p.m.host.PubSub.Subscribe(topic, p.receive)
		p.tick(p.ctx)
		p.background(func() { p.run(unlisten) })
	})
	return p.sockets.Accept(c, socket.Handler{Opened: p.opened, Closed: p.left})
}

// background runs f in a goroutine that close waits for.
func (p *presence) background(f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.closed {
		p.work.Go(f)
	}
}

func (p *presence) run(unlisten func()) {
	defer unlisten()
	ticker := time.NewTicker(tickEvery)
	defer ticker.Stop()
	for {
		select {
		case <-p.ctx.Done():
			return
		case <-ticker.C:
			p.tick(p.ctx)
		}
	}
}

// tick renews the lease when it is due, and takes users offline whose lingering time is over.
func (p *presence) tick(ctx context.Context) {
	now := p.m.host.Now()
	p.mu.Lock()
	due := !now.Before(p.renewAt) || p.renewAt.Sub(now) > nodeLease // the clock went back
	p.mu.Unlock()
	if due {
		if err := p.renew(ctx, now); err != nil {
			p.warn(ctx, "this node's lease was not renewed", err)
			return
		}
	}
	if err := p.letGo(ctx, now); err != nil {
		p.warn(ctx, "who has gone is still shown as online", err)
	}
}

func (p *presence) warn(ctx context.Context, what string, err error) {
	if ctx.Err() == nil {
		p.m.host.Log.WarnContext(ctx, "matchmaking: "+what, "error", err)
	}
}

// renew extends the lease and removes dead nodes. A node that was itself removed as dead restores
// the rows of its users.
func (p *presence) renew(ctx context.Context, now time.Time) error {
	there, err := p.m.store.renewNode(ctx, p.node, now.Add(nodeLease).UnixMilli())
	if err != nil {
		return err
	}
	if !there {
		p.mu.Lock()
		users := make([]string, 0, len(p.here))
		for user := range p.here {
			users = append(users, user)
		}
		p.mu.Unlock()
		if err := p.m.store.arriveAll(ctx, p.node, users); err != nil {
			return err
		}
		if err := p.m.back(ctx, users); err != nil {
			return err
		}
	}
	p.mu.Lock()
	p.renewAt = now.Add(nodeLease - renewLead)
	p.mu.Unlock()
	return p.m.buryNodes(ctx)
}

// buryNodes removes nodes whose lease has ended, and notifies the friends of their users.
func (m *Matchmaking) buryNodes(ctx context.Context) error {
	var users []string
	err := m.host.DB.InTx(ctx, func(ctx context.Context) (err error) {
		users, err = m.store.deleteDeadNodes(ctx, m.now(ctx))
		return err
	})
	if err != nil {
		return err
	}
	return m.gone(ctx, users)
}

// gone notifies the friends of users who no longer have a socket anywhere.
func (m *Matchmaking) gone(ctx context.Context, users []string) error {
	now := m.now(ctx)
	for some := range slices.Chunk(users, presenceBatch) {
		still, err := m.store.online(ctx, now, some...)
		if err != nil {
			return err
		}
		some = slices.DeleteFunc(some, func(user string) bool { return slices.Contains(still, user) })
		if err := m.tellFriends(ctx, some, false); err != nil {
			return err
		}
	}
	return nil
}

// back notifies the friends of users who were wrongly shown as offline that they are online.
func (m *Matchmaking) back(ctx context.Context, users []string) error {
	for some := range slices.Chunk(users, presenceBatch) {
		if err := m.tellFriends(ctx, some, true); err != nil {
			return err
		}
	}
	return nil
}

// tellFriends notifies the online friends of some users that these are online or offline.
func (m *Matchmaking) tellFriends(ctx context.Context, users []string, online bool) error {
	pairs, err := m.store.friendsOnline(ctx, m.now(ctx), users)
	if err != nil {
		return err
	}
	for user, friendIDs := range pairs {
		event := friends(nil, []string{user})
		if online {
			event = friends([]string{user}, nil)
		}
		m.push(ctx, event, friendIDs...)
	}
	return nil
}

func (p *presence) edge(userID string) *sync.Mutex {
	return &p.edges[maphash.String(p.seed, userID)%stripes]
}

// opened takes a user online with the first socket, and sends the new socket the user's news.
func (p *presence) opened(c *socket.Conn) {
	ctx, userID := c.Context(), c.Caller().UserID
	first, err := p.arrive(ctx, userID)
	if err == nil {
		err = p.greet(ctx, c, first)
	}
	if err != nil {
		c.Refuse("", err)
		c.Close(socket.Restart, `{"retryAfterMs":1000}`)
	}
}

// arrive writes the row of a user who has none on this node, and reports whether the user was
// offline everywhere.
func (p *presence) arrive(ctx context.Context, userID string) (first bool, err error) {
	edge := p.edge(userID)
	edge.Lock()
	defer edge.Unlock()
	p.mu.Lock()
	_, here := p.here[userID]
	if here {
		p.here[userID] = time.Time{}
	}
	p.mu.Unlock()
	if here {
		return false, nil
	}
	// If a user connects to two nodes at once, at least one of them looks before the row of the
	// other one is written, and so reports first. The second look covers a user who leaves the
	// other node meanwhile: that node either finds the row of this one, or has removed its own.
	elsewhere, err := p.m.store.isElsewhere(ctx, p.m.now(ctx), p.node, userID)
	if err != nil {
		return false, err
	}
	if err := p.m.store.arrive(ctx, p.node, userID); err != nil {
		return false, err
	}
	p.mu.Lock()
	p.here[userID] = time.Time{}
	p.mu.Unlock()
	if elsewhere {
		elsewhere, err = p.m.store.isElsewhere(ctx, p.m.now(ctx), p.node, userID)
	}
	return !elsewhere, err
}

// greet sends the news to a new socket, and notifies the friends if it is the user's first one.
func (p *presence) greet(ctx context.Context, c *socket.Conn, first bool) error {
	userID := c.Caller().UserID
	news, err := p.news(ctx, []string{userID})
	if err != nil {
		return err
	}
	news.send(c)
	if first {
		p.m.push(ctx, friends([]string{userID}, nil), news.friends[userID]...)
	}
	return nil
}

// news is the state that a new socket is sent: the friends who are online, and the open invites.
type news struct {
	friends map[string][]string
	invites map[string][]Invite
}

func (p *presence) news(ctx context.Context, users []string) (n news, err error) {
	now := p.m.now(ctx)
	if n.friends, err = p.m.store.friendsOnline(ctx, now, users); err != nil {
		return n, err
	}
	n.invites, err = p.m.store.invitesFor(ctx, now, users)
	return n, err
}

func (n news) send(c *socket.Conn) {
	userID := c.Caller().UserID
	frames := []any{friends(n.friends[userID], nil)}
	for _, v := range n.invites[userID] {
		frames = append(frames, invited{"invite", v.ID, v.GameKey, v.From})
	}
	c.SendAll(frames...)
}

// left records when the last socket of a user has closed.
func (p *presence) left(c *socket.Conn) {
	userID := c.Caller().UserID
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, here := p.here[userID]; here && len(p.sockets.Of(userID)) == 0 {
		p.here[userID] = p.m.host.Now().Add(lingering)
	}
}

// letGo removes the rows of users whose lingering time is over, stripe by stripe.
func (p *presence) letGo(ctx context.Context, now time.Time) error {
	due := make(map[*sync.Mutex][]string)
	p.mu.Lock()
	for userID, at := range p.here {
		if !at.IsZero() && (!now.Before(at) || at.Sub(now) > lingering) {
			edge := p.edge(userID)
			due[edge] = append(due[edge], userID)
		}
	}
	p.mu.Unlock()
	for edge, users := range due {
		if err := p.leave(ctx, edge, users); err != nil {
			return err
		}
	}
	return nil
}

// leave takes those users offline who have not reconnected meanwhile.
func (p *presence) leave(ctx context.Context, edge *sync.Mutex, users []string) error {
	edge.Lock()
	defer edge.Unlock()
	p.mu.Lock()
	users = slices.DeleteFunc(users, func(userID string) bool { return p.here[userID].IsZero() || len(p.sockets.Of(userID)) > 0 })
	p.mu.Unlock()
	if err := p.m.store.depart(ctx, p.node, users); err != nil {
		return err
	}
	p.mu.Lock()
	for _, userID := range users {
		delete(p.here, userID)
	}
	p.mu.Unlock()
	return p.m.gone(ctx, users)
}

// receive sends an event to the sockets of its receivers. After a loss of events, a nil payload, it
// sends all users their news again.
func (p *presence) receive(payload []byte) {
	if payload == nil {
		p.resync()
		return
	}
	var h hint
	if err := json.Unmarshal(payload, &h); err != nil {
		p.warn(context.Background(), "an event is not readable", err)
		return
	}
	for _, userID := range h.To {
		for _, c := range p.sockets.Of(userID) {
			c.Send(h.Event)
		}
	}
}

// resync sends all users of this node their news again, concurrently with new events.
func (p *presence) resync() {
	p.mu.Lock()
	busy := p.syncing
	p.syncing = true
	users := make([]string, 0, len(p.here))
	for userID := range p.here {
		users = append(users, userID)
	}
	p.mu.Unlock()
	if busy {
		return
	}
	p.background(func() {
		for some := range slices.Chunk(users, presenceBatch) {
			if err := p.tellAgain(p.ctx, some); err != nil {
				p.warn(p.ctx, "users were not told again what waits for them", err)
				break
			}
		}
		p.mu.Lock()
		p.syncing = false
		p.mu.Unlock()
	})
}

func (p *presence) tellAgain(ctx context.Context, users []string) error {
	news, err := p.news(ctx, users)
	if err != nil {
		return err
	}
	for _, userID := range users {
		for _, c := range p.sockets.Of(userID) {
			news.send(c)
		}
	}
	return nil
}

// close asks all clients to reconnect, to another node. The rows stay until the lease ends, so that
// a user who reconnects in time never was offline.
func (p *presence) close(ctx context.Context) error {
	p.begin.Do(func() {}) // no accept after this starts the background goroutine
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	err := p.sockets.Close(ctx)
	p.cancel()
	p.work.Wait()
	return err
}

// Online returns which of the users have a presence socket.
func (m *Matchmaking) Online(ctx context.Context, userIDs ...string) ([]string, error) {
	return m.store.online(ctx, m.now(ctx), userIDs...)
}
