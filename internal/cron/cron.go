// Package cron parses five-field cron expressions and finds the instants that match. Everything is
// UTC, so no tick is doubled or left out by a change of local time.
package cron

import (
	"errors"
	"fmt"
	"math/bits"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/robfig/cron/v3"
)

const (
	maxLength = 256
	// longestGap is the number of days between two 29ths of February around a year like 2100, and one more.
	longestGap = 8*366 + 1
	// star is the bit by which the parser marks a field written as *.
	star = 1 << 63
)

var (
	parser = cron.NewParser(cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow)
	// field is narrower than the parser: no TZ=, no @every, no empty items, no signs.
	field = regexp.MustCompile(`^` + item + `(,` + item + `)*$`)
)

const item = `(\*|[0-9]{1,2}(-[0-9]{1,2})?|[A-Za-z]{3}(-[A-Za-z]{3})?)(/[0-9]{1,2})?`

// Schedule is a set of instants, each a whole minute. Parse makes it; the zero value has none.
type Schedule struct {
	text                               string
	minutes, hours, days, months, week uint64
}

// Parse reads "minute hour day-of-month month day-of-week", at most 256 bytes: numbers, ranges, lists, steps and
// three-letter names; Sunday is 0 or 7. A day matches when either day field does, if both are restricted. Time zones,
// descriptors such as @daily and expressions that never come true are refused.
func Parse(text string) (Schedule, error) {
	if len(text) > maxLength {
		return Schedule{}, fmt.Errorf("cron: longer than %d bytes", maxLength)
	}
	fields := strings.Fields(text)
	if len(fields) != 5 {
		return Schedule{}, fmt.Errorf("cron: %q has %d fields, not 5", text, len(fields))
	}
	for _, f := range fields {
		if !field.MatchString(f) {
			return Schedule{}, fmt.Errorf("cron: %q is not a field of a schedule", f)
		}
	}
	text = strings.Join(fields, " ")
	fields[4] = sundays(fields[4])
	parsed, err := parser.Parse(strings.Join(fields, " "))
	if err != nil {
		return Schedule{}, fmt.Errorf("cron: %q: %w", text, err)
	}
	spec := parsed.(*cron.SpecSchedule)
	s := Schedule{text, spec.Minute &^ star, spec.Hour, spec.Dom, spec.Month, spec.Dow}
	if s.Next(time.Unix(0, 0)).IsZero() {
		return Schedule{}, errors.New("cron: no day is ever " + text)
	}
	return s, nil
}

// sundays writes the day 7 of a day-of-week field as 0, which the parser knows.
func sundays(field string) string {
	items := strings.Split(field, ",")
	for i, text := range items {
		days, step, stepped := strings.Cut(text, "/")
		low, high, ranged := strings.Cut(days, "-")
		from, err := strconv.Atoi(low)
		if err != nil {
			continue
		}
		to, by := from, 1
		if ranged {
			to, err = strconv.Atoi(high)
		} else if stepped {
			to = 7
		}
		if stepped && err == nil {
			by, err = strconv.Atoi(step)
		}
		if err != nil || from > 7 || to > 7 || from > to || by < 1 || from < 7 && (!ranged || to < 7) {
			continue // nothing to do with 7, or for the parser to refuse
		}
		var list []string
		for day := from; day <= to; day += by {
			list = append(list, strconv.Itoa(day%7))
		}
		items[i] = strings.Join(list, ",")
	}
	return strings.Join(items, ",")
}

// String returns the expression, its fields separated by one space.
func (s Schedule) String() string { return s.text }

// Next returns the first instant after t.
func (s Schedule) Next(t time.Time) time.Time {
	day, minute := split(t)
	minute++
	for range longestGap {
		if m := s.first(minute); m >= 0 && s.has(day) {
			return day.Add(time.Duration(m) * time.Minute)
		}
		day, minute = day.AddDate(0, 0, 1), 0
	}
	return time.Time{}
}

// Latest returns the last instant at or before t. The window that t is in opens at Latest(t) and ends before Next(t).
func (s Schedule) Latest(t time.Time) time.Time {
	day, minute := split(t)
	for range longestGap {
		if m := s.last(minute); m >= 0 && s.has(day) {
			return day.Add(time.Duration(m) * time.Minute)
		}
		day, minute = day.AddDate(0, 0, -1), 24*60-1
	}
	return time.Time{}
}

// split returns the day of t, as its midnight, and the minute of that day.
func split(t time.Time) (day time.Time, minute int) {
	t = t.UTC()
	year, month, d := t.Date()
	return time.Date(year, month, d, 0, 0, 0, 0, time.UTC), t.Hour()*60 + t.Minute()
}

func (s Schedule) has(day time.Time) bool {
	if s.months>>day.Month()&1 == 0 {
		return false
	}
	date, weekday := s.days>>day.Day()&1 == 1, s.week>>day.Weekday()&1 == 1
	if (s.days|s.week)&star != 0 {
		return date && weekday
	}
	return date || weekday
}

// first returns the first minute of a day at or after from, -1 when there is none.
func (s Schedule) first(from int) int {
	for h, m := from/60, from%60; h < 24; h, m = h+1, 0 {
		if rest := s.minutes >> m; s.hours>>h&1 == 1 && rest != 0 {
			return h*60 + m + bits.TrailingZeros64(rest)
		}
	}
	return -1
}

// last returns the last minute of a day at or before to, -1 when there is none.
func (s Schedule) last(to int) int {
	for h, m := to/60, to%60; h >= 0; h, m = h-1, 59 {
		if rest := s.minutes << (63 - m); s.hours>>h&1 == 1 && rest != 0 {
			return h*60 + m - bits.LeadingZeros64(rest)
		}
	}
	return -1
}
