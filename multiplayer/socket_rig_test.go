package multiplayer_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/gorilla/websocket"

	"github.com/kitbackend/kit"
	"github.com/kitbackend/kit/auth"
	"github.com/kitbackend/kit/kittest"
	"github.com/kitbackend/kit/multiplayer"
)

// tallyRules configure the game of these tests: players add to a sum until it reaches the goal.
// Each player has a secret, and the padding changes with every action.
type tallyRules struct {
	Goal int `json:"goal"`
	Pad  int `json:"pad"`
	// Plain leaves the secrets out.
	Plain bool `json:"plain,omitempty"`
}

type tally struct {
	Sum     int               `json:"sum"`
	Secrets map[string]string `json:"secrets"`
	Pad     string            `json:"pad"`
}

type tallyContext = multiplayer.Context[tallyRules]

func secretOf(c tallyContext, player string) string {
	return fmt.Sprintf("canary-%s-%d", player, c.Random.Int(1e9, 9e9))
}

func tallyModel() multiplayer.Model {
	return multiplayer.Define(multiplayer.Definition[tallyRules, tally]{
		Kind: "tally",
		Init: func(c tallyContext) (tally, []multiplayer.Effect, error) {
			s := tally{Secrets: map[string]string{}}
			for _, p := range c.Players {
				if !c.Config.Plain {
					s.Secrets[p] = secretOf(c, p)
				}
			}
			return s, nil, nil
		},
		Apply: func(c tallyContext, s tally, m multiplayer.Move) (tally, []multiplayer.Effect, error) {
			var a struct {
				Add int `json:"add"`
			}
			if err := m.Decode(&a); err != nil {
				return s, nil, err
			}
			if a.Add < 1 {
				return s, nil, multiplayer.Illegal("Add at least 1.")
			}
			s.Sum += a.Add
			s.Pad = strings.Repeat(fmt.Sprint(s.Sum%10), c.Config.Pad)
			return s, nil, nil
		},
		IsComplete: func(c tallyContext, s tally) bool { return s.Sum >= c.Config.Goal },
		Resolve: func(c tallyContext, _ tally) multiplayer.Outcome {
			return multiplayer.Outcome{Ranks: map[string]int{c.Players[0]: 1}}
		},
		Redact: func(_ tallyContext, s tally, viewer string, revealed bool) any {
			if !revealed {
				s.Secrets = map[string]string{viewer: s.Secrets[viewer]}
			}
			return s
		},
		OnJoin: func(c tallyContext, s tally, player string) (tally, []multiplayer.Effect, error) {
			s.Secrets[player] = secretOf(c, player)
			return s, nil, nil
		},
		OnLeave: func(_ tallyContext, s tally, player string) (tally, []multiplayer.Effect, error) {
			delete(s.Secrets, player)
			return s, nil, nil
		},
	})
}

// served is a kit of these tests on a real server.
type served struct {
	*kittest.Kit
	t      testing.TB
	server *httptest.Server
}

func newServed(t testing.TB, opts ...kit.Option) *served {
	t.Helper()
	var handler http.Handler
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { handler.ServeHTTP(w, r) }))
	t.Cleanup(server.Close)
	rules := func(goal, pad int) tallyRules { return tallyRules{Goal: goal, Pad: pad} }
	k := kittest.New(t, append([]kit.Option{
		kit.WithBaseURL(server.URL),
		kit.WithAuth(auth.Config{}),
		kit.WithMultiplayer(multiplayer.Config{Models: []multiplayer.Model{tallyModel()}, Games: []multiplayer.Game{
			{Key: "pair", Kind: "tally", Rules: rules(10, 0)},
			{Key: "table", Kind: "tally", Mode: multiplayer.ModeTable, Players: 64, Rules: rules(1e9, 0)},
			{Key: "endless", Kind: "tally", Rules: rules(1e9, 0)},
			{Key: "fast", Kind: "tally", Rules: rules(1e9, 0), FramesPerSecond: 60},
			{Key: "plain-hall", Kind: "tally", Mode: multiplayer.ModeTable, Players: 1000, Rules: tallyRules{Goal: 1e9, Plain: true}},
			{Key: "hall", Kind: "tally", Mode: multiplayer.ModeTable, Players: 1000, Rules: rules(1e9, 0)},
			{Key: "heavy", Kind: "tally", Rules: rules(1e9, 200_000)},
		}}),
	}, opts...)...)
	handler = k
	return &served{k, t, server}
}

// wsClient is a player's socket.
type wsClient struct {
	*websocket.Conn
	t    testing.TB
	name string
	raw  [][]byte // every frame received
	// view is the view as changed by the patches.
	view    any
	version int64
}

// wsFrame is what a server sends.
type wsFrame struct {
	Type      string
	V         int
	SessionID string
	You       string
	Version   int64
	Resume    bool
	ID, Code  string
	From, To  int64
	View      any
	Ops       []struct {
		Op, Path string
		Value    any
	}
	Phase        multiplayer.Phase
	Result       *multiplayer.Result
	RetryAfterMs int64
}

func (n *served) token(user string) string {
	n.t.Helper()
	ctx := context.Background()
	if err := n.Auth().EnsureUser(ctx, user); err != nil {
		n.t.Fatal(err)
	}
	token, err := n.Auth().IssueToken(ctx, user, nil, time.Minute)
	if err != nil {
		n.t.Fatal(err)
	}
	return token
}

