// Package browsertest drives pages of a real browser in tests: a headless
// Chromium over its DevTools protocol, on the pipes of its process.
package browsertest

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// patience bounds how long one step in the browser may take.
const patience = 30 * time.Second

// Browser is a Chromium of its own profile.
type Browser struct {
	t  testing.TB
	in *os.File

	mu        sync.Mutex
	last      int
	waiting   map[int]chan message
	complaint map[string][]string
	ended     error
}

// message is a message from the browser: the response to a command, or an event.
type message struct {
	ID        int
	SessionID string
	Result    json.RawMessage
	Error     *struct{ Message string }
	Method    string
	Params    json.RawMessage
}

// Start starts the browser that KIT_TEST_CHROMIUM names, which ends with the
// test. Without the variable it skips.
func Start(t testing.TB) *Browser {
	t.Helper()
	chromium := os.Getenv("KIT_TEST_CHROMIUM")
	if chromium == "" {
		t.Skip("KIT_TEST_CHROMIUM is not set")
	}
	commands, in, err := os.Pipe()
	check(t, err)
	out, responses, err := os.Pipe()
	check(t, err)
	cmd := exec.Command(chromium, "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
		"--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-background-timer-throttling",
		"--disable-renderer-backgrounding", "--window-size=1280,860", "--remote-debugging-pipe", "--user-data-dir="+t.TempDir())
	cmd.ExtraFiles = []*os.File{commands, responses} // 3 and 4, as the pipe mode has it
	// Every process of the browser holds this pipe, so that Wait returns when the last one has
	// ended; one that ended later would still write into the profile.
	cmd.Stderr = new(bytes.Buffer)
	cmd.WaitDelay = patience
	check(t, cmd.Start())
	_, _ = commands.Close(), responses.Close()
	b := &Browser{t: t, in: in, waiting: make(map[int]chan message), complaint: make(map[string][]string)}
	read := make(chan struct{})
	go func() { defer close(read); b.read(bufio.NewReader(out)) }()
	t.Cleanup(func() {
		_, _ = b.post("", "Browser.close", nil) // it may end before it responds
		defer time.AfterFunc(patience, func() { _ = cmd.Process.Kill() }).Stop()
		if err := cmd.Wait(); err != nil {
			t.Errorf("the browser ended with %v\n%s", err, cmd.Stderr)
		}
		_, _ = in.Close(), out.Close()
		<-read
	})
	return b
}

// read dispatches the messages of the browser, until it ends.
func (b *Browser) read(out *bufio.Reader) {
	for {
		raw, err := out.ReadBytes(0)
		if err != nil {
			b.end(err)
			return
		}
		var m message
		if json.Unmarshal(raw[:len(raw)-1], &m) != nil {
			continue
		}
		b.mu.Lock()
		if to := b.waiting[m.ID]; to != nil {
			to <- m
			delete(b.waiting, m.ID)
		}
		if m.Method == "Log.entryAdded" || m.Method == "Runtime.exceptionThrown" {
			b.complaint[m.SessionID] = append(b.complaint[m.SessionID], string(m.Params))
		}
		b.mu.Unlock()
	}
}

// end makes current and future callers that wait for a response fail.
func (b *Browser) end(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ended = err
	for _, to := range b.waiting {
		to <- message{Error: &struct{ Message string }{err.Error()}}
	}
	clear(b.waiting)
}

// post sends a command; the channel receives the response.
func (b *Browser) post(session, method string, params any) (<-chan message, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ended != nil {
		return nil, b.ended
	}
	b.last++
	response := make(chan message, 1)
	b.waiting[b.last] = response
	command := map[string]any{"id": b.last, "method": method}
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
	return response, err
}

func (b *Browser) call(session, method string, params, into any) error {
	response, err := b.post(session, method, params)
	if err != nil {
		return err
	}
	select {
	case m := <-response:
		switch {
		case m.Error != nil:
			return fmt.Errorf("%s: %s", method, m.Error.Message)
		case into != nil:
			return json.Unmarshal(m.Result, into)
		}
		return nil
	case <-time.After(patience):
		return fmt.Errorf("%s: %w", method, context.DeadlineExceeded)
	}
}

