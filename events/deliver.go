package events

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/kitbackend/kit/audit"
	"github.com/kitbackend/kit/internal/wait"
	"github.com/kitbackend/kit/jobs"
	"github.com/kitbackend/kit/secrets"
)

const (
	deliverBinding = "EVENTS_DELIVER"
	// deliverRuns limits the runs of a job that were interrupted, as by a killed process; failed
	// attempts are counted by the delivery.
	deliverRuns = 100
	// storeTimeout is the time of a run in addition to the attempt.
	storeTimeout = time.Minute
	// pauseAfter is how long a node sends nothing to an endpoint after a failure, so that many
	// deliveries do not wait for one that is down.
	pauseAfter = 5 * time.Second
	// slowAfter is the duration of an attempt after which its endpoint counts as slow, for slowFor;
	// slowWorkers is the number of workers for all slow endpoints.
	slowAfter   = time.Second
	slowFor     = time.Minute
	slowWorkers = 8
	// turnEvery is the interval at which deliveries that wait for an endpoint are retried, and
	// turnsWithin the time within which all of them are.
	turnEvery   = 50 * time.Millisecond
	turnsWithin = time.Minute
	// maxResponse is how much of a response is read, in bytes: enough to reuse the connection.
	maxResponse = 64 << 10
	// maxWait is the maximum of Retry-After.
	maxWait = 24 * time.Hour
)

// schedule is the delay after each failed attempt, as in the example of the Standard Webhooks
// specification.
var schedule = []time.Duration{
	5 * time.Second, 5 * time.Minute, 30 * time.Minute, 2 * time.Hour, 5 * time.Hour,
	10 * time.Hour, 14 * time.Hour, 20 * time.Hour, 24 * time.Hour,
}

// Attempts is the maximum number of attempts of a delivery, over about three days.
const Attempts = 10

// attempt is the result of an attempt.
type attempt struct {
	status int
	err    error // nil if the endpoint accepted the message
	wait   time.Duration
}

// gone reports whether the endpoint requests no more messages.
func (a attempt) gone() bool { return a.status == http.StatusGone }

// errOvertaken is the error of an attempt whose delivery was changed concurrently, as by
// [Events.Resend].
var errOvertaken = errors.New("events: the delivery has changed")

// runDelivery makes one attempt. Its steps are ordered so that it can be killed at any point: at
// worst the message is sent to the endpoint once more.
func (e *Events) runDelivery(ctx context.Context, job jobs.Job) error {
	var t task
	if err := json.Unmarshal(job.Payload, &t); err != nil {
		return jobs.Permanent(err)
	}
	w, ok, err := e.store.pending(ctx, t)
	if err != nil || !ok {
		return err // already delivered, or the message was removed
	}
	err = e.deliver(ctx, w)
	if errors.Is(err, errOvertaken) {
		return jobs.Snooze(0) // retries, unless another job has replaced this one
	}
	return err
}

func (e *Events) deliver(ctx context.Context, w waiting) error {
	to := e.endpoints[w.Endpoint]
	if to == nil {
		return e.giveUp(ctx, w, errors.New("no endpoint of this name is configured"))
	}
	status, _, err := e.store.endpoint(ctx, w.Endpoint)
	if err != nil {
		return err
	}
	if !status.DisabledAt.IsZero() {
		return e.giveUp(ctx, w, errors.New("the endpoint was disabled"))
	}
	began := e.host.Now()
	if wait := to.begin(began, e.share(began)); wait > 0 {
		return jobs.Snooze(wait)
	}
	done := e.try(ctx, to, w.message)
	to.end(began, e.host.Now(), done.err != nil && ctx.Err() == nil)
	if ctx.Err() != nil {
		return ctx.Err() // the node is stopping, which is not a failure of the endpoint
	}
	if done.err == nil {
		return e.delivered(ctx, w, done)
	}
	return e.failed(ctx, w, done)
}

// share returns the number of workers of a slow endpoint: those that are slow now share them
// equally.
func (e *Events) share(now time.Time) int {
	slow := 0
	for _, to := range e.endpoints {
		if to.isSlow(now) {
			slow++
		}
	}
	return max(slowWorkers/max(slow, 1), 1)
}

