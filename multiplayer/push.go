package multiplayer

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"sync"
	"time"

	"github.com/kitbackend/kit/internal/socket"
)

// lookAgain is how often a session with sockets is read without a hint, in case a hint was lost.
const lookAgain = 30 * time.Second

// lookTime is the timeout of such a read.
const lookTime = 5 * time.Second

// hub holds the sockets of this node and refreshes them when their sessions change.
type hub struct {
	m     *Multiplayer
	group *socket.Group

	mu     sync.Mutex
	tables map[string]*table
}

// table is a session that has sockets on this node.
type table struct {
	id     string
	cancel func() // ends the subscription
	look   *time.Timer

	mu    sync.Mutex
	seats map[*seat]struct{}
	// version is the newest version known to this node.
	version int64
	// patches holds the last patches made, next is the index of the next one.
	patches [4]sharedPatch
	next    int
}

// sharedPatch changes one view into a later one. Players who see the same share it: two views of a
// session at one version differ only in State and You.
type sharedPatch struct {
	from, to      int64
	before, after json.RawMessage
	frame         json.RawMessage
}

// change returns the frame that changes one view into a later one. If the patch is shared, the
// later view then shares its state with the views of other players.
func (t *table) change(last, v *View) any {
	t.mu.Lock()
	for _, known := range t.patches {
		if known.from == last.Version && known.to == v.Version &&
			bytes.Equal(known.before, last.State) && bytes.Equal(known.after, v.State) {
			v.State = known.after
			t.mu.Unlock()
			return known.frame
		}
	}
	t.mu.Unlock()
	frame := shorter(last, v)
	if patch, ok := frame.(json.RawMessage); ok {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.patches[t.next] = sharedPatch{last.Version, v.Version, last.State, v.State, patch}
		t.next = (t.next + 1) % len(t.patches)
	}
	return frame
}

func newHub(m *Multiplayer) *hub {
	return &hub{m: m, group: socket.NewGroup(socket.Options{Log: m.log}), tables: make(map[string]*table)}
}

// enter adds a socket; the first one of a session subscribes to it.
func (h *hub) enter(p *seat) {
	h.mu.Lock()
	defer h.mu.Unlock()
	t := h.tables[p.sessionID]
	if t == nil {
		t = &table{id: p.sessionID, seats: make(map[*seat]struct{})}
		t.cancel = h.m.Subscribe(t.id, func(version int64) {
			if version == 0 || version > t.newest() {
				h.heard(t, version)
			}
		})
		t.look = time.AfterFunc(lookAgain, func() { h.heard(t, 0) })
		h.tables[t.id] = t
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.seats[p] = struct{}{}
	t.version = max(t.version, p.version)
	p.table = t
}

func (h *hub) leave(p *seat) {
	t := p.table
	if t == nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	t.mu.Lock()
	defer t.mu.Unlock()
	if delete(t.seats, p); len(t.seats) == 0 {
		delete(h.tables, t.id)
		t.cancel()
		t.look.Stop()
	}
}

// newest returns the newest known version, which a view must not be older than.
func (t *table) newest() int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.version
}

// fewSeats is how many sockets an action refreshes itself; more are refreshed by the subscription,
// so that the action does not wait for them.
const fewSeats = 8

// told is heard for a version that this node has just written.
func (h *hub) told(id string, version int64) {
	h.mu.Lock()
	t := h.tables[id]
	h.mu.Unlock()
	if t != nil && t.few() {
		h.heard(t, version)
	}
}

func (t *table) few() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.seats) <= fewSeats
}

// heard refreshes the sockets of a session that are behind a version. For version 0 it first reads
// the newest version, and closes the sockets if the session no longer exists.
func (h *hub) heard(t *table, version int64) {
	if version == 0 {
		newest, err := h.read(t)
		if err == nil && newest == 0 {
			t.close()
			return
		}
		version = newest
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.seats) == 0 {
		return
	}
	t.version = max(t.version, version)
	t.look.Reset(lookAgain)
	for p := range t.seats {
		if p.sent.Load() < t.version && !p.acting.Load() {
			p.conn.Refresh()
		}
	}
}

// close ends the sockets of a session that has been removed.
func (t *table) close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for p := range t.seats {
		p.conn.Close(socket.NotMember, ErrSessionNotFound.Code)
	}
}

func (h *hub) read(t *table) (int64, error) {
	ctx, cancel := context.WithTimeout(context.Background(), lookTime)
	defer cancel()
	version, err := h.m.store.version(ctx, t.id)
	if err != nil {
		h.m.log.Warn("multiplayer: a session could not be read for its sockets", slog.String("session", t.id), slog.Any("error", err))
	}
	return version, err
}

// close asks all clients to reconnect, to another node.
func (h *hub) close(ctx context.Context) error { return h.group.Close(ctx) }
