package money_test

import (
	"math"
	"testing"

	"github.com/kitbackend/kit/payments/internal/money"
)

func TestFromMilli(t *testing.T) {
	for _, c := range []struct {
		milli    int64
		currency string
		want     int64
	}{
		{10_990, "USD", 1099}, {10_990, "usd", 1099}, {500_000, "JPY", 500}, {1_005, "KWD", 1005}, {0, "USD", 0},
		{15, "USD", 2}, {25, "USD", 2}, {26, "USD", 3}, {-25, "USD", -2}, {-26, "USD", -3},
		{math.MaxInt64, "KWD", math.MaxInt64}, {math.MaxInt64, "USD", 922337203685477581}, {math.MinInt64, "USD", -922337203685477581},
	} {
		if got := money.FromMilli(c.milli, c.currency); got != c.want {
			t.Errorf("%d thousandths of %s are %d minor units, want %d", c.milli, c.currency, got, c.want)
		}
	}
}

func TestFromUnits(t *testing.T) {
	for _, c := range []struct {
		units    int64
		nanos    int32
		currency string
		want     int64
		ok       bool
	}{
		{9, 990_000_000, "USD", 999, true}, {-1, -500_000_000, "USD", -150, true}, {500, 0, "JPY", 500, true}, {1, 5_000_000, "KWD", 1005, true},
		{1, -1, "USD", 0, false}, {-1, 1, "USD", 0, false}, {0, 1_000_000_000, "USD", 0, false},
		{math.MaxInt64, 0, "USD", 0, false}, {math.MinInt64, 0, "USD", 0, false}, {math.MinInt64, 0, "JPY", 0, false},
		{92_233_720_368_547_757, 0, "USD", 9_223_372_036_854_775_700, true},
	} {
		got, err := money.FromUnits(c.units, c.nanos, c.currency)
		if (err == nil) != c.ok || got != c.want {
			t.Errorf("%d and %d of %s are %d, %v; want %d", c.units, c.nanos, c.currency, got, err, c.want)
		}
	}
}

func TestCurrencyAndPeriod(t *testing.T) {
	for code, want := range map[string]string{"usd": "USD", "EUR": "EUR", "": "", "US": "", "U$D": "", "USDT": ""} {
		if got := money.Currency(code); got != want {
			t.Errorf("%q is %q, want %q", code, got, want)
		}
	}
	for unit, want := range map[string]string{"day": "P3D", "week": "P3W", "month": "P3M", "year": "P3Y", "": "", "moon": ""} {
		if got := money.Period(3, unit); got != want {
			t.Errorf("3 times %q is %q, want %q", unit, got, want)
		}
	}
}
