package main

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/kitbackend/kit"
	"github.com/kitbackend/kit/internal/browsertest"
)

// act makes the move of a player whose turn it is and resolves to whether the game is over; it
// resolves to false when it is another player's turn.
const act = `
	const over = () => document.querySelector("#over:not([hidden]) #proof")
	await until(() => over() || document.querySelector("#status").classList.contains("yours") || $(".side.theirs.turn, .seat.turn"))
	if (over()) return true
	if (!document.querySelector("#status").classList.contains("yours")) return false
	const before = document.querySelector("#status").textContent + document.querySelector("#felt").textContent
	const target = $(".mine button.column") || $(".hand .fits") || $("#actions [data-key=draw]") || $("#actions [data-key=pass]")
	target.click()
	if ($(".suits .suit")) $(".suits .suit").click()
	await until(() => over() || before !== document.querySelector("#status").textContent + document.querySelector("#felt").textContent)
	return Boolean(over())`

// playOn lets the tabs take their turns until the game is over, or for some turns.
func playOn(t *testing.T, turns int, tabs ...*browsertest.Tab) (over bool) {
	t.Helper()
	for range turns {
		for _, p := range tabs {
			if p.Run(act, &over); over {
				return true
			}
		}
	}
	return false
}

// wires are the connections of a server. Those of the sockets can be cut without being closed, as
// when a phone loses its network.
type wires struct {
	net.Listener
	mu  sync.Mutex
	all []*wire
}

type wire struct {
	net.Conn
	socket, dead atomic.Bool
}

func (w *wires) Accept() (net.Conn, error) {
	conn, err := w.Listener.Accept()
	if err != nil {
		return nil, err
	}
	one := &wire{Conn: conn}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.all = append(w.all, one)
	return one, nil
}

func (w *wires) cut() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, one := range w.all {
		one.dead.Store(one.socket.Load())
	}
}

func (w *wire) Read(p []byte) (int, error) {
	for {
		n, err := w.Conn.Read(p)
		if bytes.Contains(p[:n], []byte("Upgrade: websocket")) {
			w.socket.Store(true)
		}
		if err != nil || !w.dead.Load() {
			return n, err
		}
	}
}

func (w *wire) Write(p []byte) (int, error) {
	if w.dead.Load() {
		return len(p), nil
	}
	return w.Conn.Write(p)
}

// serve runs the arcade until the test ends.
func serve(t *testing.T) (*kit.Kit, *httptest.Server, *wires) {
	t.Helper()
	var handler http.Handler
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { handler.ServeHTTP(w, r) }))
	lines := &wires{Listener: server.Listener}
	server.Listener = lines
	server.Start()
	k, err := kit.New(append(options(server.URL), kit.WithLogger(slog.New(slog.DiscardHandler)))...)
	if err != nil {
		t.Fatal(err)
	}
	if handler, err = application(k); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ran := make(chan error, 1)
	go func() { ran <- k.Run(ctx) }()
	t.Cleanup(func() {
		server.Close()
		stop()
		if err := errors.Join(<-ran, k.Close(context.Background())); err != nil {
			t.Error(err)
		}
	})
	return k, server, lines
}

// TestDeadLine checks that a dead connection is noticed in seconds, that actions made meanwhile
// arrive, that the match continues on another device, and that a player sees that the other one is
// offline.
func TestDeadLine(t *testing.T) {
	t.Parallel()
	b := browsertest.Start(t)
	_, server, lines := serve(t)
	ada, bob := b.Open(server.URL+"/#ada"), b.OpenApart(server.URL+"/#bob")
	ada.See("[data-room=bones]")
	ada.Accessible("lobby")
	var code string
	ada.Run(`$("[data-room=bones]").click(); return (await until(() => $("#share"))).textContent`, &code)
	ada.Accessible("waiting")
	bob.Run(`await until(() => $("#code")); document.querySelector("#code").value = "`+code+`"; $("#join button").click(); await until(() => $(".duel") && $(".line.open"))`, nil)
	ada.See(".duel")
	ada.Accessible("duel")
	first, second := ada, bob
	var mine bool
	if ada.Run(`return document.querySelector("#status").classList.contains("yours")`, &mine); !mine {
		first, second = bob, ada
	}

	lines.cut()
	var before string
	first.Run(`const b = document.querySelector("#felt").textContent; $(".mine button.column").click(); return b`, &before)
	first.Until(`$("#line").textContent === "sending…"`)
	first.Picture("sending")
	first.Until(`document.querySelector("#line").textContent === "reconnecting…"`)
	first.Until(`document.querySelector("#line").textContent === "connected"`)
	second.Until(`document.querySelector("#status").classList.contains("yours")`) // the move has arrived

	bob.Kill()
	ada.Until(`document.querySelector("#away").textContent === "bob is disconnected"`)
	ada.Accessible("alone")
	tablet := b.OpenApart(server.URL + "/#bob")
	tablet.See("#resume .hot")
	tablet.Accessible("running")
	tablet.Run(`$("#resume .hot").click(); await until(() => $(".duel") && $(".line.open"))`, nil)
	ada.Until(`document.querySelector("#away").textContent === ""`)
}

