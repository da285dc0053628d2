package main

import (
	"bufio"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kitbackend/kit"
)

// browser drives Chromium by the DevTools protocol over a pair of pipes.
type browser struct {
	t   *testing.T
	in  *os.File
	mu  sync.Mutex
	id  int
	got map[int]chan reply
}

type reply struct {
	ID     int
	Result json.RawMessage
	Error  *struct{ Message string }
}

func startBrowser(t *testing.T, chromium string) *browser {
	t.Helper()
	theirIn, in, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	out, theirOut, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), chromium, "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
		"--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-background-timer-throttling",
		"--disable-renderer-backgrounding", "--window-size=1280,860", "--remote-debugging-pipe", "--user-data-dir="+t.TempDir())
	cmd.ExtraFiles = []*os.File{theirIn, theirOut}
	cmd.WaitDelay = 10 * time.Second
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_, _ = theirIn.Close(), theirOut.Close()
	b := &browser{t: t, in: in, got: make(map[int]chan reply)}
	read := make(chan struct{})
	go func() { defer close(read); b.read(bufio.NewReader(out)) }()
	t.Cleanup(func() {
		_, _ = cmd.Process.Signal(os.Interrupt), cmd.Wait()
		_, _ = in.Close(), out.Close()
		<-read
	})
	return b
}

func (b *browser) read(out *bufio.Reader) {
	for {
		raw, err := out.ReadBytes(0)
		if err != nil {
			return
		}
		var r reply
		if json.Unmarshal(raw[:len(raw)-1], &r) != nil || r.ID == 0 {
			continue // an event
		}
		b.mu.Lock()
		waiting := b.got[r.ID]
		delete(b.got, r.ID)
		b.mu.Unlock()
		if waiting != nil {
			waiting <- r
		}
	}
}

// patience is how long anything in the browser may take.
const patience = 30 * time.Second

func (b *browser) send(session, method string, params, into any) error {
	answer, err := b.post(session, method, params)
	if err != nil {
		return err
	}
	select {
	case r := <-answer:
		switch {
		case r.Error != nil:
			return errors.New(r.Error.Message)
		case into != nil:
			return json.Unmarshal(r.Result, into)
		}
		return nil
	case <-time.After(patience):
		return fmt.Errorf("%s takes too long", method)
	}
}

// post sends a command whose answer comes on the channel.
func (b *browser) post(session, method string, params any) (<-chan reply, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.id++
	answer := make(chan reply, 1)
	b.got[b.id] = answer
	command := map[string]any{"id": b.id, "method": method}
	if params != nil {
		command["params"] = params
	}
	if session != "" {
		command["sessionId"] = session
	}
	raw, err := json.Marshal(command)
	if err == nil {
		_, err = b.in.Write(append(raw, 0))
	}
	return answer, err
}

// tab is one page, of one player.
type tab struct {
	*browser
	name, target, session string
}

func (b *browser) open(name, url string) *tab {
	b.t.Helper()
	p := &tab{browser: b, name: name}
	var target struct{ TargetID string }
	var session struct{ SessionID string }
	err := b.send("", "Target.createTarget", map[string]any{"url": url}, &target)
	if err == nil {
		err = b.send("", "Target.attachToTarget", map[string]any{"targetId": target.TargetID, "flatten": true}, &session)
	}
	if err != nil {
		b.t.Fatal(err)
	}
	p.target, p.session = target.TargetID, session.SessionID
	return p
}

// kill crashes the page's process, then takes the tab away.
func (p *tab) kill() {
	p.t.Helper()
	_, err := p.post(p.session, "Page.crash", nil) // nobody is left to answer
	if err == nil {
		err = p.send("", "Target.closeTarget", map[string]any{"targetId": p.target}, nil)
	}
	if err != nil {
		p.t.Fatal(err)
	}
}

