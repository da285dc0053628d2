package mailcode_test

import (
	"context"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kitbackend/kit/auth/signin/mailcode"
	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/database/databasetest"
)

var key = mailcode.Key{Kind: "sign-in", Subject: "ada@example.org"}

// each runs a test with the codes of each database.
func each(t *testing.T, fn func(t *testing.T, db *database.DB, codes *mailcode.Codes)) {
	t.Helper()
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		for _, line := range []database.Migrations{{Name: "auth", FS: os.DirFS("../../migrations")}, {Name: "signin", FS: os.DirFS("../migrations")}} {
			if err := db.Migrate(t.Context(), line); err != nil {
				t.Fatal(err)
			}
		}
		fn(t, db, mailcode.New(db))
	})
}

func issue(t *testing.T, db *database.DB, codes *mailcode.Codes, browser []byte, ttl time.Duration) (digits string) {
	t.Helper()
	err := db.InTx(t.Context(), func(ctx context.Context) (err error) {
		digits, err = codes.Issue(ctx, key, browser, ttl)
		return err
	})
	if err != nil || len(digits) != 6 {
		t.Fatalf("issued %q, %v", digits, err)
	}
	return digits
}

// guess makes a guess of a browser and takes the code if it was right.
func guess(t *testing.T, db *database.DB, codes *mailcode.Codes, browser []byte, digits string) (taken bool, refusal *capability.Error) {
	t.Helper()
	err := db.InTx(t.Context(), func(ctx context.Context) (err error) {
		var right mailcode.Code
		taken = false // it may run twice
		right, refusal, err = codes.Guess(ctx, key, browser, digits)
		if err == nil && refusal == nil {
			taken, err = codes.Take(ctx, right)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return taken, refusal
}

func wrong(digits string) string {
	if digits[0] == '9' {
		return "0" + digits[1:]
	}
	return string(digits[0]+1) + digits[1:]
}

func refusedAs(t *testing.T, refusal *capability.Error, want *capability.Error) {
	t.Helper()
	if refusal == nil || refusal.Code != want.Code {
		t.Errorf("refused with %v, want %s", refusal, want.Code)
	}
}

// A code takes three guesses in all: strangers have two of them where a browser has
// asked, which always has one.
func TestThreeGuessesInAll(t *testing.T) {
	each(t, func(t *testing.T, db *database.DB, codes *mailcode.Codes) {
		digits := issue(t, db, codes, nil, time.Minute)
		for range 3 {
			_, refusal := guess(t, db, codes, nil, wrong(digits))
			refusedAs(t, refusal, mailcode.ErrInvalid)
		}
		_, refusal := guess(t, db, codes, nil, digits)
		refusedAs(t, refusal, mailcode.ErrTooManyAttempts)

		browser := []byte("the browser that asked")
		digits = issue(t, db, codes, browser, time.Minute)
		for _, want := range []*capability.Error{mailcode.ErrInvalid, mailcode.ErrInvalid, mailcode.ErrTooManyAttempts, mailcode.ErrTooManyAttempts} {
			_, refusal := guess(t, db, codes, []byte("a stranger"), wrong(digits))
			refusedAs(t, refusal, want)
		}
		if taken, refusal := guess(t, db, codes, browser, digits); !taken || refusal != nil {
			t.Errorf("strangers have used up the guess of the browser that asked: %v", refusal)
		}
	})
}

func TestCodeIsGoodOnceAndForAWhile(t *testing.T) {
	each(t, func(t *testing.T, db *database.DB, codes *mailcode.Codes) {
		digits := issue(t, db, codes, nil, time.Minute)
		var won atomic.Int32
		var group sync.WaitGroup
		for range 3 {
			group.Go(func() {
				if taken, _ := guess(t, db, codes, nil, digits); taken {
					won.Add(1)
				}
			})
		}
		group.Wait()
		if won.Load() != 1 {
			t.Errorf("%d callers have used the code, want 1", won.Load())
		}
		_, refusal := guess(t, db, codes, nil, digits)
		refusedAs(t, refusal, mailcode.ErrInvalid)

		digits = issue(t, db, codes, nil, 0)
		_, refusal = guess(t, db, codes, nil, digits)
		refusedAs(t, refusal, mailcode.ErrExpired)
		if err := db.InTx(t.Context(), func(ctx context.Context) error { _, err := codes.Sweep(ctx, 10); return err }); err != nil {
			t.Fatal(err)
		}
		var rows int
		if err := db.QueryRow(t.Context(), `SELECT COUNT(*) FROM signin_code`).Scan(&rows); err != nil || rows != 0 {
			t.Errorf("%d codes after the sweep, %v", rows, err)
		}
	})
}

// TestTakeOnly: a second factor's code is used up by its first right guess, and what is
// not there is over.
func TestTakeOnly(t *testing.T) {
	each(t, func(t *testing.T, db *database.DB, codes *mailcode.Codes) {
		take := func(digits string) (refusal *capability.Error) {
			t.Helper()
			err := db.InTx(t.Context(), func(ctx context.Context) (err error) {
				refusal, err = codes.TakeOnly(ctx, key, digits)
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
			return refusal
		}
		refusedAs(t, take("000000"), mailcode.ErrExpired)
		digits := issue(t, db, codes, nil, time.Minute)
		refusedAs(t, take(wrong(digits)), mailcode.ErrInvalid)
		if refusal := take(digits); refusal != nil {
			t.Errorf("the right code is refused: %v", refusal)
		}
		refusedAs(t, take(digits), mailcode.ErrExpired)
	})
}
