// Package money converts the amounts of stores to minor units of ISO 4217,
// exactly or not at all.
package money

import (
	"errors"
	"math"
	"math/bits"
	"strconv"
	"strings"
)

// ErrAmount reports an amount that is not a whole number of minor units, or that overflows an
// int64.
var ErrAmount = errors.New("money: not an amount in minor units")

// exponents lists the currencies of ISO 4217 that do not have two digits.
var exponents = map[string]int{
	"BIF": 0, "CLP": 0, "DJF": 0, "GNF": 0, "ISK": 0, "JPY": 0, "KMF": 0, "KRW": 0, "PYG": 0, "RWF": 0,
	"UGX": 0, "UYI": 0, "VND": 0, "VUV": 0, "XAF": 0, "XOF": 0, "XPF": 0,
	"BHD": 3, "IQD": 3, "JOD": 3, "KWD": 3, "LYD": 3, "OMR": 3, "TND": 3,
}

// Exponent returns how many decimal digits the minor unit of a currency has.
func Exponent(currency string) int {
	if digits, ok := exponents[strings.ToUpper(currency)]; ok {
		return digits
	}
	return 2
}

// Currency returns a currency code in upper case, or "" for text that is none.
func Currency(code string) string {
	if len(code) != 3 {
		return ""
	}
	code = strings.ToUpper(code)
	for _, c := range code {
		if c < 'A' || c > 'Z' {
			return ""
		}
	}
	return code
}

// FromMilli converts thousandths of the major unit. It rounds fractions of the minor unit to the
// nearest, halves to even: stores report list prices in this form, not charged amounts.
func FromMilli(milli int64, currency string) int64 {
	switch Exponent(currency) {
	case 0:
		return round(milli, 1000)
	case 2:
		return round(milli, 10)
	default:
		return milli
	}
}

func round(n, by int64) int64 {
	q, r := n/by, n%by
	if r < 0 {
		r = -r
	}
	if 2*r > by || 2*r == by && q%2 != 0 {
		if n < 0 {
			return q - 1
		}
		return q + 1
	}
	return q
}

// FromUnits converts whole units and billionths of the same sign.
func FromUnits(units int64, nanos int32, currency string) (int64, error) {
	if nanos <= -1e9 || nanos >= 1e9 || units > 0 && nanos < 0 || units < 0 && nanos > 0 {
		return 0, ErrAmount
	}
	factor := int64(math.Pow10(Exponent(currency)))
	high, low := bits.Mul64(magnitude(units), uint64(factor))
	if high != 0 || low > math.MaxInt64-uint64(factor) {
		return 0, ErrAmount
	}
	return units*factor + round(int64(nanos), 1e9/factor), nil
}

func magnitude(n int64) uint64 {
	if n < 0 {
		return uint64(-(n + 1)) + 1
	}
	return uint64(n)
}

// FromText reads minor units written as a decimal number.
func FromText(text string) (int64, error) {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return 0, ErrAmount
	}
	return n, nil
}

// Period writes a number of units, such as 3 and "month", as in ISO 8601; an
// unknown unit is "".
func Period(count int64, unit string) string {
	letters := map[string]string{"day": "D", "week": "W", "month": "M", "year": "Y"}
	letter, ok := letters[unit]
	if !ok {
		return ""
	}
	return "P" + strconv.FormatInt(max(count, 1), 10) + letter
}
