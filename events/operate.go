package events

import (
	"context"
	"time"

	"github.com/kitbackend/kit/audit"
	"github.com/kitbackend/kit/capability"
)

// Endpoints returns the configured endpoints and their status, in the order of the configuration.
func (e *Events) Endpoints(ctx context.Context) ([]EndpointStatus, error) {
	list := make([]EndpointStatus, len(e.cfg.Endpoints))
	for i, given := range e.cfg.Endpoints {
		status, _, err := e.store.endpoint(ctx, given.Name)
		if err != nil {
			return nil, err
		}
		status.Name, status.URL = given.Name, given.URL
		if status.Pending, err = e.store.count(ctx, given.Name, StatePending, maxCounted); err != nil {
			return nil, err
		}
		if status.Failed, err = e.store.count(ctx, given.Name, StateFailed, maxCounted); err != nil {
			return nil, err
		}
		list[i] = status
	}
	return list, nil
}

// DeliveryFilter selects the deliveries to list.
type DeliveryFilter struct {
	// Endpoint is required.
	Endpoint string
	// State is the state of the deliveries; empty matches all.
	State State
}

// ListDeliveries lists the deliveries to an endpoint, newest first. Refuses with
// events/endpoint_not_found.
func (e *Events) ListDeliveries(ctx context.Context, f DeliveryFilter, page capability.Page) (capability.Items[Delivery], error) {
	var none capability.Items[Delivery]
	if e.endpoints[f.Endpoint] == nil {
		return none, ErrEndpointNotFound
	}
	page = page.Bounded()
	below := "~" // greater than every id
	if _, err := page.After(&below); err != nil {
		return none, err
	}
	rows, err := e.store.deliveries(ctx, f, below, page.Limit+1)
	if err != nil {
		return none, err
	}
	return capability.Paged(page, rows, func(d Delivery) []any { return []any{d.MessageID} }), nil
}

// Disable stops deliveries to an endpoint: further messages are stored as failed. Refuses with
// events/endpoint_not_found.
func (e *Events) Disable(ctx context.Context, endpoint, reason string) error {
	if e.endpoints[endpoint] == nil {
		return ErrEndpointNotFound
	}
	if err := capability.CheckText("reason", reason, 0, maxReason); err != nil {
		return err
	}
	return e.host.DB.InTx(ctx, func(ctx context.Context) error { return e.disable(ctx, endpoint, reason) })
}

// maxReason is the maximum size of the reason of a disabled endpoint, in bytes.
const maxReason = 200

// Enable resumes deliveries to an endpoint. [Events.Replay] sends the messages that failed in the
// meantime. Refuses with events/endpoint_not_found.
func (e *Events) Enable(ctx context.Context, endpoint string) error {
	if e.endpoints[endpoint] == nil {
		return ErrEndpointNotFound
	}
	return e.host.DB.InTx(ctx, func(ctx context.Context) error {
		if err := e.store.enable(ctx, endpoint); err != nil {
			return err
		}
		return e.audit.Record(ctx, audit.Event{Action: "events/endpoint_enabled", Subject: audit.Target{Type: "endpoint", ID: endpoint}})
	})
}

// replayChunk is how many deliveries one transaction of a replay restarts.
const replayChunk = 200

// Replay resends the failed messages of an endpoint since a time, oldest first, and returns their
// number. A call that fails midway has restarted some of them, and may be repeated. Refuses with
// events/endpoint_not_found and events/endpoint_disabled.
func (e *Events) Replay(ctx context.Context, endpoint string, since time.Time) (messages int, err error) {
	if err := e.served(ctx, endpoint); err != nil {
		return 0, err
	}
	for after := ""; ; {
		var ids []string
		err := e.host.DB.InTx(ctx, func(ctx context.Context) (err error) {
			if ids, err = e.store.failedSince(ctx, endpoint, since, after, replayChunk); err != nil {
				return err
			}
			for _, messageID := range ids {
				if err := e.restart(ctx, endpoint, messageID); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return messages, err
		}
		if messages += len(ids); len(ids) < replayChunk {
			break
		}
		after = ids[len(ids)-1]
	}
	return messages, e.audit.Record(ctx, audit.Event{Action: "events/replayed", Subject: audit.Target{Type: "endpoint", ID: endpoint},
		Detail: map[string]int{"messages": messages}})
}

// Resend sends one message to an endpoint again, whatever the state of its delivery; ok is false if
// the message was never sent to the endpoint, or no longer exists. Refuses with
// events/endpoint_not_found and events/endpoint_disabled.
func (e *Events) Resend(ctx context.Context, endpoint, messageID string) (ok bool, err error) {
	if err := e.served(ctx, endpoint); err != nil {
		return false, err
	}
	err = e.host.DB.InTx(ctx, func(ctx context.Context) error {
		if ok, err = e.store.has(ctx, endpoint, messageID); err != nil || !ok {
			return err
		}
		return e.restart(ctx, endpoint, messageID)
	})
	return ok, err
}

// restart makes a delivery due now. Its job may wait for the next attempt, or still run, so a new
// job replaces it.
func (e *Events) restart(ctx context.Context, endpoint, messageID string) error {
	t, now := task{endpoint, messageID}, e.host.DB.Now(ctx)
	if err := e.store.restart(ctx, t, now); err != nil {
		return err
	}
	return e.host.Jobs.SetAlarm(ctx, deliverBinding, t.key(), now, t)
}

// served refuses an unknown or disabled endpoint.
func (e *Events) served(ctx context.Context, endpoint string) error {
	if e.endpoints[endpoint] == nil {
		return ErrEndpointNotFound
	}
	status, _, err := e.store.endpoint(ctx, endpoint)
	if err == nil && !status.DisabledAt.IsZero() {
		err = ErrDisabled
	}
	return err
}
