// Command river enqueues and runs jobs with the kit and with River, in turns on the same
// PostgreSQL, each in its own schema with the same numbers of connections and workers.
//
//	go run . -db postgres://postgres@127.0.0.1:5432/kit
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"

	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/database/postgres"
	"github.com/kitbackend/kit/jobs"
)

var (
	address = flag.String("db", "", "the PostgreSQL, a postgres:// URL")
	count   = flag.Int("jobs", 20_000, "jobs of a pattern and round")
	workers = flag.Int("workers", 100, "workers of each")
	callers = flag.Int("callers", 64, "callers that enqueue one at a time")
	bulk    = flag.Int("bulk", 1000, "jobs of a bulk enqueue")
	rounds  = flag.Int("rounds", 3, "rounds in turns")
)

const connections = 16

// engine is a job queue.
type engine interface {
	enqueue(ctx context.Context) error
	enqueueBulk(ctx context.Context, n int) error
	// work runs jobs until stop is called; every job calls the function that the engine was created
	// with.
	work(ctx context.Context) (stop func() error, err error)
	// left returns the number of jobs that are not recorded as completed.
	left(ctx context.Context) (n int, err error)
	empty(ctx context.Context) error
}

func main() {
	flag.Parse()
	if err := measure(context.Background()); err != nil {
		log.Fatal(err)
	}
}

func measure(ctx context.Context) error {
	var ran atomic.Int64
	done := func() { ran.Add(1) }
	kit, err := openKit(ctx, done)
	if err != nil {
		return err
	}
	rival, err := openRiver(ctx, done)
	if err != nil {
		return err
	}
	patterns := []struct {
		name string
		run  func(context.Context, engine, *atomic.Int64) (time.Duration, error)
	}{
		{"enqueue, one at a time", single},
		{"enqueue, in bulk", many},
		{"work", work},
		{"enqueue one at a time and work", both},
	}
	for round := range *rounds {
		for _, p := range patterns {
			for _, e := range []struct {
				name string
				engine
			}{{"kit", kit}, {"river", rival}} {
				if err := e.empty(ctx); err != nil {
					return err
				}
				ran.Store(0)
				took, err := p.run(ctx, e.engine, &ran)
				if err != nil {
					return fmt.Errorf("%s, %s: %w", p.name, e.name, err)
				}
				fmt.Printf("round %d  %-32s %-6s %9.0f jobs/s\n", round+1, p.name, e.name, float64(*count)/took.Seconds())
			}
		}
	}
	return nil
}

func single(ctx context.Context, e engine, _ *atomic.Int64) (time.Duration, error) {
	began := time.Now()
	var group sync.WaitGroup
	faults := make(chan error, *callers)
	for c := range *callers {
		group.Go(func() {
			for i := c; i < *count; i += *callers {
				if err := e.enqueue(ctx); err != nil {
					faults <- err
					return
				}
			}
		})
	}
	group.Wait()
	close(faults)
	return time.Since(began), <-faults
}

func many(ctx context.Context, e engine, _ *atomic.Int64) (time.Duration, error) {
	began := time.Now()
	for n := *count; n > 0; n -= *bulk {
		if err := e.enqueueBulk(ctx, min(n, *bulk)); err != nil {
			return 0, err
		}
	}
	return time.Since(began), nil
}

// work measures the time until the last completion is recorded.
func work(ctx context.Context, e engine, ran *atomic.Int64) (time.Duration, error) {
	if _, err := many(ctx, e, ran); err != nil {
		return 0, err
	}
	return through(ctx, e, ran, func() error { return nil })
}

func both(ctx context.Context, e engine, ran *atomic.Int64) (time.Duration, error) {
	return through(ctx, e, ran, func() error {
		_, err := single(ctx, e, ran)
		return err
	})
}

func through(ctx context.Context, e engine, ran *atomic.Int64, enqueue func() error) (time.Duration, error) {
	began := time.Now()
	stop, err := e.work(ctx)
	if err != nil {
		return 0, err
	}
	if err := enqueue(); err != nil {
		return 0, err
	}
	for ran.Load() < int64(*count) {
		time.Sleep(time.Millisecond)
	}
	for {
		n, err := e.left(ctx)
		if err != nil {
			return 0, err
		}
		if n == 0 {
			break
		}
		time.Sleep(5 * time.Millisecond)
	}
	took := time.Since(began)
	return took, stop()
}

// fresh creates an empty schema.
func fresh(ctx context.Context, schema string) error {
	conn, err := pgx.Connect(ctx, *address)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	_, err = conn.Exec(ctx, `DROP SCHEMA IF EXISTS `+schema+` CASCADE; CREATE SCHEMA `+schema)
	return err
}

