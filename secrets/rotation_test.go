package secrets_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kitbackend/kit/audit"
	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/database/databasetest"
	"github.com/kitbackend/kit/secrets"
)

func TestManualRotation(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		n := newNode(t, db, secrets.Config{Secrets: []secrets.Secret{payments}})
		first := n.rotate(payments.Name, blocks("stripe", "secretKey", "s1", "webhookSecret", "w1"))
		if first.Status != secrets.StatusSucceeded || first.FromVersion != 0 || first.ToVersion != 1 {
			t.Errorf("%+v", first)
		}
		n.rotate(payments.Name, blocks("paddle", "apiKey", "p1")) // keeps stripe
		if got := n.field(payments.Name, "stripe", "secretKey") + n.field(payments.Name, "paddle", "apiKey"); got != "s1p1" {
			t.Errorf("got %q", got)
		}
		n.rotate(payments.Name, secrets.Blocks{"stripe": nil})
		if got := n.field(payments.Name, "stripe", "secretKey") + n.field(payments.Name, "paddle", "apiKey"); got != "p1" {
			t.Errorf("got %q after the removal", got)
		}
		n.advance(time.Hour)
		n.runJobs() // the jobs of finished rotations change nothing
		var history []string
		for _, r := range n.rotations(payments.Name) {
			history = append(history, fmt.Sprintf("%s %d %d %s", r.Status, r.FromVersion, r.ToVersion, r.StartedBy))
		}
		if diff := cmp.Diff([]string{"succeeded 2 3 application", "succeeded 1 2 application", "succeeded 0 1 application"}, history); diff != "" {
			t.Error(diff)
		}
		events, err := n.audit.ListEvents(context.Background(), audit.Filter{Namespace: "secrets"}, capability.NewPage(50, ""))
		if err != nil || len(events.Items) != 6 || events.Items[0].Action != "secrets/rotation_succeeded" ||
			events.Items[5].Action != "secrets/rotation_started" || events.Items[5].Subject.ID != payments.Name {
			t.Errorf("%v %v", events.Items, err)
		}
		var pending int
		if err := db.QueryRow(context.Background(), `SELECT count(*) FROM secrets_version WHERE name LIKE '%.pending'`).Scan(&pending); err != nil || pending != 0 {
			t.Errorf("%d pending versions left, %v", pending, err)
		}
	})
}

