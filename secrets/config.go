package secrets

import (
	"cmp"

	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/internal/seal"
)

// Config configures secrets; the zero value is valid.
type Config struct {
	// BasePath is the path prefix of the routes, by default /secrets.
	BasePath string
	// Database is the name of the database binding of the rotation history and the SQL provider, by
	// default "DB".
	Database string
	// Provider stores the secrets; by default they are stored in the database, encrypted.
	Provider Provider
	// Secrets are the secrets of the application; capabilities declare their own.
	Secrets []Secret
}

func (c Config) withDefaults(host capability.Host, faults *capability.Faults) Config {
	c.BasePath = cmp.Or(c.BasePath, "/secrets")
	c.Database = cmp.Or(c.Database, "DB")
	if c.Provider != nil {
		return c
	}
	if host.Sealing == nil {
		faults.Add("masterKeys", nil, "are missing: secrets are kept encrypted", "set "+seal.Variable+", or give a Provider")
		return c
	}
	sealer, err := host.Sealing()
	if err != nil {
		faults.Join(err)
		return c
	}
	c.Provider = NewSQL(host.DB, sealer)
	return c
}

func (c Config) validate(host capability.Host, faults *capability.Faults) {
	if kept, ok := c.Provider.(*SQL); ok && kept.sealer.Ephemeral() && host.Production() {
		faults.Add("masterKeys", nil, "were made up for this run: secrets would be lost with it", "set "+seal.Variable)
	}
}

func (c Config) keys() []capability.ConfigKey {
	names := []string{}
	for _, s := range c.Secrets {
		names = append(names, s.Name)
	}
	return []capability.ConfigKey{
		{Key: "basePath", Value: c.BasePath, Summary: "Mount prefix."},
		{Key: "database", Value: c.Database, Summary: "The database binding of the history of rotations."},
		{Key: "secrets", Value: names, Summary: "The secrets that the application declares."},
		{Key: "provider", Value: c.Provider.Name(), Summary: "Where secrets are kept."},
	}
}