func (e *endpoint) isSlow(now time.Time) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.slowAt(now)
}

// slowAt is isSlow with the endpoint locked.
func (e *endpoint) slowAt(now time.Time) bool {
	left := e.slow.Sub(now)
	return 0 < left && left <= slowFor // the clock may have been set back
}

// begin starts an attempt, or returns how long it has to wait: after a failure, and while a slow
// endpoint has used up its share of the workers.
func (e *endpoint) begin(now time.Time, share int) (wait time.Duration) {
	e.mu.Lock()
	defer e.mu.Unlock()
	wait = min(e.pause.Sub(now), pauseAfter) // the clock may have been set back
	if e.busy >= share && e.slowAt(now) {
		wait = max(wait, pauseAfter)
	}
	if wait <= 0 {
		e.busy++
		return 0
	}
	return e.queue(now, wait)
}

// queue returns how long a delivery waits, at least wait: the deliveries of a backlog are spread
// over time, so that they do not delay others.
func (e *endpoint) queue(now time.Time, wait time.Duration) time.Duration {
	if e.turn = e.turn.Add(turnEvery); e.turn.Before(now.Add(wait)) {
		e.turn = now.Add(wait)
	}
	if last := now.Add(turnsWithin); e.turn.After(last) {
		e.turn = last
		return wait + rand.N(turnsWithin-wait)
	}
	return e.turn.Sub(now)
}

// end records the duration of an attempt and whether it failed.
func (e *endpoint) end(began, now time.Time, failed bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.busy--
	if failed {
		e.pause = now.Add(pauseAfter)
	}
	if now.Sub(began) > slowAfter {
		e.slow = now.Add(slowFor)
	}
}

// try posts a message to an endpoint.
func (e *Events) try(ctx context.Context, to *endpoint, m message) attempt {
	body, err := json.Marshal(m.Message)
	if err != nil {
		return attempt{err: err}
	}
	keys, err := to.keys(ctx)
	if err != nil {
		return attempt{err: fmt.Errorf("there is no signing secret: %w", err)}
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, to.URL, bytes.NewReader(body))
	if err != nil {
		return attempt{err: errors.New("the address is not one")}
	}
	at := strconv.FormatInt(e.host.Now().Unix(), 10)
	r.Header = http.Header{
		"Content-Type":      {"application/json"},
		"User-Agent":        {"kit-events"},
		"Webhook-Id":        {m.id},
		"Webhook-Timestamp": {at},
		"Webhook-Signature": {sign(keys, m.id, at, body)},
	}
	response, err := to.client.Do(r)
	if err != nil {
		if at := new(url.Error); errors.As(err, &at) {
			err = at.Err // the URL may contain a token
		}
		return attempt{err: err}
	}
	defer response.Body.Close()
	_, _ = io.CopyN(io.Discard, response.Body, maxResponse) // only the status matters
	done := attempt{status: response.StatusCode}
	if done.status < 200 || done.status > 299 {
		done.err = fmt.Errorf("the endpoint returned %d", done.status)
		done.wait = wait.Told(response.Header, e.host.Now(), maxWait)
	}
	return done
}

// sign returns the signatures of a message, one for each key.
func sign(keys [][]byte, id, at string, body []byte) string {
	list := make([]string, len(keys))
	for i, key := range keys {
		mac := hmac.New(sha256.New, key)
		fmt.Fprintf(mac, "%s.%s.%s", id, at, body)
		list[i] = "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil))
	}
	return strings.Join(list, " ")
}

// The block and field of an endpoint's secret in the capability secrets.
const (
	secretBlock = "signing"
	secretField = "secret"
)

func declaration(endpoint string) secrets.Secret {
	return secrets.Secret{
		Name:   Name + "-" + endpoint,
		Blocks: []secrets.Block{{Name: secretBlock, Required: []string{secretField}}},
		Check: func(blocks secrets.Blocks) error {
			if fields, ok := blocks[secretBlock]; ok {
				if _, err := signingKey(fields[secretField].Reveal()); err != nil {
					return fmt.Errorf("The secret %w.", err) //nolint:staticcheck // it is shown as a sentence
				}
			}
			return nil
		},
	}
}

