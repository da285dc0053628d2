package mount_test

import (
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/kitbackend/kit/internal/mount"
)

// tookEnough is more than the buffers of a connection hold.
const tookEnough = 64 << 20

// sending serves a response that is larger than any buffer, as bytes and as a file,
// and tells how sending it ended.
func sending(t *testing.T, grace time.Duration) (server *httptest.Server, ended chan error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "large")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, tookEnough); err != nil {
		t.Fatal(err)
	}
	ended = make(chan error, 1)
	server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/bytes" {
			_, err := io.Copy(struct{ io.Writer }{w}, io.LimitReader(zeros{}, tookEnough))
			ended <- err
			return
		}
		f, err := os.Open(path)
		if err != nil {
			t.Error(err)
			return
		}
		defer f.Close()
		_, err = io.CopyN(w, f, tookEnough)
		ended <- err
	}))
	server.Listener = mount.Listener(server.Listener, grace, 32<<20)
	server.Start()
	t.Cleanup(server.Close)
	return server, ended
}

// zeros is an endless text.
type zeros struct{}

func (zeros) Read(b []byte) (int, error) { clear(b); return len(b), nil }

// TestResponsesThatNobodyTakesEnd: a client that asks and does not read loses its
// connection.
func TestResponsesThatNobodyTakesEnd(t *testing.T) {
	server, ended := sending(t, 50*time.Millisecond)
	for _, path := range []string{"/bytes", "/file"} {
		dial(t, server, "GET "+path+" HTTP/1.1\r\nHost: example.com\r\n\r\n")
		select {
		case err := <-ended:
			if !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("%s: %v, want a deadline that has passed", path, err)
			}
		case <-time.After(10 * time.Second):
			t.Fatalf("%s: the response still waits to be read", path)
		}
	}
}

// TestResponsesThatAreTakenArriveWhole: what is read arrives, on one connection, as
// bytes and as a file.
func TestResponsesThatAreTakenArriveWhole(t *testing.T) {
	server, ended := sending(t, time.Minute)
	for _, path := range []string{"/bytes", "/file", "/bytes"} {
		response, err := http.Get(server.URL + path)
		if err != nil {
			t.Fatal(err)
		}
		n, err := io.Copy(io.Discard, response.Body)
		_ = response.Body.Close()
		if sent := <-ended; n != tookEnough || err != nil || sent != nil {
			t.Errorf("%s: %d bytes, %v, %v", path, n, err, sent)
		}
	}
}

// TestDeadlinesOfOthersStand: who sets a deadline for writes is not overruled, and
// one who takes it back hands the connection over again.
func TestDeadlinesOfOthersStand(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	paced := mount.Listener(listener, time.Hour, 0)
	defer paced.Close()
	client, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	conn, err := paced.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetWriteDeadline(time.Unix(1, 0))
	if _, err := conn.Write([]byte("late")); err == nil {
		t.Error("a write behind the deadline of another passed")
	}
	_ = conn.SetDeadline(time.Time{})
	if _, err := conn.Write([]byte("in time")); err != nil {
		t.Error(err)
	}
}

// TestSlowSourcesAreNoSlowClients: a response whose content comes slowly arrives where
// the client takes all of it at once.
func TestSlowSourcesAreNoSlowClients(t *testing.T) {
	const grace = 50 * time.Millisecond
	ended := make(chan error, 1)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "1024")
		source, from := io.Pipe()
		go func() {
			for range 2 {
				_, _ = from.Write(make([]byte, 512))
				<-time.After(4 * grace)
			}
			_ = from.Close()
		}()
		_, err := io.Copy(w, source)
		ended <- err
	}))
	server.Listener = mount.Listener(server.Listener, grace, 32<<20)
	server.Start()
	t.Cleanup(server.Close)
	response, err := http.Get(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	n, err := io.Copy(io.Discard, response.Body)
	_ = response.Body.Close()
	if sent := <-ended; n != 1024 || err != nil || sent != nil {
		t.Errorf("%d bytes, %v, %v", n, err, sent)
	}
}
