// Closedtest runs the closed test of an app: invite people, follow the links of their mails in the
// development mailbox, let days pass, and watch the forecast. Testers write from the app, and the
// staff replies. A page of this program plays the store, and nothing is mailed.
//
//	go run ./examples/closedtest
//	go run ./examples/closedtest -testers 5 -days 7
//	go run ./examples/closedtest invite ada@example.com grace@example.com
package main

import (
	"context"
	"flag"
	"log"
	"os"
	"os/signal"
	"sync"
	"time"

	"github.com/kitbackend/kit"
	"github.com/kitbackend/kit/audit"
	"github.com/kitbackend/kit/auth"
	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/email"
	"github.com/kitbackend/kit/support"
	"github.com/kitbackend/kit/testers"
)

func main() {
	addr := flag.String("addr", "localhost:8080", "address to listen on")
	size := flag.Int("testers", 12, "how many testers the store requires")
	days := flag.Int("days", 14, "for how many days")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if flag.Arg(0) == "invite" {
		if err := invite(ctx, os.Stdout, "http://"+*addr, flag.Args()[1:]); err != nil {
			log.Fatal(err)
		}
		return
	}
	d, err := open(ctx, "http://"+*addr, *size, *days)
	if err != nil {
		log.Fatal(err)
	}
	log.Printf("open http://%s/", *addr)
	if err := d.kit.Serve(ctx, *addr, d.handler()); err != nil {
		log.Fatal(err)
	}
}

// open composes the kit with a clock that can be advanced.
func open(ctx context.Context, baseURL string, size, days int, opts ...kit.Option) (*desk, error) {
	c := &clock{}
	k, err := kit.New(append([]kit.Option{
		kit.WithEnvironment(capability.Development),
		kit.WithBaseURL(baseURL),
		kit.WithClock(c.now),
		kit.WithAudit(audit.Config{}),
		kit.WithEmail(email.Config{From: "Lanternfish <hello@lanternfish.example>"}),
		kit.WithAuth(auth.Config{}),
		kit.WithSupport(support.Config{}),
		kit.WithTesters(testers.Config{Cohorts: []testers.CohortConfig{{ID: testers.DefaultCohort, Name: "Lanternfish",
			StoreURL: baseURL + "/store", TargetSize: size, WindowDays: days}}}),
	}, opts...)...)
	if err != nil {
		return nil, err
	}
	return &desk{kit: k, clock: c}, k.Testers().Daily(ctx)
}

// clock is a clock ahead of the real one.
type clock struct {
	mu    sync.Mutex
	ahead time.Duration
}

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Now().Add(c.ahead)
}

func (c *clock) advance(by time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ahead += by
}
