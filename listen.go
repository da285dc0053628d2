package kit

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"time"

	"github.com/kitbackend/kit/internal/mount"
)

// Bounds of the server of [Kit.Serve]. Bodies and responses have no deadline, because uploads and
// sockets take long; instead their rate is checked.
const (
	headerTimeout = 10 * time.Second
	idleTimeout   = 2 * time.Minute
	maxHeader     = 64 << 10
	// stalled is how long a client may read nothing of a response, such as a phone without network.
	stalled = time.Minute
	// shutdownGrace is how long requests under way may take once ctx has ended.
	shutdownGrace = 15 * time.Second
)

const defaultBaseURL = "http://localhost:8080"

// Serve listens on a TCP address such as "localhost:8080", serves the handler (the kit if it is
// nil), and works on jobs as [Kit.Run] does, until ctx ends. Then it stops accepting requests,
// waits at most 15 seconds for those under way, stops the jobs, and closes the kit as [Kit.Close]
// does, in this order. It closes the kit also when it fails. It returns nil once ctx has ended and
// everything has stopped. Databases that the caller opened are the caller's to close, afterwards. A
// client that reads nothing of a response for a minute loses its connection.
func (k *Kit) Serve(ctx context.Context, addr string, handler http.Handler) error {
	if k.closed.Load() {
		return ErrClosed
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", addr)
	if err != nil {
		return errors.Join(fmt.Errorf("kit: %w", err), k.shutDown(ctx))
	}
	return k.ServeListener(ctx, listener, handler)
}

// ServeListener is [Kit.Serve] on a listener of the caller's, which it closes.
func (k *Kit) ServeListener(ctx context.Context, listener net.Listener, handler http.Handler) error {
	if k.closed.Load() {
		return errors.Join(ErrClosed, listener.Close())
	}
	return errors.Join(k.serve(ctx, listener, handler), k.shutDown(ctx))
}

// shutDown closes the kit within a time limit, also when ctx has ended.
func (k *Kit) shutDown(ctx context.Context) error {
	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownGrace)
	defer cancel()
	return k.Close(closing)
}

func (k *Kit) serve(ctx context.Context, listener net.Listener, handler http.Handler) error {
	if handler == nil {
		handler = http.HandlerFunc(k.ServeHTTP) // not k itself: converted to an interface, all its methods would be linked
	}
	server := &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: headerTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeader,
		ErrorLog:          slog.NewLogLogger(k.log.Handler(), slog.LevelWarn),
	}
	// Jobs run until no request can enqueue one.
	working, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	serving, jobs := make(chan error, 1), make(chan error, 1)
	go func() { serving <- server.Serve(mount.Listener(listener, stalled, 0)) }()
	go func() { jobs <- k.Run(working) }()
	k.log.Info("serving", "address", listener.Addr().String())
	if at, ok := listener.Addr().(*net.TCPAddr); ok && k.BaseURL() == defaultBaseURL && strconv.Itoa(at.Port) != k.baseURL.Port() {
		k.log.Warn("no base URL is set, and the default is not where this listens: signed URLs and links lead elsewhere; use WithBaseURL",
			"baseURL", defaultBaseURL, "address", at.String())
	}

	var faults []error
	running := true
	select {
	case <-ctx.Done():
	case err := <-serving:
		faults = append(faults, err)
	case err := <-jobs:
		faults, running = append(faults, err), false
	}
	faults = append(faults, shutDown(server))
	if stop(); running {
		faults = append(faults, <-jobs)
	}
	return errors.Join(faults...)
}

// shutDown waits for the requests under way, then cuts off what is left.
func shutDown(server *http.Server) error {
	ctx, cancel := context.WithTimeout(context.Background(), shutdownGrace)
	defer cancel()
	err := server.Shutdown(ctx)
	if err != nil {
		err = fmt.Errorf("kit: requests were cut off: %w", errors.Join(err, server.Close()))
	}
	return err
}