func TestHalfBlocksAreRefusedBeforeTheWrite(t *testing.T) {
	n := newNode(t, databasetest.Memory(t), secrets.Config{Secrets: []secrets.Secret{payments, bucket}})
	both := blocks("stripe", "webhookSecret", canary)
	both["paddle"] = secrets.Fields{}
	for name, tt := range map[string]struct {
		secret string
		change secrets.Blocks
		want   error
		says   string
	}{
		"one field of two":     {payments.Name, blocks("stripe", "secretKey", canary), secrets.ErrIncompleteBlock, "stripe lacks webhookSecret"},
		"empty is absent":      {payments.Name, blocks("stripe", "secretKey", canary, "webhookSecret", ""), secrets.ErrIncompleteBlock, "stripe lacks webhookSecret"},
		"no fields":            {payments.Name, blocks("paddle"), secrets.ErrIncompleteBlock, "paddle lacks apiKey"},
		"two halves":           {payments.Name, both, secrets.ErrIncompleteBlock, "stripe lacks secretKey; paddle lacks apiKey"},
		"half a pair":          {bucket.Name, blocks("bucket", "accountId", "a", "bucketName", "b", "accessKeyId", canary), secrets.ErrIncompleteBlock, "bucket lacks secretAccessKey"},
		"other half":           {bucket.Name, blocks("bucket", "accountId", "a", "bucketName", "b", "secretAccessKey", canary), secrets.ErrIncompleteBlock, "bucket lacks accessKeyId"},
		"unknown block":        {payments.Name, blocks(canary, "a", "b"), capability.ErrInvalidRequest, "has the blocks stripe, paddle"},
		"unknown block to end": {payments.Name, secrets.Blocks{canary: nil}, capability.ErrInvalidRequest, "has the blocks stripe, paddle"},
		"unknown field":        {payments.Name, blocks("paddle", "apiKey", "a", canary, "b"), capability.ErrInvalidRequest, "takes the fields apiKey"},
		"nothing":              {payments.Name, nil, capability.ErrInvalidRequest, "Give the new blocks"},
		"unknown secret":       {"none", blocks("paddle", "apiKey", "a"), secrets.ErrNotFound, ""},
		"too large": {payments.Name, blocks("stripe", "secretKey", strings.Repeat(canary, 4000), "webhookSecret", strings.Repeat("x", 30000)),
			capability.ErrInvalidRequest, "at most 65536 bytes"},
	} {
		_, err := n.Rotate(context.Background(), tt.secret, tt.change)
		if !errors.Is(err, tt.want) || !strings.Contains(fmt.Sprint(err), tt.says) {
			t.Errorf("%s: %v, want %v saying %q", name, err, tt.want, tt.says)
		}
		if refusal := capability.AsError(err); strings.Contains(fmt.Sprint(err, refusal.Details), canary) {
			t.Errorf("%s: the refusal quotes the request: %v", name, err)
		}
	}
	if got := append(n.rotations(payments.Name), n.rotations(bucket.Name)...); len(got) != 0 {
		t.Errorf("something was written: %v", got)
	}
	n.rotate(bucket.Name, blocks("bucket", "accountId", "a", "bucketName", "b", "token", "t"))
	n.rotate(bucket.Name, blocks("bucket", "accountId", "a", "bucketName", "b", "accessKeyId", "i", "secretAccessKey", "s"))
	if got := n.field(bucket.Name, "bucket", "token"); got != "" {
		t.Errorf("a replaced block kept %q", got)
	}
}

// TestACompleteChangeReplacesAVersionThatDoesNotOpen checks that a secret whose master key is lost
// can be rotated by a change that names every block, and by no other.
func TestACompleteChangeReplacesAVersionThatDoesNotOpen(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		ctx := context.Background()
		before := newNode(t, db, secrets.Config{Secrets: []secrets.Secret{payments}})
		before.rotate(payments.Name, blocks("stripe", "secretKey", "s1", "webhookSecret", "w1"))
		before.rotate(payments.Name, blocks("paddle", "apiKey", "p1"))
		n := before.with(masterKeys(t, "n"), payments)
		if _, err := n.handle(payments.Name).Get(ctx); !errors.Is(err, capability.ErrUnavailable) {
			t.Errorf("values that do not open: %v", err)
		}

		_, err := n.Rotate(ctx, payments.Name, blocks("paddle", "apiKey", canary))
		for _, says := range []string{"KIT_MASTER_KEYS", "all blocks", "stripe"} {
			if !errors.Is(err, secrets.ErrIncompleteBlock) || !strings.Contains(capability.AsError(err).Message, says) {
				t.Errorf("one block of two: %v, want it to say %s", err, says)
			}
		}
		if got := len(n.rotations(payments.Name)); got != 2 || strings.Contains(fmt.Sprint(err), canary) {
			t.Errorf("%d rotations after the refusal, want 2: %v", got, err)
		}

		r := n.rotate(payments.Name, secrets.Blocks{"paddle": {"apiKey": secrets.NewValue("p3")}, "stripe": nil})
		if r.Status != secrets.StatusSucceeded || r.FromVersion != 2 || r.ToVersion != 3 {
			t.Errorf("%+v", r)
		}
		if got := n.field(payments.Name, "paddle", "apiKey") + n.field(payments.Name, "stripe", "secretKey"); got != "p3" {
			t.Errorf("the handle returns %q, want p3", got)
		}
		if _, found, err := n.handle(payments.Name).Previous(ctx); found || err != nil {
			t.Errorf("a previous version that does not open: %v %v", found, err)
		}

		both := n.with(masterKeys(t, "mn"), payments)
		changed, err := both.Rewrap(ctx)
		if changed != 1 || !strings.Contains(fmt.Sprint(err), payments.Name+" version 2") {
			t.Errorf("rewrap: %d changed, %v, want 1 and the name of version 2", changed, err)
		}
		both.rotate(payments.Name, blocks("stripe", "secretKey", "s4", "webhookSecret", "w4")) // keeps paddle again
		got := both.field(payments.Name, "paddle", "apiKey") + both.field(payments.Name, "stripe", "secretKey")
		if got != "p3s4" {
			t.Errorf("got %q after the next rotation, want p3s4", got)
		}
		if changed, err := both.Rewrap(ctx); changed != 0 || err != nil {
			t.Errorf("rewrap after the next rotation: %d changed, %v", changed, err)
		}
	})
}

