package email

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"math/rand/v2"
	"regexp"
	"time"

	"github.com/kitbackend/kit/internal/optional"
	"github.com/kitbackend/kit/internal/text"
	"github.com/kitbackend/kit/jobs"
)

// The bindings of email.
const (
	sendBinding  = "EMAIL_SEND"
	sweepBinding = "EMAIL_SWEEP"
)

const (
	// attemptTime bounds one attempt to hand over a message.
	attemptTime = 5 * time.Minute
	// sendTime bounds a run, in which the message may have to wait for those before it.
	sendTime = 30 * time.Minute
	// unopenedPause is how long a message waits that was sealed under a master key which this node
	// does not have, as while the keys are replaced.
	unopenedPause = time.Minute
)

// errNoConnection is the error of a transport that did not attempt to deliver because none of its connections was free.
var errNoConnection = errors.New("email: no connection was free")

func (e *Email) jobs() []jobs.Binding {
	return []jobs.Binding{
		// Messages count their attempts themselves. Every process that dies uses up one of these,
		// also for jobs that it had claimed but not started.
		{Name: sendBinding, MaxAttempts: 1000, Timeout: sendTime, Run: e.runSend},
		{Name: sweepBinding, Schedule: "41 * * * *", Run: e.runSweep},
	}
}

func (e *Email) runSend(ctx context.Context, job jobs.Job) error {
	var jobID string
	if err := json.Unmarshal(job.Payload, &jobID); err != nil {
		return jobs.Permanent(err)
	}
	return e.deliver(ctx, jobID)
}

// deliver makes one attempt to deliver a message.
func (e *Email) deliver(ctx context.Context, jobID string) error {
	var a admission
	var s start
	err := e.store.atOnce(ctx, func(ctx context.Context) (err error) {
		s, err = e.start(ctx, jobID, &a)
		return err
	})
	begun := err == nil && s.begun
	if !begun {
		a.release()
	}
	switch {
	case err != nil:
		return err
	case s.over != nil:
		return e.settle(ctx, s.delivery, *s.over)
	case s.wait > 0:
		return jobs.Snooze(s.wait)
	case !begun:
		return nil
	}
	return e.settle(ctx, s.delivery, e.attempt(ctx, a.links, s.delivery, s.message))
}

// start is what precedes an attempt: it has begun, or the message has an outcome without it, or waits, or is not to be
// sent any more.
type start struct {
	delivery
	begun   bool
	message []byte
	over    *outcome
	wait    time.Duration
}

// start counts an attempt, if there is to be one.
func (e *Email) start(ctx context.Context, jobID string, a *admission) (s start, err error) {
	d, found, err := e.store.due(ctx, jobID)
	if err != nil || !found {
		return s, err
	}
	s.delivery = d
	key, err := e.subject(ctx, d.addressKey)
	if err != nil {
		return s, err
	}
	held, err := e.holds(ctx, key, d.category)
	switch {
	case err != nil:
		return s, err
	case held:
		return s.ends(StateSuppressed, nil), nil
	case d.attempts >= d.maxAttempts:
		return s.ends(StateFailed, &Failure{Kind: FailureTemporary, Message: "the process ended in the last attempt"}), nil
	}
	if len(d.sealed) == 0 {
		return s.ends(StateFailed, &Failure{Kind: FailurePermanent, Message: "the message is gone"}), nil
	}
	if s.message, err = e.sealer.Open(messageContext(jobID), d.sealed); err != nil {
		const reason = "the message does not open with the master keys of this node"
		if e.host.Now().Sub(d.roundBeganAt) > e.cfg.Retry.GiveUpAfter {
			return s.ends(StateFailed, &Failure{Kind: FailurePermanent, Message: reason}), nil
		}
		e.host.Log.WarnContext(ctx, "email: "+reason+", it waits for one that has the key", slog.String("job", jobID))
		s.wait = unopenedPause
		return s, nil
	}
	a.ask(e.chain, d.pinnedTo)
	if a.down > 0 {
		if e.host.Now().Sub(d.roundBeganAt) > e.cfg.Retry.GiveUpAfter {
			return s.ends(StateFailed, &Failure{Kind: FailureUnreachable, Message: "no provider could be reached in time"}), nil
		}
		s.wait = a.down
		return s, nil
	}
	if s.wait = a.pause; s.wait == 0 {
		s.wait, err = e.warmUp(ctx, a.links[0])
	}
	if err == nil && s.wait > 0 && d.attempts == 0 { // waiting for the kit's own limits does not count as time of the round
		err = e.store.beginLater(ctx, jobID, e.host.Now().Add(s.wait))
	}
	if err != nil || s.wait > 0 {
		return s, err
	}
	s.begun, err = e.store.begin(ctx, jobID)
	s.attempts++
	return s, err
}

