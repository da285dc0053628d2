package support_test

import (
	"fmt"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/emersion/go-smtp"

	"github.com/kitbackend/kit"
	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/database/databasetest"
	"github.com/kitbackend/kit/support"
)

// sink accepts mail and discards it.
type sink struct{}

func (sink) Reset()                               {}
func (sink) Logout() error                        { return nil }
func (sink) Mail(string, *smtp.MailOptions) error { return nil }
func (sink) Rcpt(string, *smtp.RcptOptions) error { return nil }
func (sink) Data(r io.Reader) error {
	_, err := io.Copy(io.Discard, r)
	return err
}

// send delivers b.N mails over parallel connections.
func send(b *testing.B, at string) {
	var n atomic.Int64
	text := strings.Repeat("Please refund the invoice, I was charged twice.\n", 40)
	b.SetParallelism(8)
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		c, err := smtp.Dial(at)
		if err != nil {
			b.Error(err)
			return
		}
		defer func() { _ = c.Close() }()
		for pb.Next() {
			from := fmt.Sprintf("p%d@customer.example", n.Add(1))
			raw := mail(from, "Refund", text, "Message-ID: <"+from+">")
			if err := c.SendMail(from, []string{inbox}, strings.NewReader(raw)); err != nil {
				b.Error(err)
				return
			}
		}
	})
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "mails/s")
}

// BenchmarkInbound stores mails received over SMTP, in comparison with a server that discards them.
func BenchmarkInbound(b *testing.B) {
	b.Run("sink", func(b *testing.B) {
		server := smtp.NewServer(smtp.BackendFunc(func(*smtp.Conn) (smtp.Session, error) { return sink{}, nil }))
		server.Domain = "localhost"
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			b.Fatal(err)
		}
		go func() { _ = server.Serve(listener) }()
		defer func() { _ = server.Close() }()
		send(b, listener.Addr().String())
	})
	b.Run("file", func(b *testing.B) {
		db := databasetest.File(b)
		k := desk(b, support.Config{Guard: support.Guard{MaxPerHour: 1 << 30}}, kit.WithDatabase(db))
		send(b, serve(b, k, "tcp"))
	})
	b.Run("postgres", func(b *testing.B) {
		db := databasetest.Postgres(b)
		k := desk(b, support.Config{Guard: support.Guard{MaxPerHour: 1 << 30}}, kit.WithDatabase(db))
		send(b, serve(b, k, "tcp"))
	})
}

// BenchmarkClassify classifies a thread by the rules, including reads and writes.
func BenchmarkClassify(b *testing.B) {
	k := desk(b, support.Config{}, kit.WithDatabase(databasetest.File(b)))
	got := receive(b, k, "a@b.example", mail("a@b.example", "Refund", strings.Repeat("Please refund the invoice, I was charged twice.\n", 40)))
	for b.Loop() {
		if _, err := k.Support().Reclassify(b.Context(), got.ThreadID, ""); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "threads/s")
}

// BenchmarkLists reads the first page of 100,000 threads with each filter.
func BenchmarkLists(b *testing.B) {
	db := databasetest.File(b)
	k := desk(b, support.Config{}, kit.WithDatabase(db))
	fill(b, db, 100_000)
	for name, f := range map[string]support.Filter{
		"all": {}, "state": {State: support.StateOpen}, "category": {Category: "billing"}, "priority": {Priority: support.PriorityUrgent},
		"sentiment": {Sentiment: support.SentimentNeutral}, "channel": {Channel: support.ChannelApp}, "starred": {Flag: "starred"},
		"needsReply": {Flag: "needsReply"}, "snoozed": {Flag: "snoozed"}, "assignee": {Assignee: "s1"}, "user": {UserID: "u1"},
		"two": {State: support.StateOpen, Category: "billing"}, "query": {Query: "subject 99"},
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if _, err := k.Support().ListThreads(b.Context(), f, capability.NewPage(50, "")); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