// Tab is one page.
type Tab struct {
	b               *Browser
	target, session string
}

// Open opens a page in a tab of its own.
func (b *Browser) Open(url string) *Tab {
	b.t.Helper()
	return b.open(url, map[string]any{"url": "about:blank"})
}

// OpenApart opens a page in a tab that shares no cookies and no storage with the
// others, as on another device.
func (b *Browser) OpenApart(url string) *Tab {
	b.t.Helper()
	var apart struct{ BrowserContextID string }
	check(b.t, b.call("", "Target.createBrowserContext", nil, &apart))
	return b.open(url, map[string]any{"url": "about:blank", "browserContextId": apart.BrowserContextID})
}

func (b *Browser) open(url string, in map[string]any) *Tab {
	b.t.Helper()
	var target struct{ TargetID string }
	check(b.t, b.call("", "Target.createTarget", in, &target))
	var attached struct{ SessionID string }
	check(b.t, b.call("", "Target.attachToTarget", map[string]any{"targetId": target.TargetID, "flatten": true}, &attached))
	p := &Tab{b: b, target: target.TargetID, session: attached.SessionID}
	for _, domain := range []string{"Page", "Runtime", "Log"} {
		p.Call(domain+".enable", nil, nil)
	}
	p.Visit(url)
	return p
}

// Call sends a command of the DevTools protocol to the page.
func (p *Tab) Call(method string, params, into any) {
	p.b.t.Helper()
	check(p.b.t, p.b.call(p.session, method, params, into))
}

// Visit opens an address.
func (p *Tab) Visit(url string) {
	p.b.t.Helper()
	p.Call("Page.navigate", map[string]any{"url": url}, nil)
}

// Kill crashes the page's process, then closes the tab.
func (p *Tab) Kill() {
	p.b.t.Helper()
	_, err := p.b.post(p.session, "Page.crash", nil) // nobody is left to respond
	check(p.b.t, err)
	check(p.b.t, p.b.call("", "Target.closeTarget", map[string]any{"targetId": p.target}, nil))
}

// Complaints are what the page's policy, the network and its own scripts reported.
func (p *Tab) Complaints() []string {
	p.b.mu.Lock()
	defer p.b.mu.Unlock()
	return append([]string(nil), p.b.complaint[p.session]...)
}

// prelude defines the functions of a script of Run: $ returns the first element of a selector that
// is shown and enabled, and until waits for a condition to become true.
const prelude = `
	const $ = (selector) => [...document.querySelectorAll(selector)].find((e) => e.checkVisibility() && !e.disabled)
	const until = async (f) => {
		for (const end = Date.now() + %d; Date.now() < end; await new Promise((r) => setTimeout(r, 20))) { const v = f(); if (v) return v }
		throw new Error("never: " + f + "\nthe page: " + document.body.innerText)
	};`

// Run evaluates the body of an asynchronous function as an act of the user. If another page
// replaces this one meanwhile, Run starts over on the new page.
func (p *Tab) Run(body string, into any) {
	p.b.t.Helper()
	script := map[string]any{
		"expression":    fmt.Sprintf("(async () => {"+prelude, (patience-time.Second).Milliseconds()) + body + "})()",
		"awaitPromise":  true,
		"returnByValue": true,
		"userGesture":   true,
	}
	for deadline := time.Now().Add(patience); ; {
		err := p.evaluate(script, into)
		if err == nil {
			return
		}
		var own exception
		replaced := strings.Contains(err.Error(), "navigated") || strings.Contains(err.Error(), "context")
		if errors.As(err, &own) || !replaced || time.Now().After(deadline) {
			p.b.t.Fatal(err)
		}
	}
}

// exception is one that the script has thrown.
type exception string

func (e exception) Error() string { return string(e) }