// theKit is the job queue of the kit.
type theKit struct {
	db    *database.DB
	queue *jobs.Queue
}

func openKit(ctx context.Context, done func()) (*theKit, error) {
	if err := fresh(ctx, "bench_kit"); err != nil {
		return nil, err
	}
	db, err := postgres.Open(ctx, *address, postgres.WithSchema("bench_kit"), postgres.WithConnections(connections))
	if err != nil {
		return nil, err
	}
	if err := db.Migrate(ctx, jobs.Migrations()); err != nil {
		return nil, err
	}
	queue := jobs.New(db, nil, jobs.Options{Workers: *workers})
	return &theKit{db, queue}, queue.Register(jobs.Binding{Name: "NOTHING", Run: func(context.Context, jobs.Job) error {
		done()
		return nil
	}})
}

func (k *theKit) enqueue(ctx context.Context) error {
	_, err := k.queue.Enqueue(ctx, "NOTHING", nothing{})
	return err
}

func (k *theKit) enqueueBulk(ctx context.Context, n int) error {
	payloads := make([]any, n)
	for i := range payloads {
		payloads[i] = nothing{}
	}
	_, err := k.queue.EnqueueAll(ctx, "NOTHING", payloads)
	return err
}

func (k *theKit) work(ctx context.Context) (stop func() error, err error) {
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- k.queue.Run(ctx) }()
	return func() error {
		cancel()
		return <-ended
	}, nil
}

func (k *theKit) left(ctx context.Context) (n int, err error) {
	err = k.db.QueryRow(ctx, `SELECT count(*) FROM kit_job WHERE binding = 'NOTHING' AND state <> 'completed'`).Scan(&n)
	return n, err
}

func (k *theKit) empty(ctx context.Context) error {
	_, err := k.db.Exec(ctx, `TRUNCATE kit_job`)
	return err
}

// theRiver is River's client.
type theRiver struct {
	pool    *pgxpool.Pool
	workers *river.Workers
	client  *river.Client[pgx.Tx] // only enqueues
}

type nothing struct{}

func (nothing) Kind() string { return "nothing" }

func openRiver(ctx context.Context, done func()) (*theRiver, error) {
	if err := fresh(ctx, "bench_river"); err != nil {
		return nil, err
	}
	config, err := pgxpool.ParseConfig(*address)
	if err != nil {
		return nil, err
	}
	config.MaxConns = connections
	config.ConnConfig.RuntimeParams["search_path"] = "bench_river"
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, err
	}
	migrator, err := rivermigrate.New(riverpgxv5.New(pool), nil)
	if err != nil {
		return nil, err
	}
	if _, err := migrator.Migrate(ctx, rivermigrate.DirectionUp, nil); err != nil {
		return nil, err
	}
	r := &theRiver{pool: pool, workers: river.NewWorkers()}
	river.AddWorker(r.workers, river.WorkFunc(func(context.Context, *river.Job[nothing]) error {
		done()
		return nil
	}))
	r.client, err = r.newClient(nil)
	return r, err
}

func (r *theRiver) newClient(queues map[string]river.QueueConfig) (*river.Client[pgx.Tx], error) {
	return river.NewClient(riverpgxv5.New(r.pool), &river.Config{
		Queues: queues, Workers: r.workers, Logger: slog.New(slog.DiscardHandler),
		FetchCooldown: river.FetchCooldownMin, // its minimum; 100 ms is the default
	})
}

func (r *theRiver) enqueue(ctx context.Context) error {
	_, err := r.client.Insert(ctx, nothing{}, nil)
	return err
}

// enqueueBulk uses COPY, its fastest method.
func (r *theRiver) enqueueBulk(ctx context.Context, n int) error {
	params := make([]river.InsertManyParams, n)
	for i := range params {
		params[i].Args = nothing{}
	}
	_, err := r.client.InsertManyFast(ctx, params)
	return err
}

func (r *theRiver) work(ctx context.Context) (stop func() error, err error) {
	client, err := r.newClient(map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: *workers}})
	if err != nil {
		return nil, err
	}
	return func() error { return client.Stop(ctx) }, client.Start(ctx)
}

func (r *theRiver) left(ctx context.Context) (n int, err error) {
	err = r.pool.QueryRow(ctx, `SELECT count(*) FROM river_job WHERE state <> 'completed'`).Scan(&n)
	return n, err
}

func (r *theRiver) empty(ctx context.Context) error {
	_, err := r.pool.Exec(ctx, `TRUNCATE river_job`)
	return err
}