// try opens a socket, or returns the refusal.
func (n *served) try(user, session string, header http.Header) (*wsClient, int, string) {
	n.t.Helper()
	dialer := websocket.Dialer{Subprotocols: []string{"kit.v1"}}
	if header == nil {
		dialer.Subprotocols = append(dialer.Subprotocols, "kit.bearer."+n.token(user))
	}
	ws, response, err := dialer.Dial(strings.Replace(n.server.URL, "http", "ws", 1)+"/multiplayer/sessions/"+session+"/socket", header)
	if response == nil {
		n.t.Fatal(err)
	}
	defer response.Body.Close()
	if err != nil {
		var body struct{ Error struct{ Code string } }
		_ = json.NewDecoder(response.Body).Decode(&body)
		return nil, response.StatusCode, body.Error.Code
	}
	n.t.Cleanup(func() { _ = ws.Close() })
	_ = ws.SetReadDeadline(time.Now().Add(time.Minute)) // so that a test that waits in vain ends
	return &wsClient{Conn: ws, t: n.t, name: user}, response.StatusCode, ""
}

func (n *served) dial(user, session string) *wsClient {
	n.t.Helper()
	c, status, code := n.try(user, session, nil)
	if c == nil {
		n.t.Fatalf("%s: %d %s", user, status, code)
	}
	if c.Subprotocol() != "kit.v1" {
		n.t.Errorf("subprotocol %q", c.Subprotocol())
	}
	if hello := c.next(); hello.Type != "hello" || hello.V != 1 || hello.SessionID != session || hello.You != user || hello.Version < 1 {
		n.t.Fatalf("%+v", hello)
	}
	return c
}

// start begins a session of a game with these players.
func (n *served) start(game string, players ...string) string {
	n.t.Helper()
	g, err := n.Multiplayer().Game(game)
	if err != nil {
		n.t.Fatal(err)
	}
	s, err := n.Multiplayer().Start(context.Background(), multiplayer.Start{Game: g, Players: players})
	if err != nil {
		n.t.Fatal(err)
	}
	return s.ID
}

// next reads a frame and updates the view.
func (c *wsClient) next() wsFrame {
	c.t.Helper()
	kind, raw, err := c.ReadMessage()
	if err != nil {
		c.t.Fatalf("%s: %v", c.name, err)
	}
	c.raw = append(c.raw, raw)
	var f wsFrame
	if err := json.Unmarshal(raw, &f); err != nil || kind != websocket.TextMessage {
		c.t.Fatalf("%s: %d %s: %v", c.name, kind, raw, err)
	}
	switch f.Type {
	case "view":
		c.view, c.version = f.View, f.Version
	case "patch":
		if f.From != c.version || f.To <= f.From {
			c.t.Fatalf("a patch from %d to %d on %d", f.From, f.To, c.version)
		}
		for _, op := range f.Ops {
			c.view = patchedView(c.t, c.view, op.Op, op.Path, op.Value)
		}
		c.version = f.To
	}
	return f
}

// patchedView applies an operation to a view of objects, arrays and plain values.
func patchedView(t testing.TB, node any, op, path string, value any) any {
	t.Helper()
	if path == "" {
		return value
	}
	name, rest, deeper := strings.Cut(path[1:], "/")
	switch n := node.(type) {
	case map[string]any:
		switch {
		case deeper:
			n[name] = patchedView(t, n[name], op, "/"+rest, value)
		case op == "remove":
			delete(n, name)
		default:
			n[name] = value
		}
		return n
	case []any:
		var i int
		if _, err := fmt.Sscan(name, &i); err != nil {
			t.Fatal(err)
		}
		switch {
		case deeper:
			n[i] = patchedView(t, n[i], op, "/"+rest, value)
		case op == "remove":
			return slices.Delete(n, i, i+1)
		case op == "add":
			return slices.Insert(n, i, value)
		default:
			n[i] = value
		}
		return n
	}
	t.Fatalf("%s of %s in %v", op, path, node)
	return nil
}

// until reads frames up to one that is wanted.
func (c *wsClient) until(wanted func(wsFrame) bool) wsFrame {
	c.t.Helper()
	for {
		if f := c.next(); wanted(f) {
			return f
		}
	}
}

func (c *wsClient) reply(id string) wsFrame {
	c.t.Helper()
	return c.until(func(f wsFrame) bool { return f.ID == id })
}

// reach reads until the view has come to a version.
func (c *wsClient) reach(version int64) {
	c.t.Helper()
	for c.version < version {
		c.next()
	}
}

func (c *wsClient) say(format string, args ...any) {
	c.t.Helper()
	if err := c.WriteMessage(websocket.TextMessage, fmt.Appendf(nil, format, args...)); err != nil {
		c.t.Fatal(err)
	}
}

// closed reads to the end and returns the close code and reason.
func (c *wsClient) closed() (int, string) {
	c.t.Helper()
	for {
		_, raw, err := c.ReadMessage()
		if end := new(websocket.CloseError); errors.As(err, &end) {
			return end.Code, end.Text
		}
		if err != nil {
			return 0, err.Error()
		}
		c.raw = append(c.raw, raw)
	}
}

// same checks that a client's view equals the response of the route at the same version.
func (n *served) same(c *wsClient, session string) {
	n.t.Helper()
	var want any
	n.User(c.name).Get("/multiplayer/sessions/"+session).Want(200, "").JSON(&want)
	if diff := cmp.Diff(want, c.view); diff != "" {
		n.t.Errorf("%s: %s", c.name, diff)
	}
}