// unreadable is a provider whose reads fail.
type unreadable struct{ secrets.Provider }

func (unreadable) Read(context.Context, string, int64) (secrets.Stored, error) {
	return secrets.Stored{}, errors.New("the connection is gone")
}

func TestACompleteChangeReplacesNothingThatCannotBeRead(t *testing.T) {
	p := unreadable{secrets.NewMemory(time.Now)}
	n := newNode(t, databasetest.Memory(t), secrets.Config{Provider: p, Secrets: []secrets.Secret{payments}})
	change := blocks("stripe", "secretKey", "s1", "webhookSecret", "w1")
	change["paddle"] = nil
	if _, err := n.Rotate(context.Background(), payments.Name, change); !errors.Is(err, capability.ErrUnavailable) {
		t.Errorf("%v, want kit/unavailable", err)
	}
	if got := n.rotations(payments.Name); len(got) != 0 {
		t.Errorf("something was written: %v", got)
	}
}

func TestOneRotationAtATime(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		slow := newTarget()
		n := newNode(t, db, secrets.Config{Secrets: []secrets.Secret{slow.secret("database-password")}})
		n.rotate("database-password", nil)
		if _, err := n.Rotate(context.Background(), "database-password", nil); !errors.Is(err, secrets.ErrRotationInProgress) {
			t.Errorf("a second rotation: %v", err)
		}
	})
	t.Run("two nodes racing", func(t *testing.T) {
		dbs := databasetest.Shared(t, 2)
		cfg := secrets.Config{Secrets: []secrets.Secret{payments}}
		nodes := []*node{newNode(t, dbs[0], cfg), newNode(t, dbs[1], cfg)}
		var mu sync.Mutex
		won := 0
		var wg sync.WaitGroup
		for i := range 16 {
			wg.Go(func() {
				_, err := nodes[i%2].Rotate(context.Background(), payments.Name, blocks("paddle", "apiKey", fmt.Sprint(i)))
				mu.Lock()
				defer mu.Unlock()
				switch {
				case err == nil:
					won++
				case !errors.Is(err, secrets.ErrRotationInProgress) && !errors.Is(err, secrets.ErrVersionConflict):
					t.Error(err)
				}
			})
		}
		wg.Wait()
		history := nodes[0].rotations(payments.Name)
		last := int64(0)
		for i := len(history) - 1; i >= 0; i-- {
			switch r := history[i]; {
			case r.Status == secrets.StatusStarted:
				t.Errorf("left open: %+v", r)
			case r.Status == secrets.StatusSucceeded && r.ToVersion != last+1:
				t.Errorf("version %d after %d", r.ToVersion, last)
			case r.Status == secrets.StatusSucceeded:
				last = r.ToVersion
			}
		}
		if won == 0 || last != int64(won) {
			t.Errorf("%d won, version %d", won, last)
		}
	})
}

// target is a system whose password is rotated.
type target struct {
	accepts  map[string]bool
	made     int
	calls    []string
	fail     string // the step that fails after its work is done
	panics   bool
	failures int // the number of failures
}

func newTarget() *target { return &target{accepts: map[string]bool{}} }