// keys returns the signing keys of messages: the current secret and, for a while after its
// rotation, the previous one.
func (e *endpoint) keys(ctx context.Context) ([][]byte, error) {
	if e.handle == nil {
		key, err := signingKey(e.Secret)
		return [][]byte{key}, err
	}
	current, err := e.handle.Get(ctx)
	if err != nil {
		return nil, err
	}
	versions := []secrets.Data{current}
	if previous, ok, err := e.handle.Previous(ctx); err != nil {
		return nil, err
	} else if ok {
		versions = append(versions, previous)
	}
	var keys [][]byte
	for _, version := range versions {
		fields, _ := version.Block(secretBlock)
		key, err := signingKey(fields[secretField].Reveal())
		if err != nil {
			return nil, err
		}
		keys = append(keys, key)
	}
	return keys, nil
}

// delivered records that the endpoint accepted a message.
func (e *Events) delivered(ctx context.Context, w waiting, done attempt) error {
	return e.host.DB.InTx(ctx, func(ctx context.Context) error {
		if err := e.store.settle(ctx, w, StateDelivered, w.made+1, done.status, "", e.host.DB.Now(ctx)); err != nil {
			return err
		}
		if err := e.store.recover(ctx, w.Endpoint); err != nil {
			return err
		}
		if w.Type == typeUserDeleted { // no data of the user may remain
			return e.store.removeTold(ctx, w.MessageID)
		}
		return nil
	})
}

// failed records a failed attempt, and decides whether the delivery is retried and the endpoint
// disabled.
func (e *Events) failed(ctx context.Context, w waiting, done attempt) error {
	made := w.made + 1
	var state State
	var reason string // why the endpoint is disabled
	err := e.host.DB.InTx(ctx, func(ctx context.Context) error {
		now := e.host.DB.Now(ctx)
		since, err := e.store.noteTrouble(ctx, w.Endpoint, now)
		if err != nil {
			return err
		}
		state, reason = StatePending, ""
		switch {
		case done.gone():
			reason = "the endpoint returned 410"
		case now.Sub(since) >= e.cfg.DisableAfter:
			reason = fmt.Sprintf("every attempt has failed for %v", e.cfg.DisableAfter)
		}
		if made >= Attempts || reason != "" {
			state = StateFailed
		}
		if err := e.store.settle(ctx, w, state, made, done.status, done.err.Error(), now); err != nil || reason == "" {
			return err
		}
		return e.disable(ctx, w.Endpoint, reason)
	})
	if err != nil {
		return err
	}
	if reason != "" {
		e.host.Log.WarnContext(ctx, "events: endpoint disabled; fix it, then call Enable and Replay",
			slog.String("endpoint", w.Endpoint), slog.String("reason", reason))
	}
	if state == StateFailed {
		return nil
	}
	pause := schedule[min(made, int64(len(schedule)))-1]
	pause += rand.N(pause/5 + 1)
	return jobs.Snooze(max(pause, done.wait))
}

// giveUp marks a delivery as failed without an attempt.
func (e *Events) giveUp(ctx context.Context, w waiting, reason error) error {
	return e.host.DB.InTx(ctx, func(ctx context.Context) error {
		return e.store.settle(ctx, w, StateFailed, w.made, 0, reason.Error(), e.host.DB.Now(ctx))
	})
}

// disable stops deliveries to an endpoint.
func (e *Events) disable(ctx context.Context, endpoint, reason string) error {
	if err := e.store.disable(ctx, endpoint, reason, e.host.DB.Now(ctx)); err != nil {
		return err
	}
	return e.audit.Record(ctx, audit.Event{Action: "events/endpoint_disabled", Subject: audit.Target{Type: "endpoint", ID: endpoint},
		Detail: map[string]string{"reason": reason}})
}
