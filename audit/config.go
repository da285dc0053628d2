package audit

import (
	"cmp"
	"time"

	"github.com/kitbackend/kit/capability"
)

// MinRetention is the minimum of Config.Retention.
const MinRetention = 24 * time.Hour

// Config configures audit; the zero value is valid.
type Config struct {
	// BasePath is the path prefix of the routes, by default /audit.
	BasePath string
	// Database is the name of the database binding of the trail, by default "DB". An event is
	// atomic with its change only if both use the same binding.
	Database string
	// Retention is how long events are kept, at least [MinRetention]; 0, the default, keeps them
	// forever.
	Retention time.Duration
}

func (c Config) withDefaults() Config {
	c.BasePath = cmp.Or(c.BasePath, "/audit")
	c.Database = cmp.Or(c.Database, "DB")
	return c
}

func (c Config) validate(faults *capability.Faults, sealer capability.Sealer) {
	if c.Retention != 0 && c.Retention < MinRetention {
		faults.Add("retention", c.Retention, "is shorter than a day", "keep events for 24 hours at least, or leave it out to keep all")
	}
	if c.Retention != 0 && sealer == nil {
		faults.Add("retention", c.Retention, "needs signed checkpoints, and there are no master keys", "give audit the master keys the kit has loaded")
	}
}

func (c Config) keys() []capability.ConfigKey {
	retention := "all"
	if c.Retention > 0 {
		retention = c.Retention.String()
	}
	return []capability.ConfigKey{
		{Key: "basePath", Value: c.BasePath, Summary: "Mount prefix."},
		{Key: "database", Value: c.Database, Summary: "The database binding that holds the trail."},
		{Key: "retention", Value: retention, Summary: "How long events are kept."},
	}
}
