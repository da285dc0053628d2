package email

import (
	"context"
	"errors"
	"fmt"
	"math"
	"regexp"
	"strings"
	"sync"
	"time"
)

// Transport hands messages over to a provider. Applications may implement their own.
type Transport interface {
	// Deliver returns once the provider has accepted the message, with the provider's ID of the
	// message, if it has one. It is called concurrently, and ctx ends after 5 minutes. An error that
	// is not a [*Failure] counts as temporary. If the transport has a Close method, it is called when the kit closes.
	Deliver(ctx context.Context, m Envelope) (providerID string, err error)
}

func (f *Failure) Error() string {
	return strings.TrimSpace(fmt.Sprintf("%s: %d %s %s", f.Kind, f.Code, f.Enhanced, f.Message))
}

// asFailure returns an error of a transport as a failure.
func asFailure(err error) *Failure {
	var f *Failure
	if errors.As(err, &f) {
		return f
	}
	return &Failure{Kind: FailureTemporary, Message: err.Error()}
}

var (
	enhancedForm = regexp.MustCompile(`\b[245]\.\d{1,3}\.\d{1,3}\b`)
	unknownUser  = regexp.MustCompile(`(?i)(user|recipient|mailbox|account|address)[^.]{0,40}(unknown|does ?n[o']t exist|not found|no longer|disabled|inactive|unavailable|rejected)|no such (user|recipient|mailbox|person)|unknown (user|recipient|mailbox)|invalid (recipient|mailbox)`)
)

// badRecipient reports whether a status means that the mailbox does not exist. 5.1.7 and 5.1.8 are
// about the sender.
func badRecipient(code int, enhanced, text string) bool {
	switch {
	case enhanced == "5.1.7", enhanced == "5.1.8":
		return false
	case strings.HasPrefix(enhanced, "5.1."), enhanced == "5.2.1":
		return true
	case enhanced != "" && enhanced != "5.0.0" && enhanced != "5.5.0":
		return false
	default:
		return (code == 550 || code == 551 || code == 553 || code == 0) && unknownUser.MatchString(text)
	}
}

// chain is the list of providers in order.
type chain struct {
	links []*link
	now   func() time.Time
}

// link is one provider with its circuit breaker and rate limit, both of this node.
type link struct {
	Provider
	pace pacer

	mu        sync.Mutex
	failures  int
	openUntil time.Time
	probing   bool
}

func newChain(providers []Provider, now func() time.Time) chain {
	c := chain{now: now}
	for _, p := range providers {
		l := &link{Provider: p}
		if p.PerSecond > 0 {
			l.pace.interval = time.Duration(float64(time.Second) / p.PerSecond)
			l.pace.burst = p.Burst
		}
		c.links = append(c.links, l)
	}
	return c
}

// named returns the provider with a name, or nil.
func (c chain) named(name string) *link {
	for _, l := range c.links {
		if l.Name == name {
			return l
		}
	}
	return nil
}

// candidates returns the providers that a message may be handed over to: the one that may have it
// already, or all, in order.
func (c chain) candidates(pinned string) []*link {
	if l := c.named(pinned); l != nil {
		return []*link{l}
	}
	return c.links
}

// admit takes the first provider whose breaker admits a message; if none does, wait is the time
// until one will.
func (c chain) admit(candidates []*link) (first int, wait time.Duration) {
	now := c.now()
	for i, l := range candidates {
		pause, ok := l.admit(now)
		if ok {
			return i, 0
		}
		if i == 0 || pause < wait {
			wait = pause
		}
	}
	return 0, max(wait, time.Second)
}

// admit admits a message while the breaker is closed, or this one as a probe; otherwise wait is the
// time until it may.
func (l *link) admit(now time.Time) (wait time.Duration, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.openUntil.IsZero():
		return 0, true
	case now.Before(l.openUntil):
		return l.openUntil.Sub(now), false
	case l.probing:
		return time.Second, false
	}
	l.probing = true
	return 0, true
}

// deliver hands a message over. If the transport panics, it releases the admission.
func (l *link) deliver(ctx context.Context, m Envelope) (providerID string, err error) {
	defer l.release()
	if _, waits := l.Transport.(*smtpTransport); !waits { // the other bounds the attempt once it has a connection
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, attemptTime)
		defer cancel()
	}
	return l.Transport.Deliver(ctx, m)
}

// report records a result in the breaker.
func (l *link) report(f *Failure, failover Failover, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.probing = false
	if f == nil || f.Kind != FailureUnreachable {
		l.failures, l.openUntil = 0, time.Time{}
		return
	}
	if l.failures++; l.failures >= failover.UnhealthyAfter {
		l.openUntil = now.Add(failover.Cooldown)
	}
}

// release releases an admission that was not used.
func (l *link) release() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.probing = false
}

// health returns, by name, whether providers are reachable.
func (c chain) health() map[string]string {
	state := make(map[string]string)
	for _, l := range c.links {
		l.mu.Lock()
		state[l.Name] = "ok"
		if !l.openUntil.IsZero() {
			state[l.Name] = "unreachable"
		}
		l.mu.Unlock()
	}
	return state
}

func (c chain) close(context.Context) error {
	var errs []error
	for _, l := range c.links {
		if closer, ok := l.Transport.(interface{ Close() error }); ok {
			errs = append(errs, closer.Close())
		}
	}
	return errors.Join(errs...)
}

// pacer spreads messages over time. Each message that is too early gets its own time to retry, so
// that they do not all retry together.
type pacer struct {
	interval time.Duration // 0 means no bound
	burst    int

	mu   sync.Mutex
	next time.Time // when the bucket is full again
	line time.Time // the time given to the last message in line
}

// take admits one message or returns how long it must wait.
func (p *pacer) take(now time.Time) (wait time.Duration, ok bool) {
	if p.interval == 0 {
		return 0, true
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.next.Before(now) || p.next.Sub(now) > time.Duration(2*p.burst)*p.interval { // or the clock moved back
		p.next = now
	}
	if p.next.Sub(now) <= time.Duration(p.burst-1)*p.interval {
		p.next = p.next.Add(p.interval)
		return 0, true
	}
	if p.line.Before(now) || p.line.Sub(now) > day {
		p.line = now
	}
	p.line = p.line.Add(p.interval)
	return p.line.Sub(now), false
}

// allowance returns how many messages a provider in warm-up may get on a day.
func (w WarmUp) allowance(day int64) int64 {
	if day < 0 {
		return 0
	}
	return int64(min(float64(w.StartPerDay)*math.Pow(w.Growth, float64(day)), 1e12))
}

// day returns the number of the day since the start of the warm-up, which is 0.
func (w WarmUp) day(now time.Time) int64 {
	return now.UTC().Unix()/86400 - w.Since.UTC().Unix()/86400
}

// untilTomorrow returns the time to the next day in UTC.
func untilTomorrow(now time.Time) time.Duration {
	return now.UTC().Truncate(day).Add(day).Sub(now)
}
