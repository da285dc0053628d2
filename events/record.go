package events

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/kitbackend/kit/hooks"
	"github.com/kitbackend/kit/internal/id"
	"github.com/kitbackend/kit/jobs"
)

// The types that the outbox treats specially.
const (
	typeMatchStarted = "match.started"
	typeMatchEnded   = "match.ended"
	typeUserDeleted  = "user.deleted"
)

// Types lists the types of events, in the order of package hooks.
func Types() []string {
	var list []string
	hooks.New().Each(func(h hooks.Any) { list = append(list, typeOf(h)) })
	return list
}

// typeOf returns the name of a hook as event type.
func typeOf(h hooks.Any) string { return strings.ReplaceAll(h.Name(), "_", ".") }

// attach records the events of hooks as messages if an endpoint is configured for them.
func (e *Events) attach(list *hooks.Hooks) {
	list.Each(func(h hooks.Any) {
		kind := typeOf(h)
		var to []string
		for _, given := range e.cfg.Endpoints {
			if len(given.Events) == 0 || slices.Contains(given.Events, kind) {
				to = append(to, given.Name)
			}
		}
		if len(to) > 0 {
			h.InAny(func(ctx context.Context, event any) error { return e.record(ctx, kind, to, event) })
		}
	})
}

// subjects returns the subjects that a message of the event is about.
func subjects(event any) []string {
	switch v := event.(type) {
	case hooks.UserCreated:
		return []string{v.UserID}
	case hooks.UserUpdated:
		return []string{v.UserID}
	case hooks.UserDeleted:
		return []string{v.UserID}
	case hooks.Session:
		return []string{v.UserID}
	case hooks.SessionEnded:
		return []string{v.UserID}
	case hooks.EntitlementsChanged:
		if v.SubjectType != "user" {
			return nil
		}
		return []string{v.SubjectID}
	case hooks.MatchStarted:
		return slices.Sorted(slices.Values(v.Players)) // rows are written in a fixed order
	case hooks.MatchEnded:
		return slices.Sorted(maps.Keys(v.Ranks))
	case hooks.MailSuppressed:
		list := []string{byMail(v.Address)}
		if v.UserID != "" {
			list = append(list, v.UserID)
		}
		return list
	case hooks.MediaReady:
		return []string{v.OwnerID}
	case hooks.MediaDeleted:
		return []string{v.OwnerID}
	case hooks.SupportReceived:
		if v.UserID == "" {
			return nil
		}
		return []string{v.UserID}
	}
	panic(fmt.Sprintf("events: nobody has said whom %T is about", event))
}

// byMail returns the subject of a message about an address.
func byMail(address string) string { return "mail:" + address }

// record writes a message and its deliveries in the transaction of the change.
func (e *Events) record(ctx context.Context, kind string, to []string, event any) error {
	data, err := json.Marshal(event)
	if err != nil {
		return err
	}
	return e.host.DB.InTx(ctx, func(ctx context.Context) error {
		now := e.host.DB.Now(ctx)
		messageID := "msg_" + id.New(now)
		if err := e.store.insert(ctx, messageID, kind, string(data), subjects(event), now); err != nil {
			return err
		}
		disabled, err := e.store.disabled(ctx)
		if err != nil {
			return err
		}
		for _, name := range to {
			if slices.Contains(disabled, name) {
				err = e.store.insertDelivery(ctx, name, messageID, StateFailed, "the endpoint was disabled", now)
			} else if err = e.store.insertDelivery(ctx, name, messageID, StatePending, "", now); err == nil {
				err = e.enqueue(ctx, task{name, messageID})
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// task is the payload of the job of a delivery.
type task struct {
	Endpoint  string `json:"endpoint"`
	MessageID string `json:"messageId"`
}

// key returns the key of the delivery's job: a delivery has at most one.
func (t task) key() string { return t.Endpoint + "/" + t.MessageID }

func (e *Events) enqueue(ctx context.Context, t task) error {
	_, err := e.host.Jobs.Enqueue(ctx, deliverBinding, t, jobs.Key(t.key()))
	return err
}
