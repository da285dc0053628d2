package audit

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/kitbackend/kit/capability"
)

// Bounds of one event.
const (
	// MaxDetail bounds the JSON of Event.Detail, in bytes.
	MaxDetail = 8 << 10
	// MaxTargets bounds the number of Event.Targets.
	MaxTargets = 16
	// MaxID bounds every identifier in an event, in bytes.
	MaxID = 256
)

// Event is what a capability records.
type Event struct {
	// Action names what happened as namespace/verb, such as "ledger/credited":
	// ^[a-z][a-z0-9_]{0,31}/[a-z][a-z0-9_]{0,63}$, without hyphens.
	Action string
	// Actor is who did it. The zero value means the caller of the request in
	// the context, or the system outside of one.
	Actor Actor
	// Subject is what it was done to; zero when there is none.
	Subject Target
	// Targets are the others concerned, at most [MaxTargets].
	Targets []Target
	// Outcome says how it ended; empty means [Succeeded].
	Outcome Outcome
	// Code is the refusal's code where Outcome is not [Succeeded].
	Code string
	// Detail is any JSON value of at most [MaxDetail] bytes. It can never be
	// erased, so it names people by their ids only.
	Detail any
}

// ActorKind says what kind of party acted.
type ActorKind string

// The kinds of actor.
const (
	User         ActorKind = "user"
	ControlPlane ActorKind = "control-plane"
	System       ActorKind = "system"
	Job          ActorKind = "job"
	Webhook      ActorKind = "webhook"
	Operator     ActorKind = "operator"
	Anonymous    ActorKind = "anonymous"
)

// Actor is the party that acted.
type Actor struct {
	Kind ActorKind `json:"kind"`
	// ID is the user id, the control-plane connection, the job binding, the
	// webhook's sender or the operator's name; required for users.
	ID string `json:"id,omitempty"`
	// KeyID is the control-plane key that proved the actor.
	KeyID string `json:"keyId,omitempty"`
}

// Target is a thing an event concerns.
type Target struct {
	// Type is a word such as "account": ^[a-z][a-z0-9_]{0,31}$.
	Type string `json:"type"`
	// ID is at most [MaxID] bytes.
	ID string `json:"id"`
}

// Outcome says how the action ended.
type Outcome string

// The outcomes: done, refused by a rule, or failed for a technical reason.
const (
	Succeeded Outcome = "succeeded"
	Refused   Outcome = "refused"
	Failed    Outcome = "failed"
)

// Entry is an event as the trail holds it.
type Entry struct {
	ID         string          `json:"id"`
	OccurredAt capability.Time `json:"occurredAt"`
	Action     string          `json:"action"`
	Actor      Actor           `json:"actor"`
	Subject    Target          `json:"subject,omitzero"`
	Targets    []Target        `json:"targets,omitempty"`
	Outcome    Outcome         `json:"outcome"`
	Code       string          `json:"code,omitempty"`
	RequestID  string          `json:"requestId,omitempty"`
	// Route is method and pattern, such as "POST /ledger/:currency/credit".
	Route       string          `json:"route,omitempty"`
	Environment string          `json:"environment"`
	Detail      json.RawMessage `json:"detail,omitempty"`
	IP          string          `json:"ip,omitempty"`
	UserAgent   string          `json:"userAgent,omitempty"`
	// Hash is the SHA-256 of the content, in which personal data stands as its
	// commitment; a seal chains these hashes.
	Hash []byte `json:"-"`
}

// Namespace is the part of the action before the slash.
func (e Entry) Namespace() string {
	namespace, _, _ := strings.Cut(e.Action, "/")
	return namespace
}

// Filter selects events; zero fields select all.
type Filter struct {
	// Namespace and Action compare exactly.
	Namespace, Action string
	ActorKind         ActorKind
	ActorID           string
	// Subject compares type and id, each where it is given.
	Subject Target
	Outcome Outcome
	// From and To bound OccurredAt, the first included, the last not.
	From, To time.Time
}

