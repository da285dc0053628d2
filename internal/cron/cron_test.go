package cron_test

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	robfig "github.com/robfig/cron/v3"

	"github.com/kitbackend/kit/internal/cron"
)

func at(t *testing.T, text string) time.Time {
	t.Helper()
	instant, err := time.Parse(time.RFC3339, text)
	if err != nil {
		t.Fatal(err)
	}
	return instant
}

func TestNextAndLatest(t *testing.T) {
	for _, c := range []struct{ expression, now, latest, next string }{
		{"* * * * *", "2026-11-21T10:00:30Z", "2026-11-21T10:00:00Z", "2026-11-21T10:01:00Z"},
		{"* * * * *", "2026-11-21T10:00:00Z", "2026-11-21T10:00:00Z", "2026-11-21T10:01:00Z"},
		{"*/15 9-17 * * mon-fri", "2026-11-21T10:00:00Z", "2026-11-20T17:45:00Z", "2026-11-23T09:00:00Z"},
		// Month ends.
		{"0 0 31 * *", "2026-11-21T10:00:00Z", "2026-10-31T00:00:00Z", "2026-12-31T00:00:00Z"},
		{"0 0 1 * *", "2027-01-31T23:59:59Z", "2027-01-01T00:00:00Z", "2027-02-01T00:00:00Z"},
		{"59 23 28-31 2 *", "2027-02-28T23:58:00Z", "2026-02-28T23:59:00Z", "2027-02-28T23:59:00Z"},
		{"0 0 29 2 *", "2026-03-01T00:00:00Z", "2024-02-29T00:00:00Z", "2028-02-29T00:00:00Z"},
		{"0 0 29 2 *", "2098-01-01T00:00:00Z", "2096-02-29T00:00:00Z", "2104-02-29T00:00:00Z"},
		{"0 0 29 2 *", "2104-02-28T23:59:59Z", "2096-02-29T00:00:00Z", "2104-02-29T00:00:00Z"},
		// Both day fields restricted: either one.
		{"0 12 13 * fri", "2026-11-21T10:00:00Z", "2026-11-20T12:00:00Z", "2026-11-27T12:00:00Z"},
		// Hours that Europe and America skip or repeat.
		{"30 2 * * *", "2027-03-28T01:00:00Z", "2027-03-27T02:30:00Z", "2027-03-28T02:30:00Z"},
		{"30 1 * * *", "2026-10-25T03:30:00+01:00", "2026-10-25T01:30:00Z", "2026-10-26T01:30:00Z"},
		{"0 0 1 1 *", "2026-12-31T23:59:59.999Z", "2026-01-01T00:00:00Z", "2027-01-01T00:00:00Z"},
	} {
		s, err := cron.Parse(c.expression)
		if err != nil {
			t.Fatal(err)
		}
		now := at(t, c.now)
		if got := s.Latest(now); !got.Equal(at(t, c.latest)) || got.Location() != time.UTC {
			t.Errorf("%q: Latest(%s) = %s, want %s", c.expression, c.now, got, c.latest)
		}
		if got := s.Next(now); !got.Equal(at(t, c.next)) || got.Location() != time.UTC {
			t.Errorf("%q: Next(%s) = %s, want %s", c.expression, c.now, got, c.next)
		}
	}
}

// Next is the library's, and Latest its inverse: no instant is between Latest(t) and Next(t) but Latest(t) itself.
func TestLaws(t *testing.T) {
	expressions := []string{"* * * * *", "*/7 * * * *", "0 0 * * *", "5,35 */6 1,15 * *", "0 3 * * 0", "59 23 31 * *",
		"1-9/4 2-22/5 */3 1-11/2 *", "0 0 13 * 5", "30 12 * feb mon", "0 0 29 2 *", "10/20 7/9 * * *"}
	for _, expression := range expressions {
		s, err := cron.Parse(expression)
		if err != nil {
			t.Fatal(err)
		}
		peer, err := robfig.ParseStandard(expression)
		if err != nil {
			t.Fatal(err)
		}
		for range 300 {
			now := time.Unix(rand.Int64N(80*366*24*3600), rand.Int64N(1e9)).UTC()
			next, latest := s.Next(now), s.Latest(now)
			if want := peer.Next(now); !next.Equal(want) {
				t.Fatalf("%q: Next(%s) = %s, want %s", expression, now, next, want)
			}
			if latest.After(now) || !s.Next(latest).Equal(next) || !s.Latest(latest).Equal(latest) || !s.Latest(next).Equal(next) {
				t.Fatalf("%q at %s: latest %s, next %s", expression, now, latest, next)
			}
		}
	}
}

func TestParseRefuses(t *testing.T) {
	for _, text := range []string{"", "* * * *", "* * * * * *", "@every 1s", "@daily", "TZ=UTC * * * * *", "TZ=UTC", "CRON_TZ=Asia/Tokyo 0 0 * * *",
		"60 * * * *", "* 24 * * *", "* * 0 * *", "* * 32 * *", "* * * 13 *", "* * * * 8", "* * * * 6-8", "* * * * 7-6", "* * * * 7-7/0", "*/0 * * * *", "-1 * * * *", "+1 * * * *",
		", * * * *", "1,,2 * * * *", "5-1 * * * *", "*-5 * * * *", "1-2-3 * * * *", "* * * foo *", "? * * * *", "*/ * * * *", "1/2/3 * * * *",
		"0 0 30 2 *", "0 0 31 2,4,6,9,11 *", "\x00 * * * *", strings.Repeat("1,", 200) + "1 * * * *"} {
		if s, err := cron.Parse(text); err == nil {
			t.Errorf("%q is read as %q", text, s)
		}
	}
}

// Sunday is 7 as well as 0, alone, in lists, in ranges and in steps.
func TestSundayIsSeven(t *testing.T) {
	for seven, zero := range map[string]string{
		"7": "0", "1,7": "1,0", "5-7": "5,6,0", "0-7": "0-6", "1-7/2": "1,3,5,0", "7-7": "0", "1-7": "*",
	} {
		s, err := cron.Parse("0 0 * * " + seven)
		if err != nil {
			t.Error(err)
			continue
		}
		peer, err := cron.Parse("0 0 * * " + zero)
		if err != nil {
			t.Fatal(err)
		}
		at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
		for range 60 {
			got, want := s.Next(at), peer.Next(at)
			if !got.Equal(want) {
				t.Errorf("%s: after %s comes %s, want %s", seven, at, got, want)
				break
			}
			at = got
		}
		if s.String() != "0 0 * * "+seven {
			t.Errorf("%s is shown as %s", seven, s)
		}
	}
}

func TestString(t *testing.T) {
	s, err := cron.Parse("  0\t3  * * MON ")
	if err != nil || s.String() != "0 3 * * MON" {
		t.Errorf("got %q, %v", s, err)
	}
}

func FuzzParse(f *testing.F) {
	for _, text := range []string{"* * * * *", "*/15 9-17 * * mon-fri", "0 0 29 2 *", "TZ=", "@every 1s", "1/99 * * * *"} {
		f.Add(text)
	}
	now := time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC)
	f.Fuzz(func(t *testing.T, text string) {
		s, err := cron.Parse(text)
		if err != nil {
			return
		}
		if next := s.Next(now); !next.After(now) || !s.Latest(next).Equal(next) {
			t.Errorf("%q: next %s", text, next)
		}
		if again, err := cron.Parse(s.String()); err != nil || again != s {
			t.Errorf("%q is read again as %q: %v", s, again, err)
		}
	})
}
