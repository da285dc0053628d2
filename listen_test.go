package kit_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/kitbackend/kit"
	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/database/databasetest"
	"github.com/kitbackend/kit/jobs"
	"github.com/kitbackend/kit/kittest"
)

func TestRunAfterCloseReturnsAnError(t *testing.T) {
	k := kittest.New(t)
	if err := k.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := k.Run(t.Context()); !errors.Is(err, kit.ErrClosed) {
		t.Errorf("Run after Close: %v", err)
	}
	if err := k.Serve(t.Context(), "127.0.0.1:0", nil); !errors.Is(err, kit.ErrClosed) {
		t.Errorf("Serve after Close: %v", err)
	}
}

func TestRunEndsWithItsDatabase(t *testing.T) {
	db, err := database.OpenMemory()
	if err != nil {
		t.Fatal(err)
	}
	k := kittest.New(t, kit.WithDatabase(db))
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if err := k.Run(ctx); !errors.Is(err, database.ErrClosed) || !strings.Contains(err.Error(), "queue DB") {
		t.Errorf("got %v", err)
	}
}

func TestReadyNamesTheQueueNobodyRuns(t *testing.T) {
	k := kittest.New(t, part(capability.Capability{Name: "shop", Version: "1", Jobs: []jobs.Binding{
		{Name: "SHOP_RESTOCK", Run: func(context.Context, jobs.Job) error { return nil }}}}))
	if _, err := k.Jobs().Enqueue(t.Context(), "SHOP_RESTOCK", 7); err != nil {
		t.Fatal(err)
	}
	k.Clock.Advance(time.Minute)
	if err := k.Ready(t.Context()); err != nil {
		t.Errorf("after a minute: %v", err)
	}
	k.Clock.Advance(time.Minute)
	err := k.Ready(t.Context())
	if err == nil || !strings.Contains(err.Error(), "queue DB") || !strings.Contains(err.Error(), "2m0s") {
		t.Errorf("after two minutes: %v", err)
	}
	k.RunJobs()
	k.Clock.Advance(5 * time.Second)
	if err := k.Ready(t.Context()); err != nil {
		t.Errorf("once it ran: %v", err)
	}
}

// TestReadyBearsABacklog: more work than workers, which users can bring about, is no
// reason to take the nodes from those users.
func TestReadyBearsABacklog(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		begun, leave := make(chan bool, 100), make(chan bool)
		k := kittest.New(t, kit.WithDatabase(db), part(capability.Capability{Name: "shop", Version: "1", Jobs: []jobs.Binding{
			{Name: "SHOP_RESTOCK", Run: func(context.Context, jobs.Job) error { begun <- true; <-leave; return nil }}}}))
		for range 100 {
			if _, err := k.Jobs().Enqueue(t.Context(), "SHOP_RESTOCK", 7, jobs.At(k.Clock.Now().Add(-2*time.Minute))); err != nil {
				t.Fatal(err)
			}
		}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- k.Run(ctx) }()
		<-begun
		if err := k.Ready(t.Context()); err != nil {
			t.Errorf("while the workers are busy: %v", err)
		}
		close(leave)
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

func TestReadyKeepsFailuresAndDoesNotWaitForever(t *testing.T) {
	reads, entered, leave := 0, make(chan bool, 1), make(chan bool)
	hang := false
	k := kittest.New(t, part(capability.Capability{Name: "shop", Version: "1", Health: []capability.HealthKey{{Key: "stock",
		Read: func(context.Context) (any, error) {
			reads++
			if hang {
				entered <- true
				<-leave
			}
			return nil, errors.New("sick")
		}}}}))
	for range 3 {
		if err := k.Ready(t.Context()); err == nil {
			t.Error("ready though sick")
		}
	}
	if reads != 1 {
		t.Errorf("%d reads within a failure's lifetime, want 1", reads)
	}
	k.Clock.Advance(5 * time.Second)
	hang = true
	done := make(chan error, 1)
	go func() { done <- k.Ready(context.Background()) }()
	<-entered
	ctx, cancel := context.WithCancel(t.Context())
	waiting := make(chan error, 1)
	go func() { waiting <- k.Ready(ctx) }()
	cancel()
	if err := <-waiting; !errors.Is(err, context.Canceled) {
		t.Errorf("a caller that has gone still waits: %v", err)
	}
	close(leave)
	if err := <-done; err != nil {
		t.Log(err)
	}
}

// addressed passes on where Serve listens.
type addressed struct{ found chan<- string }

func (addressed) Enabled(context.Context, slog.Level) bool { return true }
func (h addressed) WithAttrs([]slog.Attr) slog.Handler     { return h }
func (h addressed) WithGroup(string) slog.Handler          { return h }
func (h addressed) Handle(_ context.Context, r slog.Record) error {
	r.Attrs(func(a slog.Attr) bool {
		if a.Key == "address" {
			h.found <- a.Value.String()
		}
		return true
	})
	return nil
}

func TestServe(t *testing.T) {
	found := make(chan string, 1)
	var order []string
	entered, leave, ran := make(chan bool), make(chan bool), make(chan bool, 1)
	k := kittest.New(t, kit.WithLogger(slog.New(addressed{found})), part(capability.Capability{Name: "shop", Version: "1",
		Close: func(context.Context) error { order = append(order, "closed"); return nil },
		Jobs: []jobs.Binding{{Name: "SHOP_RESTOCK", Run: func(context.Context, jobs.Job) error {
			ran <- true
			return nil
		}}}}))
	pages := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		entered <- true
		<-leave
		order = append(order, "responded")
		_, _ = io.WriteString(w, "page")
	})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- k.Serve(ctx, "127.0.0.1:0", k.Before(pages)) }()
	base := "http://" + <-found
	response, err := http.Get(base + "/health")
	if err != nil || response.StatusCode != 200 {
		t.Fatal(response, err)
	}
	_ = response.Body.Close()
	if _, err := k.Jobs().Enqueue(ctx, "SHOP_RESTOCK", 7); err != nil {
		t.Fatal(err)
	}
	<-ran
	body := make(chan string, 1)
	go func() {
		response, err := http.Get(base + "/slow")
		if err != nil {
			body <- err.Error()
			return
		}
		defer response.Body.Close()
		text, _ := io.ReadAll(response.Body)
		body <- string(text)
	}()
	<-entered
	cancel()
	close(leave)
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if got := <-body; got != "page" {
		t.Errorf("the request under way got %q", got)
	}
	if strings.Join(order, " ") != "responded closed" {
		t.Errorf("order %v", order)
	}
}

func TestServeOnATakenAddressClosesTheKit(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	k := kittest.New(t)
	if err := k.Serve(t.Context(), taken.Addr().String(), nil); err == nil || errors.Is(err, kit.ErrClosed) {
		t.Errorf("got %v", err)
	}
	if err := k.Run(t.Context()); !errors.Is(err, kit.ErrClosed) {
		t.Errorf("not closed: %v", err)
	}
}
