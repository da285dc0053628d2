package audit

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/kitbackend/kit/capability"
)

// OutcomeOf returns the outcome of a call by its refusal: succeeded for nil, failed from status
// 500, otherwise refused.
func OutcomeOf(refusal *capability.Error) Outcome {
	switch {
	case refusal == nil:
		return OutcomeSucceeded
	case refusal.Status >= 500:
		return OutcomeFailed
	default:
		return OutcomeRefused
	}
}

// complete returns the entry and the personal data of an event: it sets defaults from the request
// in the context and checks the grammar.
func (a *Audit) complete(ctx context.Context, e Event) (Entry, personal, error) {
	entry := Entry{
		Action: e.Action, Actor: e.Actor, Subject: e.Subject, Targets: e.Targets,
		Outcome: e.Outcome, Code: e.Code, Environment: a.host.Environment,
	}
	var who personal
	origin := capability.RequestInfoOf(ctx)
	if origin != nil {
		entry.RequestID, entry.Route = origin.RequestID, origin.Method+" "+origin.Route
		who = personal{IP: origin.IP, UserAgent: origin.UserAgent}
	}
	if entry.Actor == (Actor{}) {
		entry.Actor = actorOf(origin)
		if actor, ok := ctx.Value(actorKey{}).(Actor); ok {
			entry.Actor = actor
		}
	}
	if entry.Outcome == "" {
		entry.Outcome = OutcomeSucceeded
	}
	if e.Detail != nil {
		detail, err := json.Marshal(e.Detail)
		if err != nil {
			return Entry{}, personal{}, fmt.Errorf("%w: detail: %w", ErrInvalidEvent, err)
		}
		entry.Detail = detail
	}
	return entry, who, entry.check()
}

type actorKey struct{}

// As returns a context in which actor is the default actor of events: for work outside of requests,
// such as that of an operator.
func As(ctx context.Context, actor Actor) context.Context {
	return context.WithValue(ctx, actorKey{}, actor)
}

// actorOf returns the caller of a request, or the system outside of one.
func actorOf(origin *capability.RequestInfo) Actor {
	if origin == nil {
		return Actor{Kind: ActorSystem}
	}
	caller := origin.Caller
	switch caller.Strategy {
	case capability.StrategyUser, capability.StrategyBearer, capability.StrategySession:
		return Actor{Kind: ActorUser, ID: caller.UserID}
	case capability.StrategyControlPlane:
		return Actor{Kind: ActorControlPlane, ID: caller.ConnectionID, KeyID: caller.KeyID}
	case capability.StrategySignedWebhook:
		return Actor{Kind: ActorWebhook}
	default:
		return Actor{Kind: ActorAnonymous}
	}
}

// check checks the entry against the grammar and the bounds.
func (e Entry) check() error {
	switch {
	case !isAction(e.Action):
		return fmt.Errorf("%w: action %q is not of the form namespace/verb without hyphens", ErrInvalidEvent, e.Action)
	case !slices.Contains(actorKinds, e.Actor.Kind):
		return fmt.Errorf("%w: %s: actor kind %q", ErrInvalidEvent, e.Action, e.Actor.Kind)
	case !storable(e.Actor.ID) || !storable(e.Actor.KeyID) || e.Actor.Kind == ActorUser && e.Actor.ID == "":
		return fmt.Errorf("%w: %s: actor %q", ErrInvalidEvent, e.Action, e.Actor)
	case e.Subject != (Target{}) && !e.Subject.valid():
		return fmt.Errorf("%w: %s: subject %q", ErrInvalidEvent, e.Action, e.Subject)
	case len(e.Targets) > MaxTargets || slices.ContainsFunc(e.Targets, func(t Target) bool { return !t.valid() }):
		return fmt.Errorf("%w: %s: targets %.300q", ErrInvalidEvent, e.Action, e.Targets)
	case !slices.Contains(outcomes, e.Outcome):
		return fmt.Errorf("%w: %s: outcome %q", ErrInvalidEvent, e.Action, e.Outcome)
	case e.Outcome == OutcomeSucceeded && e.Code != "" || !storable(e.Code):
		return fmt.Errorf("%w: %s: code %q with outcome %s", ErrInvalidEvent, e.Action, e.Code, e.Outcome)
	case len(e.Detail) > MaxDetail:
		return fmt.Errorf("%w: %s: detail of %d bytes, the limit is %d", ErrInvalidEvent, e.Action, len(e.Detail), MaxDetail)
	}
	return nil
}

func (t Target) valid() bool {
	return isWord(t.Type, 32) && t.ID != "" && storable(t.ID)
}

func isAction(text string) bool {
	namespace, verb, _ := strings.Cut(text, "/")
	return isWord(namespace, 32) && isWord(verb, 64)
}

// isWord reports whether text is a lower-case letter before lower-case letters, digits and
// underscores, at most limit in all.
func isWord(text string, limit int) bool {
	return text != "" && len(text) <= limit && 'a' <= text[0] && text[0] <= 'z' &&
		strings.Trim(text, "abcdefghijklmnopqrstuvwxyz0123456789_") == ""
}

// storable reports whether an identifier can be stored in every database: at most MaxID bytes of
// UTF-8 without NUL.
func storable(text string) bool {
	return len(text) <= MaxID && utf8.ValidString(text) && !strings.ContainsRune(text, 0)
}

var (
	actorKinds = []ActorKind{ActorUser, ActorControlPlane, ActorSystem, ActorJob, ActorWebhook, ActorOperator, ActorAnonymous}
	outcomes   = []Outcome{OutcomeSucceeded, OutcomeRefused, OutcomeFailed}
)

// Choices lists the values, for documents.
func (ActorKind) Choices() []string {
	return []string{string(ActorUser), string(ActorControlPlane), string(ActorSystem), string(ActorJob), string(ActorWebhook), string(ActorOperator), string(ActorAnonymous)}
}

// Choices lists the values, for documents.
func (Outcome) Choices() []string {
	return []string{string(OutcomeSucceeded), string(OutcomeRefused), string(OutcomeFailed)}
}
