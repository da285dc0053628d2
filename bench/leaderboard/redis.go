package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strconv"
	"time"
)

// redis is one connection to a server, in plain RESP.
type redis struct {
	conn net.Conn
	r    *bufio.Reader
	w    *bufio.Writer
}

// startRedis starts a server that writes nothing to disk.
func startRedis() (r *redis, stop func(), err error) {
	probe, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, nil, err
	}
	_, port, err := net.SplitHostPort(probe.Addr().String())
	if err != nil {
		return nil, nil, err
	}
	if err := probe.Close(); err != nil {
		return nil, nil, err
	}
	server := exec.Command("redis-server", "--port", port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no")
	server.Dir = os.TempDir()
	if err := server.Start(); err != nil {
		return nil, nil, err
	}
	stop = func() { _ = server.Process.Kill(); _ = server.Wait() }
	for range 100 {
		conn, err := net.Dial("tcp", "127.0.0.1:"+port)
		if err == nil {
			return &redis{conn, bufio.NewReader(conn), bufio.NewWriter(conn)}, stop, nil
		}
		time.Sleep(50 * time.Millisecond)
	}
	stop()
	return nil, nil, errors.New("redis-server does not respond")
}

// send queues a command.
func (r *redis) send(args ...string) {
	fmt.Fprintf(r.w, "*%d\r\n", len(args))
	for _, a := range args {
		r.w.WriteString("$" + strconv.Itoa(len(a)) + "\r\n" + a + "\r\n")
	}
}

// do sends a command and reads its response: an int64, a string, a slice or nil.
func (r *redis) do(args ...string) (any, error) {
	r.send(args...)
	if err := r.w.Flush(); err != nil {
		return nil, err
	}
	return r.receive()
}

func (r *redis) receive() (any, error) {
	line, err := r.r.ReadSlice('\n')
	if err != nil {
		return nil, err
	}
	kind, text := line[0], string(line[1:len(line)-2])
	switch kind {
	case '+':
		return text, nil
	case '-':
		return nil, errors.New("redis: " + text)
	case ':':
		return strconv.ParseInt(text, 10, 64)
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 {
		return nil, err
	}
	if kind == '$' {
		bulk := make([]byte, n+2)
		_, err := io.ReadFull(r.r, bulk)
		return string(bulk[:n]), err
	}
	list := make([]any, n)
	for i := range list {
		if list[i], err = r.receive(); err != nil {
			return nil, err
		}
	}
	return list, nil
}

// fill adds the scores to a sorted set.
func (r *redis) fill(scores []int64) error {
	const chunk = 1000
	for i := 0; i < len(scores); i += chunk {
		until := min(i+chunk, len(scores))
		for j := i; j < until; j++ {
			r.send("ZADD", "big", strconv.FormatInt(scores[j], 10), userID(j))
		}
		if err := r.w.Flush(); err != nil {
			return err
		}
		for range until - i {
			if _, err := r.receive(); err != nil {
				return err
			}
		}
	}
	return nil
}
