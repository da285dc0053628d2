package bench

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"github.com/kitbackend/kit"
	"github.com/kitbackend/kit/auth"
	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/database/databasetest"
	"github.com/kitbackend/kit/internal/processor"
	"github.com/kitbackend/kit/multiplayer"
)

const rooms = 50

// BenchmarkRooms plays fifty rooms of two players over real sockets: each player responds to the
// other's move as soon as it arrives. The players are a separate process, so that the processor
// time is the server's. "full" runs as fast as possible, "paced" makes 1,900 moves a second; the
// time is from a move to its durable acknowledgement.
func BenchmarkRooms(b *testing.B) {
	for _, on := range []struct {
		name string
		open func() *database.DB
	}{
		{"memory", func() *database.DB {
			db, err := database.OpenMemory()
			if err != nil {
				b.Fatal(err)
			}
			b.Cleanup(func() { _ = db.Close() })
			return db
		}},
		{"file", func() *database.DB { return databasetest.File(b) }},
		{"postgres", func() *database.DB { return databasetest.Postgres(b) }},
	} {
		for _, pace := range []struct {
			name  string
			every time.Duration // of one room
		}{{"full", 0}, {"paced", rooms * time.Second / 1900}} {
			b.Run(on.name+"/"+pace.name, func(b *testing.B) { playRooms(b, on.open(), pace.every) })
		}
	}
}

// played is the final report of the players' process.
type played struct {
	Moves    int           `json:"moves"`
	Took     time.Duration `json:"took"`
	P50, P99 time.Duration
	Spent    time.Duration
}

func playRooms(b *testing.B, db *database.DB, every time.Duration) {
	var handler http.Handler
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { handler.ServeHTTP(w, r) }))
	b.Cleanup(server.Close)
	k := compose(b, kit.WithBaseURL(server.URL), kit.WithEnvironment("test"), kit.WithAuth(auth.Config{}),
		kit.WithDatabase(db), kit.WithLogger(slog.New(slog.DiscardHandler)),
		kit.WithMultiplayer(multiplayer.Config{Models: []multiplayer.Model{rally}, Games: []multiplayer.Game{rallies}}))
	handler = k
	ctx := context.Background()
	var told strings.Builder
	fmt.Fprintf(&told, "%d %d\n", b.N, every)
	for i := range rooms {
		players := []string{fmt.Sprintf("left-%d", i), fmt.Sprintf("right-%d", i)}
		for _, p := range players {
			if err := k.Auth().EnsureUser(ctx, p); err != nil {
				b.Fatal(err)
			}
		}
		s, err := k.Multiplayer().Start(ctx, multiplayer.Start{Game: rallies, Players: players})
		if err != nil {
			b.Fatal(err)
		}
		for _, p := range players {
			fmt.Fprintf(&told, "%s %s %s\n", server.URL, s.ID, token(b, k, p))
		}
	}
	cmd := exec.CommandContext(b.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), asPlayers+"=1")
	cmd.Stdin, cmd.Stderr = strings.NewReader(told.String()), os.Stderr
	pipe, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		b.Fatal(err)
	}
	out := bufio.NewReader(pipe)
	if line, err := out.ReadString('\n'); err != nil || line != "ready\n" {
		b.Fatal(line, err)
	}
	b.ResetTimer()
	before := processor.Spent()
	var end played
	if err := json.NewDecoder(out).Decode(&end); err != nil {
		b.Fatal(err)
	}
	used := processor.Spent() - before
	b.StopTimer()
	_ = cmd.Wait()
	per := 10_000 / float64(end.Moves)
	b.ReportMetric(float64(end.Moves)/end.Took.Seconds(), "moves/s")
	b.ReportMetric(used.Seconds()*per, "cpu-s/10000")
	b.ReportMetric(end.Spent.Seconds()*per, "players-cpu-s/10000")
	b.ReportMetric(float64(end.P50.Microseconds())/1000, "p50-ms")
	b.ReportMetric(float64(end.P99.Microseconds())/1000, "p99-ms")
}

// rallyState is the state of the game of the rooms: a ball goes to and fro, and each player has a
// hand that is hidden from the other.
type rallyState struct {
	Strokes int               `json:"strokes"`
	Turn    string            `json:"turn"`
	X       float64           `json:"x"`
	Y       float64           `json:"y"`
	Hands   map[string]string `json:"hands"`
}

type rallyRules struct {
	Court int `json:"court"`
}

type stroke struct {
	X float64 `json:"x"`
	Y float64 `json:"y"`
}

var rallies = multiplayer.Game{Key: "rally", Kind: "rally", Rules: rallyRules{Court: 100}, TurnTimeout: time.Minute,
	FramesPerSecond: multiplayer.MaxFramesPerSecond}

