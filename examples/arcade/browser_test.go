package main

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/kitbackend/kit"
	"github.com/kitbackend/kit/internal/browsertest"
)

// act does what is to be done on the player's turn and returns whether it is
// over; else false comes when it is another's turn.
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

// playOn lets the tabs take their turns until the game is over, or for some.
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

// A whole match in two tabs of a real browser: by a room code, with one tab
// killed in the middle and opened again; then a card game by the queue. Both
// are proved fair by the pages.
func TestTwoTabs(t *testing.T) {
	b := browsertest.Start(t)
	var handler http.Handler
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { handler.ServeHTTP(w, r) }))
	defer server.Close()
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
	defer func() {
		stop()
		if err := errors.Join(<-ran, k.Close(context.Background())); err != nil {
			t.Error(err)
		}
	}()

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
	bob.Picture("bones-over")
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
	ada.Picture("eights")
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
