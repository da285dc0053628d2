// Package load sends HTTP/1.1 requests over kept connections with as little work of the client as
// possible, for benchmarks whose client shares the processors with the server: it writes bytes, and
// reads headers and a counted body.
package load

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
)

// Requests appends the next request to its argument; it may be called concurrently.
type Requests func([]byte) []byte

// Constant returns the same request without a body every time.
func Constant(line, token string) Requests {
	request := Head(line, token) + "\r\n"
	return func(out []byte) []byte { return append(out, request...) }
}

// Post returns requests with a JSON body each. The argument of body counts from 1.
func Post(path, token string, body func(n int64) string) Requests {
	first := Head("POST "+path, token) + "Content-Type: application/json\r\n"
	var count atomic.Int64
	return func(out []byte) []byte {
		text := body(count.Add(1))
		out = append(out, first...)
		return fmt.Appendf(out, "Content-Length: %d\r\n\r\n%s", len(text), text)
	}
}

// Head returns a request line with its headers, without the empty line that ends them. An empty
// token sends no Authorization.
func Head(line, token string) string {
	text := line + " HTTP/1.1\r\nHost: bench\r\n"
	if token != "" {
		text += "Authorization: Bearer " + token + "\r\n"
	}
	return text
}

// Send sends n requests over the connections and returns when all responses have arrived. A
// response whose status is not 200 to 209, or whose length is not given by a header, is an error.
func Send(addr string, connections, n int, next Requests) error {
	var left atomic.Int64
	left.Store(int64(n))
	faults := make([]error, connections)
	var group sync.WaitGroup
	for i := range faults {
		group.Go(func() { faults[i] = send(addr, next, &left) })
	}
	group.Wait()
	return errors.Join(faults...)
}

func send(addr string, next Requests, left *atomic.Int64) error {
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		return err
	}
	defer conn.Close()
	in := bufio.NewReader(conn)
	var request []byte
	for left.Add(-1) >= 0 {
		request = next(request[:0])
		if _, err := conn.Write(request); err != nil {
			return err
		}
		if err := readResponse(in); err != nil {
			return err
		}
	}
	return nil
}

func readResponse(in *bufio.Reader) error {
	length := -1
	for first := true; ; first = false {
		line, err := in.ReadSlice('\n')
		if err != nil {
			return err
		}
		line = bytes.TrimRight(line, "\r\n")
		switch {
		case first && !bytes.HasPrefix(line, statusOK):
			return fmt.Errorf("status line %q", line)
		case len(line) == 0 && length < 0:
			return errors.New("a response without Content-Length")
		case len(line) == 0:
			_, err := in.Discard(length)
			return err
		case bytes.HasPrefix(line, contentLength):
			length, err = strconv.Atoi(string(line[len(contentLength):]))
			if err != nil {
				return err
			}
		}
	}
}

var statusOK, contentLength = []byte("HTTP/1.1 20"), []byte("Content-Length: ")