// OutcomeOf says how a call ended that answered with a refusal, nil for none:
// refused by a rule, or, from status 500, failed.
func OutcomeOf(refusal *capability.Error) Outcome {
	switch {
	case refusal == nil:
		return Succeeded
	case refusal.Status >= 500:
		return Failed
	default:
		return Refused
	}
}

// complete turns what was recorded into what is kept: defaults from the
// request in the context, then the grammar.
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
	}
	if entry.Outcome == "" {
		entry.Outcome = Succeeded
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

// actorOf returns the caller of a request, or the system outside of one.
func actorOf(origin *capability.RequestInfo) Actor {
	if origin == nil {
		return Actor{Kind: System}
	}
	caller := origin.Caller
	switch caller.Strategy {
	case capability.StrategyUser, capability.StrategyBearer, capability.StrategySession:
		return Actor{Kind: User, ID: caller.UserID}
	case capability.StrategyControlPlane:
		return Actor{Kind: ControlPlane, ID: caller.ConnectionID, KeyID: caller.KeyID}
	case capability.StrategySignedWebhook:
		return Actor{Kind: Webhook}
	default:
		return Actor{Kind: Anonymous}
	}
}

// check holds the entry to the grammar and the bounds.
func (e Entry) check() error {
	switch {
	case !actionPattern.MatchString(e.Action):
		return fmt.Errorf("%w: action %q is not of the form namespace/verb without hyphens", ErrInvalidEvent, e.Action)
	case !slices.Contains(actorKinds, e.Actor.Kind):
		return fmt.Errorf("%w: %s: actor kind %q", ErrInvalidEvent, e.Action, e.Actor.Kind)
	case !storable(e.Actor.ID) || !storable(e.Actor.KeyID) || e.Actor.Kind == User && e.Actor.ID == "":
		return fmt.Errorf("%w: %s: actor %q", ErrInvalidEvent, e.Action, e.Actor)
	case e.Subject != (Target{}) && !e.Subject.valid():
		return fmt.Errorf("%w: %s: subject %q", ErrInvalidEvent, e.Action, e.Subject)
	case len(e.Targets) > MaxTargets || slices.ContainsFunc(e.Targets, func(t Target) bool { return !t.valid() }):
		return fmt.Errorf("%w: %s: targets %.300q", ErrInvalidEvent, e.Action, e.Targets)
	case !slices.Contains(outcomes, e.Outcome):
		return fmt.Errorf("%w: %s: outcome %q", ErrInvalidEvent, e.Action, e.Outcome)
	case e.Outcome == Succeeded && e.Code != "" || !storable(e.Code):
		return fmt.Errorf("%w: %s: code %q beside outcome %s", ErrInvalidEvent, e.Action, e.Code, e.Outcome)
	case len(e.Detail) > MaxDetail:
		return fmt.Errorf("%w: %s: detail of %d bytes, the limit is %d", ErrInvalidEvent, e.Action, len(e.Detail), MaxDetail)
	}
	return nil
}

func (t Target) valid() bool {
	return wordPattern.MatchString(t.Type) && t.ID != "" && storable(t.ID)
}

// storable reports whether an identifier fits every database: UTF-8 without NUL.
func storable(text string) bool {
	return len(text) <= MaxID && utf8.ValidString(text) && !strings.ContainsRune(text, 0)
}

var (
	actionPattern = regexp.MustCompile(`^[a-z][a-z0-9_]{0,31}/[a-z][a-z0-9_]{0,63}$`)
	wordPattern   = regexp.MustCompile(`^[a-z][a-z0-9_]{0,31}$`)
	actorKinds    = []ActorKind{User, ControlPlane, System, Job, Webhook, Operator, Anonymous}
	outcomes      = []Outcome{Succeeded, Refused, Failed}
)

// Choices lists the values, for documents.
func (ActorKind) Choices() []string {
	return []string{string(User), string(ControlPlane), string(System), string(Job), string(Webhook), string(Operator), string(Anonymous)}
}

// Choices lists the values, for documents.
func (Outcome) Choices() []string {
	return []string{string(Succeeded), string(Refused), string(Failed)}
}
