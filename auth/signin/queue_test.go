package signin

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/kitbackend/kit/capability"
)

func from(ip string) context.Context {
	return capability.WithRequestInfo(context.Background(), &capability.RequestInfo{IP: ip})
}

// A flood of sign-ins keeps neither clients that are known from a hash, nor the
// networks that do not flood.
func TestFloodedQueueIsFair(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSlots(1, 16, hashingPatience)
		if err := s.acquire(t.Context()); err != nil {
			t.Fatal(err)
		}
		done := make(chan string, 100)
		enter := func(name string, ctx context.Context) {
			go func() {
				if err := s.acquire(ctx); err != nil {
					done <- name + " refused"
					return
				}
				done <- name
			}()
			synctest.Wait()
		}
		for i := range 40 { // of one /24 and of one /48
			enter("flood", from(fmt.Sprintf("192.0.2.%d", i)))
			enter("flood", from(fmt.Sprintf("2001:db8:1:%d::1", i)))
		}
		enter("neighbour", from("198.51.100.1"))
		for range 4 {
			enter("owner", knownClient(from("192.0.2.7")))
		}
		admitted := map[string]int{}
		for range 10 { // of the 16 that wait
			s.release()
			synctest.Wait()
			for len(done) > 0 {
				if name := <-done; name != "flood refused" {
					admitted[name]++
				}
			}
		}
		if admitted["owner"] != 4 || admitted["neighbour"] != 1 || admitted["flood"] != 5 {
			t.Errorf("admitted %v, want all 4 of the owner and the neighbour", admitted)
		}
		for range 20 {
			s.release()
			synctest.Wait()
		}
		if s.waiting != 0 || len(s.ring) != 0 || len(s.lines) != 0 {
			t.Errorf("%d wait in %d lines", s.waiting, len(s.lines))
		}
	})
}