func (s *target) secret(name string) secrets.Secret {
	return secrets.Secret{Name: name, Every: 24 * time.Hour,
		Blocks: []secrets.Block{{Name: "login", Required: []string{"password"}}},
		Rotator: &secrets.Rotator{
			Create: func(context.Context, secrets.Blocks) (secrets.Blocks, error) {
				s.made++
				return blocks("login", "password", fmt.Sprintf("%s-%d", canary, s.made)), s.end("create")
			},
			Set: func(_ context.Context, _, next secrets.Blocks) error {
				s.accepts[next["login"]["password"].Reveal()] = true
				return s.end("set")
			},
			Test: func(_ context.Context, next secrets.Blocks) error {
				if !s.accepts[next["login"]["password"].Reveal()] {
					return errors.New("not accepted")
				}
				return s.end("test")
			},
			Finish: func(_ context.Context, previous, _ secrets.Blocks) error {
				delete(s.accepts, previous["login"]["password"].Reveal())
				return s.end("finish")
			},
		}}
}

func (s *target) end(step string) error {
	s.calls = append(s.calls, step)
	if s.fail == step && s.failures > 0 {
		s.failures--
		if s.panics {
			panic(canary)
		}
		return errors.New("failed with " + canary)
	}
	return nil
}

// TestAutomaticRotationResumes checks that a rotation that fails, panics or is killed after any
// step resumes and ends with one new version that the system accepts, and the old one retired.
func TestAutomaticRotationResumes(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		sys := newTarget()
		n := newNode(t, db, secrets.Config{Secrets: []secrets.Secret{sys.secret("database-password")}})
		version := int64(0)
		settle := func() {
			for range 6 { // the pauses between attempts, and the one before the last step
				n.advance(70 * time.Second)
				n.runJobs()
			}
		}
		for i, step := range []string{"", "create", "set", "test", "finish", "set", "finish"} {
			sys.fail, sys.failures, sys.panics, sys.calls = step, 2, i > 4, nil
			n.advance(time.Hour)
			if _, err := n.Rotate(context.Background(), "database-password", nil); err != nil {
				t.Fatalf("%s: %v", step, err)
			}
			settle()
			version++
			last := n.rotations("database-password")[0]
			if last.Status != secrets.StatusSucceeded || last.ToVersion != version {
				t.Fatalf("%s: %+v after %v", step, last, sys.calls)
			}
			password := n.field("database-password", "login", "password")
			if len(sys.accepts) != 1 || !sys.accepts[password] {
				t.Errorf("%s: the system accepts %d passwords, the current one: %v", step, len(sys.accepts), sys.accepts[password])
			}
		}
		if text := n.log.String(); strings.Contains(text, canary) {
			t.Errorf("the log shows it: %s", text)
		}
		quiet(t, n)
	})
}

// quiet fails the test if the canary is anywhere in the tables in plaintext.
func quiet(t *testing.T, n *node) {
	t.Helper()
	for _, query := range []string{
		`SELECT detail || targets || action || code FROM audit_event`,
		`SELECT id || name || code || step FROM secrets_rotation`,
		`SELECT payload || last_error || key FROM kit_job`,
	} {
		rows, err := database.All(context.Background(), n.host.DB, func(s database.Scanner) (text string, err error) {
			return text, s.Scan(&text)
		}, query)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(strings.Join(rows, "\n"), canary) {
			t.Errorf("shows in: %s", query)
		}
	}
	sealed, err := database.All(context.Background(), n.host.DB, func(s database.Scanner) (raw []byte, err error) {
		return raw, s.Scan(&raw)
	}, `SELECT sealed FROM secrets_version WHERE sealed IS NOT NULL`)
	if err != nil || bytes.Contains(bytes.Join(sealed, nil), []byte(canary)) {
		t.Errorf("shows in what is stored, %v", err)
	}
}

// crashing is a provider whose process crashes at the n-th write.
type crashing struct {
	secrets.Provider
	at, writes int
	after      bool
}