// TestFriends checks the lobby: friends find each other, invitations are above the games, notes
// cover nothing, and unfriending asks for confirmation.
func TestFriends(t *testing.T) {
	t.Parallel()
	b := browsertest.Start(t)
	_, server, _ := serve(t)
	ada, bob := b.Open(server.URL+"/"), b.OpenApart(server.URL+"/#bob")
	ada.See("#player")
	ada.Accessible("sitting-down")
	ada.Visit(server.URL + "/#ada")
	ada.Run(`location.reload()`, nil)
	ada.See("#befriend button")
	ada.Run(`await until(() => document.querySelector("#presenceword").textContent === "online")`, nil)
	bob.Run(`await until(() => $("#befriend button")); document.querySelector("#friend").value = "ada"; $("#befriend button").click()`, nil)
	ada.Run(`(await until(() => $("#friends .hot"))).click()`, nil)
	bob.Run(`const invite = () => [...document.querySelectorAll("#friends button")].find((e) => e.textContent === "Invite to Bones"); (await until(invite)).click()`, nil)
	ada.See("#invites .hot")
	ada.Phone(true)
	var where struct{ Invite, Games, Toast, Room, Word float64 }
	ada.Run(`const at = (s) => document.querySelector(s).getBoundingClientRect()
		await until(() => document.querySelector("#toasts p"))
		document.querySelector("#lobby").scrollTop = 400
		const toast = at("#toasts").bottom, room = at("#lobby").top, word = at("#presenceword").width
		document.querySelector("#lobby").scrollTop = 0
		return { Invite: at("#invites").bottom, Games: at(".game").top, Toast: toast, Room: room, Word: word }`, &where)
	ada.Phone(false)
	if where.Invite > where.Games || where.Toast > where.Room || where.Word < 10 {
		t.Errorf("an invitation ends at %v, the games begin at %v; notes end at %v, the room begins at %v; the state is %v wide",
			where.Invite, where.Games, where.Toast, where.Room, where.Word)
	}
	ada.Accessible("invited")
	var asked string
	ada.Run(`window.confirm = (text) => { window.asked = text; return false }
		const unfriend = () => [...document.querySelectorAll("#friends button")].find((e) => e.textContent === "Unfriend")
		;(await until(unfriend)).click()
		await until(() => window.asked && unfriend())
		return window.asked`, &asked)
	if asked != "End the friendship with bob?" {
		t.Errorf("unfriending asks %q", asked)
	}
}

// TestTwoTabs plays a whole match in two tabs of a real browser, by a room code, with one tab
// killed in the middle and opened again; then a card game by the queue. The pages verify that both
// were fair.
func TestTwoTabs(t *testing.T) {
	t.Parallel()
	b, ctx := browsertest.Start(t), t.Context()
	k, server, _ := serve(t)
	ada, bob := b.Open(server.URL+"/#ada"), b.Open(server.URL+"/#bob")
	var code string
	ada.Run(`(await until(() => $("[data-room=bones]"))).click(); return (await until(() => $("#share"))).textContent`, &code)
	bob.Run(`await until(() => $("#code")); document.querySelector("#code").value = "`+strings.ToLower(code)+`"; $("#join button").click(); await until(() => $(".duel"))`, nil)
	if playOn(t, 3, ada, bob) {
		t.Fatal("over after six turns")
	}
	bob.Picture("bones")
	ada.Kill()
	ada = b.Open(server.URL + "/#ada")
	ada.Run(`await until(() => $(".duel") && $(".line.open"))`, nil)
	if !playOn(t, 100, ada, bob) {
		t.Fatal("the duel does not end")
	}
	for _, p := range []*browsertest.Tab{ada, bob} {
		var proof string
		p.Run(`return (await until(() => $("#proof"))).textContent`, &proof)
		if !strings.HasPrefix(proof, "✓ Fair: ") || !strings.Contains(proof, "dice thrown again") {
			t.Error(proof)
		}
	}
	bob.Accessible("bones-over")
	var purse int64
	for _, user := range []string{"ada", "bob"} {
		balance, err := k.Ledger().Balance(ctx, user, coins)
		if err != nil || balance.Held != 0 {
			t.Errorf("%+v %v", balance, err)
		}
		purse += balance.Available
		if standing, err := k.Rating().Rating(ctx, bones, user); err != nil || standing.GamesPlayed != 1 {
			t.Errorf("%+v %v", standing, err)
		}
	}
	if purse != 2*allowance {
		t.Errorf("the players hold %d", purse)
	}

	for _, p := range []*browsertest.Tab{ada, bob} {
		p.Run(`$("#over .quiet").click(); (await until(() => $("[data-queue=eights]"))).click()`, nil)
	}
	for _, p := range []*browsertest.Tab{ada, bob} {
		p.Run(`await until(() => $(".cards"))`, nil)
	}
	playOn(t, 2, ada, bob)
	ada.Accessible("eights")
	if !playOn(t, 200, ada, bob) {
		t.Fatal("the card game does not end")
	}
	for _, p := range []*browsertest.Tab{ada, bob} {
		var proof string
		p.Run(`return (await until(() => $("#proof"))).textContent`, &proof)
		if !strings.HasPrefix(proof, "✓ Fair: 52 cards") {
			t.Error(proof)
		}
	}
	ada.Picture("eights-over")
}
