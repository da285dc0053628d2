package mount_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/internal/mount"
)

// dial sends text to a server as a client that then falls silent.
func dial(t *testing.T, server *httptest.Server, text string) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(10 * time.Second)) // the test fails rather than hangs
	if _, err := io.WriteString(conn, text); err != nil {
		t.Fatal(err)
	}
	return conn
}

// ends reads a response and then the end of the connection.
func ends(t *testing.T, conn net.Conn) int {
	t.Helper()
	reader := bufio.NewReader(conn)
	response, err := http.ReadResponse(reader, nil)
	if err != nil {
		t.Fatalf("no response: %v", err)
	}
	defer response.Body.Close()
	_, _ = io.Copy(io.Discard, response.Body)
	if rest, err := io.ReadAll(reader); err != nil || len(rest) > 0 {
		t.Errorf("the connection stays open after the response: %q %v", rest, err)
	}
	return response.StatusCode
}

func TestRefusalsDoNotWaitForABody(t *testing.T) {
	w := newWorld(t, func(c *mount.Config) { c.BodyGrace = time.Hour })
	server := httptest.NewServer(w.Mount)
	t.Cleanup(server.Close)
	lines := map[string]int{
		"POST /things/text":           401, // no proof
		"POST /things/nowhere":        404, // no row
		"POST /things/admin/things/7": 401, // a machine without a credential
		"GET /things/maybe":           200, // a row that takes no body
	}
	conns := map[string][]net.Conn{} // all at once: net/http waits half a second before it closes one
	for line := range lines {
		for _, framing := range []string{"Content-Length: 1000", "Transfer-Encoding: chunked"} {
			conns[line] = append(conns[line], dial(t, server, fmt.Sprintf("%s HTTP/1.1\r\nHost: example.com\r\nContent-Type: application/json\r\n%s\r\n\r\n", line, framing)))
		}
	}
	for line, want := range lines {
		for i, conn := range conns[line] {
			if got := ends(t, conn); got != want {
				t.Errorf("%s, framing %d: %d, want %d", line, i, got, want)
			}
		}
	}
}

func TestSlowBodiesEnd(t *testing.T) {
	w := newWorld(t, func(c *mount.Config) { c.BodyGrace = 50 * time.Millisecond })
	server := httptest.NewServer(w.Mount)
	t.Cleanup(server.Close)
	conn := dial(t, server, "POST /things/open HTTP/1.1\r\nHost: example.com\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n{")
	if got := ends(t, conn); got != 400 {
		t.Errorf("a body that stops coming: %d, want 400", got)
	}
}

// deadlines counts how often a read deadline is set on the connection.
type deadlines struct {
	*httptest.ResponseRecorder
	set int
}

func (d *deadlines) SetReadDeadline(time.Time) error {
	d.set++
	return nil
}

// TestHostDeadlinesSurviveABody: a body that comes in time leaves the deadline
// of the connection to the host.
func TestHostDeadlinesSurviveABody(t *testing.T) {
	w := newWorld(t, nil)
	d := &deadlines{ResponseRecorder: httptest.NewRecorder()}
	r := httptest.NewRequest("POST", "https://example.com/things/open", strings.NewReader(`{"text":"x"}`))
	r.Header.Set("Content-Type", "application/json")
	if w.ServeHTTP(d, r); d.Code != 201 || d.set != 0 {
		t.Errorf("status %d with %d deadlines set, want 201 with none", d.Code, d.set)
	}
}

// TestTornResponsesAreCut: what a handler began and did not end never looks whole,
// and is in the log like any other.
func TestTornResponsesAreCut(t *testing.T) {
	torn := map[string]func() error{
		"error": func() error { return errors.New("the rows ended early") },
		"panic": func() error { panic("the rows ended early") },
		"abort": func() error { panic(http.ErrAbortHandler) },
	}
	w := newWorld(t, func(c *mount.Config) {
		for name, end := range torn {
			c.Entries = append(c.Entries, mount.Entry{Domain: "things", Route: capability.Route{Method: "GET", Path: "/things/torn/" + name,
				Guard: capability.Public("tests"), Handle: capability.Raw(func(c *capability.Call) error {
					_, _ = io.WriteString(c.Writer(), "half of a list")
					return end()
				})}})
		}
	})
	server := httptest.NewServer(w.Mount)
	defer server.Close()
	for name := range torn {
		response, err := http.Get(server.URL + "/things/torn/" + name)
		if err == nil {
			_, err = io.ReadAll(response.Body)
			_ = response.Body.Close()
		}
		if err == nil {
			t.Errorf("%s: the response looks whole", name)
		}
	}
	server.Close() // which waits for what is served
	for name := range torn {
		if strings.Count(w.log.String(), "route=/things/torn/"+name+" method=GET") != 1 {
			t.Errorf("%s: the request is not in the log:\n%s", name, w.log.String())
		}
	}
}
