package audit

import (
	"encoding/json"
	"strings"
	"time"

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
	// Outcome says how it ended; empty means [OutcomeSucceeded].
	Outcome Outcome
	// Code is the refusal's code where Outcome is not [OutcomeSucceeded].
	Code string
	// Detail is any JSON value of at most [MaxDetail] bytes. It can never be
	// erased, so it names people by their ids only.
	Detail any
}

// ActorKind says what kind of party acted.
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
	OutcomeSucceeded Outcome = "succeeded"
	OutcomeRefused   Outcome = "refused"
	OutcomeFailed    Outcome = "failed"
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

// Seal is the place of an event in the chain of its shard. Hash covers shard,
// number, event id, content hash and the hash before.
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

// Checkpoint says, signed with Ed25519, what the chains were at an instant.
type Checkpoint struct {
	Seq   int64
	Heads []Head
	// Prev is the SHA-256 of the checkpoint before, signature included.
	Prev      []byte
	KeyID     string
	Signature []byte
	createdAt int64
}

// Anchor is what a checkpoint was when it was signed, kept where anyone who can
// write to the database cannot: the number and hash of its line in the log.
type Anchor struct {
	Checkpoint int64
	Hash       []byte
}

// BreakKind says what is wrong with a trail.
type BreakKind string

// The kinds of break.
const (
	// BreakAltered: an event, or what identifies a person behind it, is not what was
	// recorded.
	BreakAltered BreakKind = "altered"
	// BreakMissing: an event was removed, or the end of a chain.
	BreakMissing BreakKind = "missing"
	// BreakInserted: an event or a link was inserted without the sealer.
	BreakInserted BreakKind = "inserted"
	// BreakGap: a chain skips a number.
	BreakGap BreakKind = "gap"
	// BreakReordered: a link does not follow from the one before.
	BreakReordered BreakKind = "reordered"
	// BreakCheckpoint: a checkpoint's signature does not verify, one is missing, or
	// the chains are not what one says.
	BreakCheckpoint BreakKind = "checkpoint"
)

// Break is the first place where a trail is not what was recorded. Shard and
// Seq, EventID and Checkpoint are set where they apply.
type Break struct {
	Kind       BreakKind `json:"kind"`
	Shard      int64     `json:"shard"`
	Seq        int64     `json:"seq,omitempty"`
	EventID    string    `json:"eventId,omitempty"`
	Checkpoint int64     `json:"checkpoint,omitempty"`
	Reason     string    `json:"reason"`
}

// Report is what Verify found.
type Report struct {
	// Sealed and Waiting events were found as they were recorded; of the sealed
	// ones Erased have lost their personal data, as they may.
	Sealed, Waiting, Erased int64
	// Cut events were deleted by retention.
	Cut int64
	// Checkpoints verified; Unverified ones were signed by another run whose
	// master key was made up, which happens outside of production only.
	Checkpoints, Unverified int64
	// Break is nil when the whole trail is sound.
	Break *Break
}
