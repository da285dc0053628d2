package audit

import (
	"encoding/json"
	"strings"
	"time"

	"github.com/kitbackend/kit/capability"
)

// The bounds of an event.
const (
	// MaxDetail is the maximum size of the JSON of Event.Detail, in bytes.
	MaxDetail = 8 << 10
	// MaxTargets is the maximum number of Event.Targets.
	MaxTargets = 16
	// MaxID is the maximum size of every identifier in an event, in bytes.
	MaxID = 256
)

// Event is an event to be recorded.
type Event struct {
	// Action is what happened as namespace/verb, such as "ledger/credited":
	// ^[a-z][a-z0-9_]{0,31}/[a-z][a-z0-9_]{0,63}$, without hyphens.
	Action string
	// Actor is who did it. The zero value means the caller of the request in
	// the context, or the system outside of one.
	Actor Actor
	// Subject is what the action was done to; zero if there is none.
	Subject Target
	// Targets are the other things concerned, at most [MaxTargets].
	Targets []Target
	// Outcome is the outcome of the action; empty means [OutcomeSucceeded].
	Outcome Outcome
	// Code is the refusal's code if Outcome is not [OutcomeSucceeded].
	Code string
	// Detail is any JSON value of at most [MaxDetail] bytes. It can never be erased, so it must
	// identify people by their ids only.
	Detail any
}

// ActorKind is the kind of an actor.
type ActorKind string

// The kinds of actor.
const (
	ActorUser         ActorKind = "user"
	ActorControlPlane ActorKind = "control-plane"
	ActorSystem       ActorKind = "system"
	ActorJob          ActorKind = "job"
	ActorWebhook      ActorKind = "webhook"
	ActorOperator     ActorKind = "operator"
	ActorAnonymous    ActorKind = "anonymous"
)

// Actor is the party that acted.
type Actor struct {
	Kind ActorKind `json:"kind"`
	// ID is the user id, the control-plane connection, the job binding, the
	// webhook's sender or the operator's name; required for users.
	ID string `json:"id,omitempty"`
	// KeyID is the control-plane key that authenticated the actor.
	KeyID string `json:"keyId,omitempty"`
}

// Target is a thing an event concerns.
type Target struct {
	// Type is a word such as "account": ^[a-z][a-z0-9_]{0,31}$.
	Type string `json:"type"`
	// ID is at most [MaxID] bytes.
	ID string `json:"id"`
}

// Outcome is the outcome of an action.
type Outcome string

// The outcomes: done, refused by a rule, or failed for a technical reason.
const (
	OutcomeSucceeded Outcome = "succeeded"
	OutcomeRefused   Outcome = "refused"
	OutcomeFailed    Outcome = "failed"
)

// Entry is a stored event.
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
	// Route is the method and pattern, such as "POST /ledger/:currency/credit".
	Route       string          `json:"route,omitempty"`
	Environment string          `json:"environment"`
	Detail      json.RawMessage `json:"detail,omitempty"`
	IP          string          `json:"ip,omitempty"`
	UserAgent   string          `json:"userAgent,omitempty"`
	// Hash is the SHA-256 of the content, which includes personal data as its commitment; a seal
	// chains these hashes.
	Hash []byte `json:"-"`
}

// Namespace returns the part of the action before the slash.
func (e Entry) Namespace() string {
	namespace, _, _ := strings.Cut(e.Action, "/")
	return namespace
}

// Filter selects events; zero fields match all.
type Filter struct {
	// Namespace and Action are matched exactly.
	Namespace, Action string
	ActorKind         ActorKind
	ActorID           string
	// Subject matches type and id, each if it is set.
	Subject Target
	Outcome Outcome
	// From and To bound OccurredAt, From inclusive, To exclusive.
	From, To time.Time
}

// Seal is the link of an event in the chain of its shard. Hash covers shard, number, event id,
// content hash and the previous hash.
type Seal struct {
	Shard int64  `json:"shard"`
	Seq   int64  `json:"seq"`
	Prev  []byte `json:"prev"`
	Hash  []byte `json:"hash"`
}

// Head is the last link of a shard's chain.
type Head struct {
	Shard, Seq int64
	Hash       []byte
}

// Checkpoint is a statement of the heads of all chains at a time, signed with Ed25519.
type Checkpoint struct {
	Seq   int64
	Heads []Head
	// Prev is the SHA-256 of the previous checkpoint, signature included.
	Prev      []byte
	KeyID     string
	Signature []byte
	createdAt int64
}

// Anchor identifies a checkpoint by the number and hash of its log line, to be stored where nobody
// who can write to the database can change it.
type Anchor struct {
	Checkpoint int64
	Hash       []byte
}

// BreakKind is the kind of a break in a trail.
type BreakKind string

// The kinds of break.
const (
	// BreakAltered: an event, or its personal data, was changed.
	BreakAltered BreakKind = "altered"
	// BreakMissing: an event, or the end of a chain, was removed.
	BreakMissing BreakKind = "missing"
	// BreakInserted: an event or a link was inserted without the sealer.
	BreakInserted BreakKind = "inserted"
	// BreakGap: a chain skips a number.
	BreakGap BreakKind = "gap"
	// BreakReordered: a link does not follow from the previous one.
	BreakReordered BreakKind = "reordered"
	// BreakCheckpoint: the signature of a checkpoint is invalid, a checkpoint is missing, or the
	// chains do not match one.
	BreakCheckpoint BreakKind = "checkpoint"
)

// Break is the first difference between a trail and what was recorded. Shard and Seq, EventID and
// Checkpoint are set if they apply.
type Break struct {
	Kind       BreakKind `json:"kind"`
	Shard      int64     `json:"shard"`
	Seq        int64     `json:"seq,omitempty"`
	EventID    string    `json:"eventId,omitempty"`
	Checkpoint int64     `json:"checkpoint,omitempty"`
	Reason     string    `json:"reason"`
}

// Report is the result of [Audit.Verify].
type Report struct {
	// Sealed and Waiting are the numbers of sealed and unsealed events that verified; Erased is the
	// number of sealed ones whose personal data was erased.
	Sealed, Waiting, Erased int64
	// Cut is the number of events deleted by retention.
	Cut int64
	// Checkpoints is the number of checkpoints that verified; Unverified is the number of those
	// signed by another run with a random master key, which happens only outside of production.
	Checkpoints, Unverified int64
	// Break is nil if the whole trail is intact.
	Break *Break
}
