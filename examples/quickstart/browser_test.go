package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"
)

// patience bounds what a page may take for one step.
const patience = 30 * time.Second

// tab is a page of a headless Chromium, driven over its DevTools protocol.
type tab struct {
	t       *testing.T
	out     io.Writer
	session string
	mu      sync.Mutex
	last    int
	waiting map[int]chan reply
	// blocked are what the page's policy or network refused.
	blocked []string
}

type reply struct {
	ID     int
	Result json.RawMessage
	Error  *struct{ Message string }
	Method string
	Params json.RawMessage
}

// openTab starts a browser, with an authenticator that consents to everything.
func openTab(t *testing.T) *tab {
	t.Helper()
	chromium := os.Getenv("KIT_TEST_CHROMIUM")
	if chromium == "" {
		t.Skip("KIT_TEST_CHROMIUM is not set")
	}
	commands, in, err := os.Pipe()
	check(t, err)
	out, answers, err := os.Pipe()
	check(t, err)
	cmd := exec.Command(chromium, "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
		"--disable-component-update", "--disable-sync", "--remote-debugging-pipe", "--user-data-dir="+t.TempDir(), "about:blank")
	cmd.ExtraFiles = []*os.File{commands, answers} // 3 and 4, as the pipe mode has it
	cmd.WaitDelay = 10 * time.Second
	check(t, cmd.Start())
	_, _ = commands.Close(), answers.Close()
	b := &tab{t: t, out: in, waiting: make(map[int]chan reply)}
	go b.read(out)
	t.Cleanup(func() {
		_ = b.send("", "Browser.close", nil)
		_ = cmd.Wait()
		_, _ = in.Close(), out.Close()
	})
	var target struct{ TargetID string }
	b.call("", "Target.createTarget", map[string]any{"url": "about:blank"}, &target)
	var attached struct{ SessionID string }
	b.call("", "Target.attachToTarget", map[string]any{"targetId": target.TargetID, "flatten": true}, &attached)
	b.session = attached.SessionID
	for _, domain := range []string{"Page", "Runtime", "Log", "WebAuthn"} {
		b.call(b.session, domain+".enable", nil, nil)
	}
	b.call(b.session, "WebAuthn.addVirtualAuthenticator", map[string]any{"options": map[string]any{
		"protocol": "ctap2", "transport": "internal", "hasResidentKey": true, "hasUserVerification": true,
		"isUserVerified": true, "automaticPresenceSimulation": true,
	}}, nil)
	return b
}

// read hands the answers to who waits for them, until the browser ends.
func (b *tab) read(from io.Reader) {
	lines := bufio.NewReader(from)
	for {
		raw, err := lines.ReadBytes(0)
		if err != nil {
			return
		}
		var r reply
		if json.Unmarshal(raw[:len(raw)-1], &r) != nil {
			continue
		}
		b.mu.Lock()
		if to := b.waiting[r.ID]; to != nil {
			to <- r
			delete(b.waiting, r.ID)
		}
		if r.Method == "Log.entryAdded" || r.Method == "Runtime.exceptionThrown" {
			b.blocked = append(b.blocked, string(r.Params))
		}
		b.mu.Unlock()
	}
}

func (b *tab) send(session, method string, params any) chan reply {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.last++
	to := make(chan reply, 1)
	b.waiting[b.last] = to
	message := map[string]any{"id": b.last, "method": method}
	if session != "" {
		message["sessionId"] = session
	}
	if params != nil {
		message["params"] = params
	}
	raw, err := json.Marshal(message)
	if err == nil {
		_, _ = b.out.Write(append(raw, 0)) // a browser that has ended answers nothing
	}
	return to
}

func (b *tab) try(session, method string, params, into any) error {
	select {
	case r := <-b.send(session, method, params):
		if r.Error != nil {
			return errors.New(r.Error.Message)
		}
		if into == nil {
			return nil
		}
		return json.Unmarshal(r.Result, into)
	case <-time.After(patience):
		return context.DeadlineExceeded
	}
}

func (b *tab) call(session, method string, params, into any) {
	b.t.Helper()
	if err := b.try(session, method, params, into); err != nil {
		b.t.Fatalf("%s: %v", method, err)
	}
}

// run evaluates a script as a click of the user would.
func (b *tab) run(script string) (value any, err error) {
	var answer struct {
		Result           struct{ Value any }
		ExceptionDetails *struct {
			Exception struct{ Description string }
		}
	}
	err = b.try(b.session, "Runtime.evaluate", map[string]any{
		"expression": script, "awaitPromise": true, "userGesture": true, "returnByValue": true,
	}, &answer)
	if err == nil && answer.ExceptionDetails != nil {
		err = errors.New(answer.ExceptionDetails.Exception.Description)
	}
	return answer.Result.Value, err
}

// visit opens an address.
func (b *tab) visit(address string) {
	b.t.Helper()
	b.call(b.session, "Page.navigate", map[string]any{"url": address}, nil)
}

// until waits for an expression to become true, across pages.
func (b *tab) until(expression string) {
	b.t.Helper()
	script := fmt.Sprintf(`new Promise((done) => { const look = () => { try { if (%s) return done(true) } catch {} setTimeout(look, 20) }; look() })`, expression)
	deadline := time.Now().Add(patience)
	for time.Now().Before(deadline) {
		if _, err := b.run(script); err == nil { // else the page has just changed
			return
		}
	}
	shown, _ := b.run(`document.body.innerText`)
	b.t.Fatalf("never: %s\nthe page: %v", expression, shown)
}

// see waits for an element to be shown.
func (b *tab) see(selector string) {
	b.t.Helper()
	b.until(fmt.Sprintf(`document.querySelector(%q).checkVisibility()`, selector))
}

// click waits for a button to be shown and presses it.
func (b *tab) click(selector string) {
	b.t.Helper()
	b.until(fmt.Sprintf(`(() => { const it = document.querySelector(%q); return it.checkVisibility() && !it.disabled })()`, selector))
	if _, err := b.run(fmt.Sprintf(`document.querySelector(%q).click()`, selector)); err != nil {
		b.t.Fatal(err)
	}
}

// fill writes into the fields of a form and sends it.
func (b *tab) fill(form string, fields map[string]string) {
	b.t.Helper()
	selector := fmt.Sprintf(`[data-form="%s"]`, form)
	b.see(selector)
	for name, value := range fields {
		if _, err := b.run(fmt.Sprintf(`document.querySelector('%s [name="%s"]').value = %q`, selector, name, value)); err != nil {
			b.t.Fatal(err)
		}
	}
	b.click(selector + " button")
}

// text answers what an element says.
func (b *tab) text(selector string) string {
	b.t.Helper()
	value, err := b.run(fmt.Sprintf(`document.querySelector(%q).textContent`, selector))
	check(b.t, err)
	said, _ := value.(string)
	return said
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
