package kit

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/kitbackend/kit/jobs"
)

// Stats are the figures of this node, for monitoring without an OpenTelemetry SDK.
type Stats struct {
	// Routes are those that have been called since the process began.
	Routes []RouteStats
	// Refusals counts the refused requests by code, since the process began.
	Refusals map[string]int64
	// Jobs are the queues by the name of their database.
	Jobs map[string]jobs.Stats
	// Health holds the figures of the capabilities' health, of all nodes, by
	// capability and key: "ledger" "openHolds". Those inside of an object have its
	// key before a dot: "jobs.queued". A reading may be 30 seconds old.
	Health map[string]map[string]float64
}

// RouteStats counts the requests of one route.
type RouteStats struct {
	Method, Path string
	// Requests counts all of them, Failures those with a status of 500 and above.
	Requests, Failures int64
	// Took is the time that all requests took together.
	Took time.Duration
}

// Stats returns the figures. With an error it still returns those that could be read.
func (k *Kit) Stats(ctx context.Context) (Stats, error) {
	counts, refusals := k.mount.Counts()
	s := Stats{Refusals: refusals, Jobs: make(map[string]jobs.Stats), Health: make(map[string]map[string]float64)}
	for _, c := range counts {
		s.Routes = append(s.Routes, RouteStats(c))
	}
	var faults []error
	for _, b := range k.bindings {
		stats, err := b.queue.Stats(ctx)
		if err != nil {
			faults = append(faults, fmt.Errorf("queue %s: %w", b.name, err))
			continue
		}
		s.Jobs[b.name] = stats
	}
	for _, c := range k.capabilities {
		figures := make(map[string]float64)
		for _, key := range c.Health {
			value, err := key.Read(ctx)
			if err != nil {
				faults = append(faults, fmt.Errorf("%s.%s: %w", c.Name, key.Key, err))
				continue
			}
			flattenInto(figures, key.Key, value)
		}
		if len(figures) > 0 {
			s.Health[c.Name] = figures
		}
	}
	return s, errors.Join(faults...)
}

// flattenInto adds the numbers of a value as its JSON has them.
func flattenInto(figures map[string]float64, name string, value any) {
	text, err := json.Marshal(value)
	if err != nil {
		return
	}
	var read any
	if json.Unmarshal(text, &read) == nil {
		flatten(figures, name, read)
	}
}

func flatten(figures map[string]float64, name string, value any) {
	switch value := value.(type) {
	case float64:
		figures[name] = value
	case bool:
		figures[name] = 0
		if value {
			figures[name] = 1
		}
	case map[string]any:
		for key, inner := range value {
			flatten(figures, name+"."+key, inner)
		}
	}
}

// meter registers gauges for those figures of [Kit.Stats] that no counter of the OpenTelemetry API
// covers; without an SDK nothing reads them.
func (k *Kit) meter() {
	meter := otel.Meter("github.com/kitbackend/kit")
	health, first := meter.Float64ObservableGauge("kit.health",
		metric.WithDescription("The figures of the capabilities' health, over all nodes."))
	waiting, second := meter.Int64ObservableGauge("kit.jobs.count",
		metric.WithDescription("Jobs by state, over all nodes."))
	lag, third := meter.Float64ObservableGauge("kit.jobs.lag", metric.WithUnit("s"),
		metric.WithDescription("How long the job that is due longest has waited."))
	if err := errors.Join(first, second, third); err != nil {
		otel.Handle(err)
		return
	}
	registered, err := meter.RegisterCallback(func(ctx context.Context, o metric.Observer) error {
		stats, err := k.Stats(ctx)
		for _, name := range slices.Sorted(maps.Keys(stats.Health)) {
			for key, value := range stats.Health[name] {
				o.ObserveFloat64(health, value, metric.WithAttributes(attribute.String("capability", name), attribute.String("key", key)))
			}
		}
		for name, queue := range stats.Jobs {
			database := attribute.String("database", name)
			o.ObserveFloat64(lag, queue.Lag.Seconds(), metric.WithAttributes(database))
			for state, n := range map[jobs.State]int64{jobs.StateAvailable: queue.Available, jobs.StateRunning: queue.Running, jobs.StateDiscarded: queue.Discarded} {
				o.ObserveInt64(waiting, n, metric.WithAttributes(database, attribute.String("state", string(state))))
			}
		}
		return err
	}, health, waiting, lag)
	if err != nil {
		otel.Handle(err)
		return
	}
	k.unmeter = registered.Unregister
}