// ends returns a start without an attempt.
func (s start) ends(state State, failure *Failure) start {
	s.over = &outcome{state: state, failure: failure}
	return s
}

// admission is what the breakers and the pace of the providers say to an attempt. They are asked once, because the
// transaction of its start may run again.
type admission struct {
	asked bool
	links []*link // the first has admitted the message
	down  time.Duration
	pause time.Duration
}

func (a *admission) ask(c chain, pinnedTo string) {
	if a.asked {
		return
	}
	a.asked = true
	candidates := c.candidates(pinnedTo)
	first, wait := c.admit(candidates)
	if a.down = wait; wait > 0 {
		return
	}
	a.links = candidates[first:]
	a.pause, _ = a.links[0].pace.take(c.now())
}

// release releases an admission that was not used.
func (a *admission) release() {
	if len(a.links) > 0 {
		a.links[0].release()
	}
}

// allow takes one message from a provider's rate and warm-up.
func (e *Email) allow(ctx context.Context, l *link) (wait time.Duration, err error) {
	if wait, ok := l.pace.take(e.host.Now()); !ok {
		return wait, nil
	}
	return e.warmUp(ctx, l)
}

// warmUp takes one message from what a provider in warm-up may get today.
func (e *Email) warmUp(ctx context.Context, l *link) (wait time.Duration, err error) {
	if l.WarmUp == nil {
		return 0, nil
	}
	now := e.host.Now()
	n := l.WarmUp.day(now)
	ok, err := e.store.useWarmup(ctx, l.Name, n, l.WarmUp.allowance(n))
	if err != nil || ok {
		return 0, err
	}
	return untilTomorrow(now) + rand.N(time.Hour), nil
}

// outcome is the result of an attempt. State is Queued if the attempt will be repeated.
type outcome struct {
	state      State
	provider   string
	providerID string
	failure    *Failure
	// pinned is set if the provider may have the message.
	pinned bool
	// untried is set if there was no attempt.
	untried bool
}

// attempt tries the providers until one accepts or refuses the message. It tries the next one only
// if nothing was handed over.
func (e *Email) attempt(ctx context.Context, candidates []*link, d delivery, message []byte) outcome {
	signed, err := sign(e.cfg.DKIM, message)
	if err != nil {
		candidates[0].release()
		return outcome{state: StateQueued, failure: &Failure{Kind: FailureTemporary, Message: "signing: " + err.Error()}}
	}
	envelope := Envelope{JobID: d.id, From: e.envelope, To: d.address, Message: signed}
	var result outcome
	for i, l := range candidates {
		if i > 0 {
			if _, ok := l.admit(e.host.Now()); !ok {
				continue
			}
			if wait, err := e.allow(ctx, l); err != nil || wait > 0 {
				l.release()
				continue
			}
		}
		providerID, err := l.deliver(ctx, envelope)
		if err == nil {
			l.report(nil, e.cfg.Failover, e.host.Now())
			return outcome{state: StateSent, provider: l.Name, providerID: clip(providerID, maxKey)}
		}
		if errors.Is(err, errNoConnection) {
			return outcome{state: StateQueued, untried: true}
		}
		failure := asFailure(err)
		failure.Message = clip(failure.Message, maxReason)
		l.report(failure, e.cfg.Failover, e.host.Now())
		result = outcome{state: StateQueued, provider: l.Name, failure: failure, pinned: failure.Kind == FailureUnclear}
		if failure.Kind != FailureUnreachable {
			break
		}
	}
	if result.failure.Kind == FailurePermanent {
		result.state = StateFailed
		if badRecipient(result.failure.Code, result.failure.Enhanced, result.failure.Message) {
			result.state = StateBounced
		}
	}
	return result
}