var rally = multiplayer.Define(multiplayer.Definition[rallyRules, rallyState]{
	Kind: "rally",
	Init: func(c multiplayer.Context[rallyRules]) (rallyState, []multiplayer.Effect, error) {
		s := rallyState{Turn: c.Players[0], Hands: map[string]string{}}
		for _, p := range c.Players {
			s.Hands[p] = fmt.Sprint(c.Random.Int(1, 1e9))
		}
		return s, nil, nil
	},
	Apply: func(c multiplayer.Context[rallyRules], s rallyState, m multiplayer.Move) (rallyState, []multiplayer.Effect, error) {
		var to stroke
		if err := m.Decode(&to); err != nil {
			return s, nil, err
		}
		if m.UserID != s.Turn {
			return s, nil, multiplayer.Illegal("It is not your turn.")
		}
		if court := float64(c.Config.Court); to.X < 0 || to.X > court || to.Y < 0 || to.Y > court {
			return s, nil, multiplayer.Illegal("That is out.")
		}
		s.Strokes, s.X, s.Y = s.Strokes+1, to.X, to.Y
		s.Turn = c.Players[0]
		if m.UserID == s.Turn {
			s.Turn = c.Players[1]
		}
		return s, nil, nil
	},
	IsComplete: func(multiplayer.Context[rallyRules], rallyState) bool { return false },
	Resolve:    func(multiplayer.Context[rallyRules], rallyState) multiplayer.Outcome { return multiplayer.Outcome{} },
	Redact: func(_ multiplayer.Context[rallyRules], s rallyState, viewer string, _ bool) any {
		s.Hands = map[string]string{viewer: s.Hands[viewer]}
		return s
	},
})

const asPlayers = "KIT_BENCH_PLAYERS"

// TestMain makes this binary the players of [BenchmarkRooms].
func TestMain(m *testing.M) {
	if os.Getenv(asPlayers) != "" {
		playAll(os.Stdin)
		return
	}
	os.Exit(m.Run())
}

// player is one socket with its measurements.
type player struct {
	ws    *websocket.Conn
	took  []time.Duration
	every time.Duration
	// after staggers the rooms, as players do not move in step.
	after time.Duration
	// strokes is the number of strokes left in the room, including those of the other player; over
	// reports that the game has ended.
	strokes int
	first   bool
	version int // the latest of a frame, which may arrive before an acknowledgement
}

func playAll(told io.Reader) {
	lines := bufio.NewScanner(told)
	lines.Scan()
	var moves, every int
	_, _ = fmt.Sscan(lines.Text(), &moves, &every)
	var all []*player
	for lines.Scan() {
		part := strings.Fields(lines.Text())
		dialer := websocket.Dialer{Subprotocols: []string{"kit.v1", "kit.bearer." + part[2]}}
		ws, _, err := dialer.Dial(strings.Replace(part[0], "http", "ws", 1)+"/multiplayer/sessions/"+part[1]+"/socket", nil) //nolint:bodyclose // a handshake has none
		if err != nil {
			log.Fatal(err)
		}
		room := time.Duration(len(all) / 2)
		all = append(all, &player{ws: ws, every: time.Duration(every), after: room * time.Duration(every) / rooms,
			strokes: max(moves/rooms, 2), first: len(all)%2 == 0})
	}
	for _, p := range all {
		p.until(`"view"`)
	}
	fmt.Println("ready")
	start, before := time.Now(), processor.Spent()
	var group sync.WaitGroup
	for _, p := range all {
		group.Go(p.play)
	}
	group.Wait()
	end := played{Took: time.Since(start), Spent: processor.Spent() - before}
	var took []time.Duration
	for _, p := range all {
		took = append(took, p.took...)
	}
	slices.Sort(took)
	end.Moves, end.P50, end.P99 = len(took), took[len(took)/2], took[len(took)*99/100]
	if err := json.NewEncoder(os.Stdout).Encode(end); err != nil {
		log.Fatal(err)
	}
}

// until reads up to a frame that contains a text.
func (p *player) until(text string) {
	for !bytes.Contains(p.read(), []byte(text)) {
	}
}

// reach reads up to a version, unless the player has it already.
func (p *player) reach(version int) {
	for p.version < version {
		p.read()
	}
}

// read returns the next frame and records its version.
func (p *player) read() []byte {
	_, raw, err := p.ws.ReadMessage()
	if err != nil {
		log.Fatal(err)
	}
	if bytes.Contains(raw, []byte(`"error"`)) {
		log.Fatalf("%s", raw)
	}
	for _, name := range []string{`"to":`, `"view","version":`} {
		if _, rest, ok := bytes.Cut(raw, []byte(name)); ok {
			number, _, _ := bytes.Cut(rest, []byte(","))
			if p.version, err = strconv.Atoi(string(number)); err != nil {
				log.Fatalf("%s: %v", raw, err)
			}
			break
		}
	}
	return raw
}

// play makes every other stroke of the room.
func (p *player) play() {
	next := time.Now().Add(p.after)
	for stroke := range p.strokes {
		// Stroke n makes version n+2.
		if mine := stroke%2 == 0 == p.first; !mine {
			p.reach(stroke + 2)
			continue
		}
		if p.every > 0 {
			next = next.Add(2 * p.every)
			<-time.After(time.Until(next)) // the pace of the load
		}
		sent := time.Now()
		frame := fmt.Appendf(nil, `{"type":"action","id":"s%d","data":{"x":%d,"y":%d}}`, stroke, stroke%100, stroke%7)
		if err := p.ws.WriteMessage(websocket.TextMessage, frame); err != nil {
			log.Fatal(err)
		}
		p.until(`"ack"`)
		p.took = append(p.took, time.Since(sent))
	}
}
