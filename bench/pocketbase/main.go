// Command pocketbase compares the kit with PocketBase over HTTP, in turns: a credit, which is
// durable and audited, with the creation of a record of a text and a number, and the read of a
// balance with the read of a record. Each server is a process of its own on a fresh file, with its
// defaults; the client shares the processors with it.
//
//	go run .
package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/kitbackend/kit/internal/load"
)

var (
	rounds      = flag.Int("rounds", 3, "rounds in turns")
	writes      = flag.Int("writes", 20_000, "writes of a round")
	reads       = flag.Int("reads", 60_000, "reads of a round")
	connections = flag.Int("connections", 64, "connections of the client")
)

var rivals = []struct {
	name, program string
	body          func(n int64) string
}{
	{"kit", "kit", func(n int64) string {
		return fmt.Sprintf(`{"userId":"user-%021d","amount":5,"ref":"bench-%d"}`, n%500, n)
	}},
	{"pocketbase", "rival", func(n int64) string {
		return fmt.Sprintf(`{"title":"user-%021d","amount":%d}`, n%500, n)
	}},
}

func main() {
	flag.Parse()
	if err := measure(); err != nil {
		log.Fatal(err)
	}
}

func measure() error {
	dir, err := os.MkdirTemp("", "bench")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	build := exec.Command("go", "build", "-o", dir+string(filepath.Separator), "./kit", "./rival")
	build.Stderr = os.Stderr
	if err := build.Run(); err != nil {
		return err
	}
	for round := range *rounds {
		for _, r := range rivals {
			data := filepath.Join(dir, fmt.Sprint(r.name, round))
			if err := os.Mkdir(data, 0o700); err != nil {
				return err
			}
			if err := play(round+1, r.name, exec.Command(filepath.Join(dir, r.program), data), r.body); err != nil {
				return fmt.Errorf("%s: %w", r.name, err)
			}
		}
	}
	return nil
}

// play measures the server that the command starts.
func play(round int, name string, cmd *exec.Cmd, body func(int64) string) error {
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return err
	}
	var server struct{ Address, Write, WriteToken, Read, ReadToken string }
	lines := bufio.NewScanner(out)
	for lines.Scan() && !bytes.HasPrefix(lines.Bytes(), []byte("{")) { // PocketBase prints a notice first
	}
	err = json.Unmarshal(lines.Bytes(), &server)
	for _, w := range []struct {
		name  string
		count int
		next  load.Requests
	}{
		{"write", *writes, load.Post(server.Write, server.WriteToken, body)},
		{"read", *reads, load.Constant("GET "+server.Read, server.ReadToken)},
	} {
		if err != nil {
			break
		}
		began := time.Now()
		err = load.Send(server.Address, *connections, w.count, w.next)
		fmt.Printf("round %d  %-10s %-5s %7.0f/s\n", round, name, w.name, float64(w.count)/time.Since(began).Seconds())
	}
	_ = cmd.Process.Signal(os.Interrupt)
	_ = cmd.Wait()
	if err == nil {
		spent := cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
		fmt.Printf("round %d  %-10s all   %7.1f s of the processor\n", round, name, spent.Seconds())
	}
	return err
}