// settle records the outcome and completes the job, or schedules the next attempt.
func (e *Email) settle(ctx context.Context, d delivery, o outcome) error {
	if o.untried {
		if err := e.store.refund(context.WithoutCancel(ctx), d.id); err != nil {
			return err
		}
		return jobs.Snooze(time.Second)
	}
	now := e.host.Now()
	pause := e.pause(d.attempts)
	if o.state == StateQueued && (d.attempts >= d.maxAttempts || now.Add(pause).Sub(d.roundBeganAt) > e.cfg.Retry.GiveUpAfter) {
		o.state = StateFailed
	}
	note := outcomeNote{outcome: o, at: now, nextAttempt: now.Add(pause)}
	var reason []byte
	if o.failure != nil {
		reason, _ = json.Marshal(lastError{string(o.failure.Kind), o.failure.Code, o.failure.Enhanced, o.failure.Message})
		note.lastError = string(reason)
		e.host.Log.WarnContext(ctx, "email: not sent", slog.String("job", d.id), slog.String("state", string(o.state)),
			slog.String("provider", o.provider), slog.Int("attempt", d.attempts), slog.String("error", withoutAddress(o.failure.Error(), d.address)))
	}
	// The outcome is recorded even if the node is stopping.
	var settled bool
	err := e.host.DB.InTx(context.WithoutCancel(ctx), func(ctx context.Context) (err error) {
		if settled, err = e.store.settle(ctx, d.id, note); err != nil {
			return err
		}
		if o.failure != nil {
			if err := e.store.insertEvent(ctx, d.id, Event{Type: "attempt", Detail: o.failure.Error()}, now); err != nil {
				return err
			}
		}
		if o.state == StateBounced && settled { // an erased address must not be recorded again
			if err := e.suppressAfter(ctx, d.addressKey, ReasonHardBounce, "provider", Job{ID: d.id, UserID: optional.Text(d.userID)}, time.Time{}); err != nil {
				return err
			}
		}
		if o.state == StateQueued && settled {
			return nil
		}
		return jobs.Complete(ctx)
	})
	if err != nil || o.state != StateQueued || !settled {
		return err
	}
	return jobs.Snooze(pause)
}

// withoutAddress replaces the recipient's address, which servers quote, for the log: it is kept
// longer than an erased user is.
func withoutAddress(text, address string) string {
	return regexp.MustCompile(`(?i)`+regexp.QuoteMeta(address)).ReplaceAllLiteralString(text, "the recipient")
}

// lastError is the JSON form of the last failure of a job.
type lastError struct {
	Kind     string `json:"kind"`
	SMTPCode int    `json:"smtpCode"`
	Enhanced string `json:"enhancedCode"`
	Message  string `json:"message"`
}

// pause returns how long to wait after an attempt.
func (e *Email) pause(attempt int) time.Duration {
	pause := e.cfg.Retry.Base
	for i := 1; i < attempt && pause < e.cfg.Retry.Max; i++ {
		pause *= 4
	}
	pause = min(pause, e.cfg.Retry.Max)
	return pause*4/5 + rand.N(pause*2/5)
}

const maxReason = 500

// clip truncates a text from outside and makes it storable.
func clip(given string, limit int) string { return text.Storable(given[:min(len(given), limit)]) }
