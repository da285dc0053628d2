package jobs_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/jobs"
)

var errPlayerLeft = errors.New("the player has left")

func Example() {
	ctx := context.Background()
	db, err := database.OpenMemory()
	if err != nil {
		fmt.Println(err)
		return
	}
	defer db.Close()
	if err := db.Migrate(ctx, jobs.Migrations()); err != nil {
		fmt.Println(err)
		return
	}

	now := time.Date(2026, 11, 21, 10, 30, 0, 0, time.UTC)
	queue := jobs.New(db, nil, jobs.Options{Now: func() time.Time { return now }})
	err = queue.Register(
		jobs.Binding{Name: "GREET", Run: func(_ context.Context, job jobs.Job) error {
			fmt.Printf("hello %s, attempt %d\n", job.Payload, job.Attempt)
			if job.Attempt == 1 {
				return errors.New("mail server away")
			}
			return nil
		}},
		jobs.Binding{Name: "TURN_TIMEOUT", Run: func(_ context.Context, job jobs.Job) error {
			fmt.Println("time is up in", job.Key)
			return jobs.Cancel(errPlayerLeft)
		}},
		jobs.Binding{Name: "DAILY", Schedule: "0 3 * * *", Run: func(_ context.Context, job jobs.Job) error {
			fmt.Println("tick of", job.Key)
			return nil
		}},
	)
	if err != nil {
		fmt.Println(err)
		return
	}

	// The job and the alarm exist when the transaction commits.
	err = db.InTx(ctx, func(ctx context.Context) error {
		if _, err := queue.Enqueue(ctx, "GREET", "ada"); err != nil {
			return err
		}
		return queue.SetAlarm(ctx, "TURN_TIMEOUT", "session/42", now.Add(30*time.Second), nil)
	})
	if err != nil {
		fmt.Println(err)
		return
	}

	// A server calls queue.Run(ctx); a test moves its clock and runs what is due.
	for _, pause := range []time.Duration{0, time.Minute, 24 * time.Hour} {
		now = now.Add(pause)
		if _, err := queue.RunDue(ctx); err != nil {
			fmt.Println(err)
		}
	}
	// Unordered output:
	// hello "ada", attempt 1
	// hello "ada", attempt 2
	// time is up in session/42
	// tick of 2026-11-22T03:00:00Z
}
