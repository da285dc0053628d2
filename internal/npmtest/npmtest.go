// Package npmtest is for tests that run programs installed by npm.
package npmtest

import (
	"encoding/json"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kitbackend/kit/internal/processtest"
)

// Folder is where npm has installed the programs; "" where KIT_TEST_CLIENTS is not
// set.
func Folder() string { return os.Getenv("KIT_TEST_CLIENTS") }

// Command is a program of npm's with arguments. Without KIT_TEST_CLIENTS it skips.
func Command(t testing.TB, name string, args ...string) *exec.Cmd {
	t.Helper()
	if Folder() == "" {
		t.Skip("KIT_TEST_CLIENTS names no folder with node_modules that has " + name)
	}
	cmd := exec.CommandContext(t.Context(), filepath.Join(Folder(), "node_modules/.bin", name), args...)
	cmd.Env = append(os.Environ(), "REDOCLY_TELEMETRY=off", "REDOCLY_SUPPRESS_UPDATE_NOTICE=true")
	return cmd
}

// Proxy runs prism until the test ends: a proxy that holds what passes to the
// document in a file, and names in a header what it does not allow.
func Proxy(t testing.TB, document, upstream string) *url.URL {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().String()
	_ = listener.Close()
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		t.Fatal(err)
	}
	proxy := Command(t, "prism", "proxy", document, upstream, "--host", "127.0.0.1", "--port", port)
	if err := proxy.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = proxy.Process.Kill()
		_ = proxy.Wait()
	})
	processtest.Listening(t, address)
	return &url.URL{Scheme: "http", Host: address}
}

// ViolationHeader is where the proxy's responses name what the document does not
// allow.
const ViolationHeader = "Sl-Violations"

// Violation is one thing that the document does not allow. Location begins with
// request or response.
type Violation struct {
	Location []string
	Message  string
}

// Violations reads [ViolationHeader].
func Violations(t testing.TB, header string) (list []Violation) {
	t.Helper()
	if header == "" {
		return nil
	}
	if err := json.Unmarshal([]byte(header), &list); err != nil {
		t.Errorf("%s: %v", header, err)
	}
	return list
}

// OfResponse reports whether the response is not as the document says, and not
// the request.
func (v Violation) OfResponse() bool { return len(v.Location) > 0 && v.Location[0] == "response" }

func (v Violation) String() string { return v.Message + " at " + strings.Join(v.Location, ".") }