// run evaluates the body of an asynchronous function, which has $ for one
// element that is shown and until for something that becomes true.
func (p *tab) run(body string, into any) {
	p.t.Helper()
	const prelude = `
		const $ = (selector) => [...document.querySelectorAll(selector)].find((e) => e.checkVisibility() && !e.disabled)
		const until = async (f) => { for (let i = 0; i < 1000; i++) { const v = f(); if (v) return v; await new Promise((r) => setTimeout(r, 20)) } throw new Error("waited in vain for " + f + " at " + document.body.innerText) };`
	var out struct {
		Result           struct{ Value json.RawMessage }
		ExceptionDetails *struct{ Exception struct{ Description string } }
	}
	var err error
	for range 50 { // a page that is still being loaded loses what it evaluates
		err = p.send(p.session, "Runtime.evaluate", map[string]any{
			"expression": "(async () => {" + prelude + body + "})()", "awaitPromise": true, "returnByValue": true, "userGesture": true,
		}, &out)
		if err == nil || !strings.Contains(err.Error(), "navigated") && !strings.Contains(err.Error(), "context") {
			break
		}
	}
	switch {
	case err != nil:
		p.t.Fatalf("%s: %v", p.name, err)
	case out.ExceptionDetails != nil:
		p.t.Fatalf("%s: %s", p.name, out.ExceptionDetails.Exception.Description)
	case into != nil:
		if err := json.Unmarshal(out.Result.Value, into); err != nil {
			p.t.Fatal(err)
		}
	}
}

// picture keeps what the page looks like beside the test's other artifacts.
func (p *tab) picture(name string) {
	p.t.Helper()
	var shot struct{ Data string }
	if err := p.send(p.session, "Page.captureScreenshot", nil, &shot); err != nil {
		p.t.Fatal(err)
	}
	png, err := base64.StdEncoding.DecodeString(shot.Data)
	if err == nil {
		err = os.WriteFile(filepath.Join(p.t.ArtifactDir(), name+".png"), png, 0o600)
	}
	if err != nil {
		p.t.Fatal(err)
	}
}

// act does what is to be done on the player's turn and answers whether it is
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
func playOn(t *testing.T, turns int, tabs ...*tab) (over bool) {
	t.Helper()
	for range turns {
		for _, p := range tabs {
			if p.run(act, &over); over {
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
	chromium := os.Getenv("KIT_TEST_CHROMIUM")
	if chromium == "" {
		t.Skip("KIT_TEST_CHROMIUM is not set")
	}
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

	b := startBrowser(t, chromium)
	ada, bob := b.open("ada", server.URL+"/#ada"), b.open("bob", server.URL+"/#bob")
	var code string
	ada.run(`(await until(() => $("[data-room=bones]"))).click(); return (await until(() => $("#share"))).textContent`, &code)
	bob.run(`await until(() => $("#code")); document.querySelector("#code").value = "`+strings.ToLower(code)+`"; $("#join button").click(); await until(() => $(".duel"))`, nil)
	if playOn(t, 3, ada, bob) {
		t.Fatal("over after six turns")
	}
	bob.picture("bones")
	ada.kill()
	ada = b.open("ada, again", server.URL+"/#ada")
	ada.run(`await until(() => $(".duel") && $(".line.open"))`, nil)
	if !playOn(t, 100, ada, bob) {
		t.Fatal("the duel does not end")
	}
	for _, p := range []*tab{ada, bob} {
		var proof string
		p.run(`return (await until(() => $("#proof"))).textContent`, &proof)
		if !strings.HasPrefix(proof, "✓ Fair: ") || !strings.Contains(proof, "dice thrown again") {
			t.Errorf("%s: %s", p.name, proof)
		}
	}
	bob.picture("bones-over")
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

	for _, p := range []*tab{ada, bob} {
		p.run(`$("#over .quiet").click(); (await until(() => $("[data-queue=eights]"))).click()`, nil)
	}
	for _, p := range []*tab{ada, bob} {
		p.run(`await until(() => $(".cards"))`, nil)
	}
	playOn(t, 2, ada, bob)
	ada.picture("eights")
	if !playOn(t, 200, ada, bob) {
		t.Fatal("the card game does not end")
	}
	for _, p := range []*tab{ada, bob} {
		var proof string
		p.run(`return (await until(() => $("#proof"))).textContent`, &proof)
		if !strings.HasPrefix(proof, "✓ Fair: 52 cards") {
			t.Errorf("%s: %s", p.name, proof)
		}
	}
	ada.picture("eights-over")
}