func (c *crashing) Write(ctx context.Context, name string, after int64, payload secrets.Value) (int64, error) {
	c.writes++
	if c.writes != c.at {
		return c.Provider.Write(ctx, name, after, payload)
	}
	if c.after {
		_, _ = c.Provider.Write(ctx, name, after, payload)
	}
	return 0, errors.New("the connection is gone")
}

// TestRotationSurvivesLostWrites checks that the next node finishes a rotation after a crash at any
// write.
func TestRotationSurvivesLostWrites(t *testing.T) {
	for at := 1; at <= 2; at++ {
		for _, after := range []bool{false, true} {
			t.Run(fmt.Sprintf("write %d, done %v", at, after), func(t *testing.T) {
				sys := newTarget()
				p := &crashing{Provider: secrets.NewMemory(time.Now), at: at, after: after}
				n := newNode(t, databasetest.Memory(t), secrets.Config{Provider: p, Secrets: []secrets.Secret{sys.secret("database-password")}})
				n.rotate("database-password", nil)
				for range 5 {
					n.advance(70 * time.Second)
					n.runJobs()
				}
				last := n.rotations("database-password")[0]
				if last.Status != secrets.StatusSucceeded || last.ToVersion != 1 || !sys.accepts[n.field("database-password", "login", "password")] {
					t.Errorf("%+v", last)
				}
			})
		}
	}
	t.Run("manual, promotion lost", func(t *testing.T) {
		p := &crashing{Provider: secrets.NewMemory(time.Now), at: 2, after: true}
		n := newNode(t, databasetest.Memory(t), secrets.Config{Provider: p, Secrets: []secrets.Secret{payments}})
		if r := n.rotate(payments.Name, blocks("paddle", "apiKey", "p1")); r.Status != secrets.StatusStarted {
			t.Errorf("%+v", r)
		}
		n.advance(2 * time.Minute)
		n.runJobs()
		if r := n.rotations(payments.Name)[0]; r.Status != secrets.StatusSucceeded || r.ToVersion != 1 {
			t.Errorf("%+v", r)
		}
	})
	t.Run("manual, values lost", func(t *testing.T) {
		p := &crashing{Provider: secrets.NewMemory(time.Now), at: 1}
		n := newNode(t, databasetest.Memory(t), secrets.Config{Provider: p, Secrets: []secrets.Secret{payments}})
		if _, err := n.Rotate(context.Background(), payments.Name, blocks("paddle", "apiKey", "p1")); !errors.Is(err, capability.ErrUnavailable) {
			t.Error(err)
		}
		if r := n.rotations(payments.Name)[0]; r.Status != secrets.StatusFailed || r.Code != "kit/unavailable" {
			t.Errorf("%+v", r)
		}
		n.rotate(payments.Name, blocks("paddle", "apiKey", "p1"))
	})
}

// overtaken is a provider whose n-th write another run of the same rotation makes first.
type overtaken struct {
	secrets.Provider
	at, writes int
}

func (o *overtaken) Write(ctx context.Context, name string, after int64, payload secrets.Value) (int64, error) {
	if o.writes++; o.writes == o.at {
		if _, err := o.Provider.Write(ctx, name, after, payload); err != nil {
			return 0, err
		}
	}
	return o.Provider.Write(ctx, name, after, payload)
}