func (p *Tab) evaluate(script map[string]any, into any) error {
	var out struct {
		Result           struct{ Value json.RawMessage }
		ExceptionDetails *struct{ Exception struct{ Description string } }
	}
	if err := p.b.call(p.session, "Runtime.evaluate", script, &out); err != nil {
		return err
	}
	switch {
	case out.ExceptionDetails != nil:
		return exception(out.ExceptionDetails.Exception.Description)
	case into != nil:
		return json.Unmarshal(out.Result.Value, into)
	}
	return nil
}

// Until waits for an expression to become true.
func (p *Tab) Until(expression string) {
	p.b.t.Helper()
	p.Run(fmt.Sprintf("await until(() => { try { return %s } catch {} })", expression), nil)
}

// See waits for an element to be shown and enabled.
func (p *Tab) See(selector string) {
	p.b.t.Helper()
	p.Run(fmt.Sprintf("await until(() => $(%q))", selector), nil)
}

// Click waits for an element to be shown and enabled, and presses it.
func (p *Tab) Click(selector string) {
	p.b.t.Helper()
	p.See(selector)
	p.Run(fmt.Sprintf("$(%q).click()", selector), nil)
}

// Fill writes a value into a field.
func (p *Tab) Fill(selector, value string) {
	p.b.t.Helper()
	p.See(selector)
	p.Run(fmt.Sprintf("$(%q).value = %q", selector, value), nil)
}

// Text returns the text of an element.
func (p *Tab) Text(selector string) (text string) {
	p.b.t.Helper()
	p.Run(fmt.Sprintf("return document.querySelector(%q).textContent", selector), &text)
	return text
}

// Phone gives the page the size of a phone, or restores that of a window.
func (p *Tab) Phone(on bool) {
	p.b.t.Helper()
	if !on {
		p.Call("Emulation.clearDeviceMetricsOverride", nil, nil)
		return
	}
	p.Call("Emulation.setDeviceMetricsOverride", map[string]any{"width": 390, "height": 844, "deviceScaleFactor": 1, "mobile": true}, nil)
}

// Accessible fails the test if axe-core finds a violation on the page, in a window or on a phone,
// or if the page is wider than a phone. KIT_TEST_AXE names a folder whose node_modules has
// axe-core; without it only the width is checked.
func (p *Tab) Accessible(name string) {
	p.b.t.Helper()
	p.Picture(name)
	p.axe(name)
	p.Phone(true)
	defer p.Phone(false)
	var wide int
	p.Run(`return document.documentElement.scrollWidth`, &wide)
	if wide > 390 {
		p.b.t.Errorf("%s is %d wide on a phone of 390", name, wide)
	}
	p.Picture(name + "-phone")
	p.axe(name + " on a phone")
}

func (p *Tab) axe(name string) {
	p.b.t.Helper()
	modules := os.Getenv("KIT_TEST_AXE")
	if modules == "" {
		return
	}
	source, err := os.ReadFile(filepath.Join(modules, "node_modules", "axe-core", "axe.min.js"))
	check(p.b.t, err)
	check(p.b.t, p.evaluate(map[string]any{"expression": string(source) + "; true"}, nil))
	var found []string
	p.Run(`await Promise.all(document.getAnimations().filter((a) => a.effect.getComputedTiming().iterations < 9).map((a) => a.finished.catch(() => {})))
		const { violations } = await axe.run(document, { resultTypes: ["violations"] })
		return violations.flatMap((v) => v.nodes.map((n) => v.id + ": " + n.target + ": " + n.failureSummary.replaceAll("\n", " ")))`, &found)
	for _, each := range found {
		p.b.t.Errorf("%s: %s", name, each)
	}
}

// Picture saves a screenshot of the page among the test's artifacts.
func (p *Tab) Picture(name string) {
	p.b.t.Helper()
	p.Call("Page.bringToFront", nil, nil) // a tab in the background does not paint its new size
	var shot struct{ Data string }
	p.Call("Page.captureScreenshot", nil, &shot)
	png, err := base64.StdEncoding.DecodeString(shot.Data)
	check(p.b.t, err)
	check(p.b.t, os.WriteFile(filepath.Join(p.b.t.ArtifactDir(), name+".png"), png, 0o600))
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
