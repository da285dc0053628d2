package ledger

import (
	"cmp"
	"fmt"
	"regexp"
	"strings"

	"github.com/kitbackend/kit/capability"
)

// Config configures the ledger.
type Config struct {
	// Currencies is required: at least one, each code once.
	Currencies []Currency
	// AdminScope is the scope of an access token that may credit and debit over
	// HTTP, by default "ledger:admin".
	AdminScope string
	// Database names the binding that holds the ledger, by default "DB". Tables
	// that must be atomic with the ledger are in the same one.
	Database string
	// BasePath is the mount prefix, by default "/ledger".
	BasePath string
}

// Currency is one unit of account. There is no exchange between two of them.
type Currency struct {
	// Code names it in paths: 1 to 32 letters, digits, underscores, hyphens and
	// dots, beginning with a letter or digit. Codes that differ in case only are
	// the same. "admin" is reserved for the management routes.
	Code string `json:"code"`
	// Name is the display name, by default the code.
	Name string `json:"name"`
	// Decimals, 0 to 18, is for display only: amounts are always whole minor units.
	Decimals int `json:"decimals"`
}

const maxDecimals = 18

var codeForm = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]{0,31}$`)

func (c Config) withDefaults() Config {
	c.AdminScope = cmp.Or(c.AdminScope, "ledger:admin")
	c.Database = cmp.Or(c.Database, "DB")
	c.BasePath = cmp.Or(c.BasePath, "/ledger")
	currencies := make([]Currency, len(c.Currencies))
	for i, currency := range c.Currencies {
		currency.Name = cmp.Or(currency.Name, currency.Code)
		currencies[i] = currency
	}
	c.Currencies = currencies
	return c
}

func (c Config) validate() error {
	faults := capability.Faults{Capability: Name}
	if len(c.Currencies) == 0 {
		faults.Add("currencies", nil, "is empty", "declare at least one currency")
	}
	seen := make(map[string]bool)
	for i, currency := range c.Currencies {
		at := func(field string) string { return fmt.Sprintf("currencies[%d].%s", i, field) }
		switch {
		case !codeForm.MatchString(currency.Code):
			faults.Add(at("code"), currency.Code, "is not a path segment", "use 1 to 32 letters, digits, underscores, hyphens and dots")
		case strings.EqualFold(currency.Code, "admin"):
			faults.Add(at("code"), currency.Code, "is taken by the management routes", "choose another code")
		case seen[strings.ToLower(currency.Code)]:
			faults.Add(at("code"), currency.Code, "is declared twice", "declare each currency once")
		}
		seen[strings.ToLower(currency.Code)] = true
		if currency.Decimals < 0 || currency.Decimals > maxDecimals {
			faults.Add(at("decimals"), currency.Decimals, "is out of range", "use 0 to 18")
		}
	}
	return faults.Err()
}

func (c Config) keys() []capability.ConfigKey {
	return []capability.ConfigKey{
		{Key: "currencies", Value: c.Currencies, Summary: "The currencies; decimals are for display only."},
		{Key: "adminScope", Value: c.AdminScope, Summary: "The scope that may credit and debit over HTTP."},
		{Key: "database", Value: c.Database, Summary: "The database binding that holds the ledger."},
		{Key: "basePath", Value: c.BasePath, Summary: "Where the routes are mounted."},
	}
}