// TestRotationIsOvertakenByItself checks that of two concurrent runs, such as after a node was
// suspended, both find that the next version is current.
func TestRotationIsOvertakenByItself(t *testing.T) {
	const promotion = 2
	t.Run("manual", func(t *testing.T) {
		p := &overtaken{Provider: secrets.NewMemory(time.Now), at: promotion}
		n := newNode(t, databasetest.Memory(t), secrets.Config{Provider: p, Secrets: []secrets.Secret{payments}})
		if r := n.rotate(payments.Name, blocks("paddle", "apiKey", "p1")); r.Status != secrets.StatusSucceeded || r.ToVersion != 1 {
			t.Errorf("%+v", r)
		}
	})
	t.Run("automatic", func(t *testing.T) {
		sys := newTarget()
		p := &overtaken{Provider: secrets.NewMemory(time.Now), at: promotion}
		n := newNode(t, databasetest.Memory(t), secrets.Config{Provider: p, Secrets: []secrets.Secret{sys.secret("database-password")}})
		n.rotate("database-password", nil)
		for range 3 {
			n.advance(70 * time.Second)
			n.runJobs()
		}
		if r := n.rotations("database-password")[0]; r.Status != secrets.StatusSucceeded || r.ToVersion != 1 {
			t.Errorf("%+v after %v", r, sys.calls)
		}
	})
}

func TestScheduledRotation(t *testing.T) {
	sys := newTarget()
	n := newNode(t, databasetest.Memory(t), secrets.Config{Secrets: []secrets.Secret{sys.secret("database-password")}})
	tick := func(d time.Duration) {
		for range d / (10 * time.Minute) {
			n.advance(10 * time.Minute)
			n.runJobs()
		}
	}
	tick(time.Hour) // the first version, at once
	if r := n.rotations("database-password"); len(r) != 1 || r[0].ToVersion != 1 || r[0].StartedBy != "schedule" {
		t.Fatalf("%+v", r)
	}
	tick(22 * time.Hour)
	if r := n.rotations("database-password"); len(r) != 1 {
		t.Errorf("too early: %+v", r)
	}
	sys.fail, sys.failures = "test", 10
	tick(5 * time.Hour)
	r := n.rotations("database-password")
	if len(r) < 2 || r[len(r)-2].Status != secrets.StatusFailed || r[len(r)-2].Code != "secrets/step_failed" {
		t.Fatalf("%+v", r)
	}
	tick(5 * time.Hour) // retried after a delay
	if r := n.rotations("database-password"); r[0].Status != secrets.StatusSucceeded || r[0].ToVersion != 2 {
		t.Errorf("%+v", r)
	}
	if _, err := n.Rotate(context.Background(), "database-password", blocks("login", "password", "mine")); !errors.Is(err, capability.ErrInvalidRequest) {
		t.Errorf("values for an automatic secret: %v", err)
	}
}

// ageless is a provider that does not know when a version was written.
type ageless struct{ secrets.Provider }

func (a ageless) Read(ctx context.Context, name string, version int64) (secrets.Stored, error) {
	stored, err := a.Provider.Read(ctx, name, version)
	stored.CreatedAt = time.Time{}
	return stored, err
}

func TestScheduleGoesByTheRotationsOfAProviderWithoutTimes(t *testing.T) {
	sys := newTarget()
	n := newNode(t, databasetest.Memory(t), secrets.Config{Provider: ageless{secrets.NewMemory(time.Now)}, Secrets: []secrets.Secret{sys.secret("database-password")}})
	for range 30 * 6 {
		n.advance(10 * time.Minute)
		n.runJobs()
	}
	if r := n.rotations("database-password"); len(r) != 2 {
		t.Errorf("%d rotations in 30 hours of a secret that is rotated daily", len(r))
	}
}

// TestOrphanedRotationGoesOn checks that a rotation whose job was discarded gets a new job.
func TestOrphanedRotationGoesOn(t *testing.T) {
	sys := newTarget()
	n := newNode(t, databasetest.Memory(t), secrets.Config{Secrets: []secrets.Secret{sys.secret("database-password")}})
	n.rotate("database-password", nil)
	if _, err := n.host.DB.Exec(context.Background(), `DELETE FROM kit_job`); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		n.advance(10 * time.Minute)
		n.runJobs()
	}
	if r := n.rotations("database-password"); len(r) != 1 || r[0].Status != secrets.StatusSucceeded {
		t.Errorf("%+v", r)
	}
}

// TestFinishWaitsForEverybody checks that the previous version stays in use while some node may not
// know the next one.
func TestFinishWaitsForEverybody(t *testing.T) {
	sys := newTarget()
	n := newNode(t, databasetest.Memory(t), secrets.Config{Secrets: []secrets.Secret{sys.secret("database-password")}})
	n.rotate("database-password", nil)
	n.runJobs()
	n.advance(2*secrets.CacheFor - time.Second)
	n.runJobs()
	if diff := cmp.Diff([]string{"create", "set", "test"}, sys.calls); diff != "" {
		t.Error(diff)
	}
	if got := n.field("database-password", "login", "password"); got == "" {
		t.Error("the next version is not current yet")
	}
	n.advance(time.Second)
	n.runJobs()
	if diff := cmp.Diff([]string{"create", "set", "test", "finish"}, sys.calls); diff != "" {
		t.Error(diff)
	}
}

// settle runs the jobs of a node until its rotation has ended, the pauses between attempts included.
func (n *node) settle() {
	n.t.Helper()
	for range 12 {
		n.advance(10 * time.Minute)
		n.runJobs()
	}
}

// TestRequestedRotationReplacesAVersionThatDoesNotOpen checks that the rotator makes all blocks anew
// where somebody asks for it, and that the version before, which is unknown, is passed to no step.
func TestRequestedRotationReplacesAVersionThatDoesNotOpen(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		sys := newTarget()
		secret := sys.secret("database-password")
		secret.Every = 0
		before := newNode(t, db, secrets.Config{Secrets: []secrets.Secret{secret}})
		before.rotate(secret.Name, nil)
		before.settle()

		n := before.restart(masterKeys(t, "n"), secret)
		n.rotate(secret.Name, nil)
		n.settle()
		if r := n.rotations(secret.Name)[0]; r.Status != secrets.StatusSucceeded || r.FromVersion != 1 || r.ToVersion != 2 {
			t.Errorf("%+v after %v", r, sys.calls)
		}
		if got := n.field(secret.Name, "login", "password"); !sys.accepts[got] {
			t.Errorf("the handle returns %q, which the system does not accept", got)
		}
		if !strings.Contains(n.log.String(), "the rotator makes all blocks anew") {
			t.Errorf("the log does not say so: %s", n.log)
		}
	})
}

// TestScheduleLeavesAVersionThatDoesNotOpen checks that a schedule replaces no values on account of
// a missing master key, which the operator may still have, says so once, and rotates the others.
func TestScheduleLeavesAVersionThatDoesNotOpen(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		lost, other := newTarget(), newTarget()
		a, b := lost.secret("a-password"), other.secret("b-password")
		before := newNode(t, db, secrets.Config{Secrets: []secrets.Secret{a}})
		before.settle()
		password := before.field(a.Name, "login", "password")

		n := before.restart(masterKeys(t, "n"), a, b)
		for range 24 {
			n.settle()
		}
		if got := n.rotations(a.Name); len(got) != 1 {
			t.Errorf("rotations of the secret that does not open: %+v", got)
		}
		if got := n.rotations(b.Name); len(got) != 2 || got[0].Status != secrets.StatusSucceeded {
			t.Errorf("rotations of the other secret in two days: %+v", got)
		}
		if says := strings.Count(n.log.String(), "open with the master keys"); says != 1 {
			t.Errorf("the log says it %d times: %s", says, n.log)
		}
		statuses, err := n.ListSecrets(t.Context(), capability.Page{})
		if err != nil || !strings.Contains(statuses.Items[0].Problem, "KIT_MASTER_KEYS") || statuses.Items[1].Problem != "" {
			t.Errorf("%+v %v", statuses.Items, err)
		}

		both := n.restart(masterKeys(t, "nk"), a, b)
		if got := both.field(a.Name, "login", "password"); got != password {
			t.Error("with the key the password is another")
		}
		both.settle()
		if got := both.rotations(a.Name); len(got) != 2 || got[0].Status != secrets.StatusSucceeded {
			t.Errorf("rotations with the key: %+v", got)
		}
	})
}
