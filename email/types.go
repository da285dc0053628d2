package email

import (
	"encoding/json"
	"time"

	"github.com/kitbackend/kit/capability"
)

// Report is a provider's or server's report about a message.
type Report struct {
	Kind ReportKind
	// Recipient is the address it concerns; "" means that of the job.
	Recipient string
	// MessageID and ProviderID identify the message: the Message-ID in angle brackets, or the
	// provider's ID.
	MessageID, ProviderID string
	// Status is the enhanced status code (RFC 3463), or "".
	Status string
	Detail string
}

// ReportKind is the kind of a report.
type ReportKind string

// The kinds of report. A hard bounce means that the mailbox does not exist; any other refusal, such
// as a full mailbox or a policy, is a soft bounce.
const (
	ReportDelivered  ReportKind = "delivered"
	ReportHardBounce ReportKind = "hard_bounce"
	ReportSoftBounce ReportKind = "soft_bounce"
	ReportDelayed    ReportKind = "delayed"
	ReportComplaint  ReportKind = "complaint"
)

// Job is the record of one message, without its content.
type Job struct {
	ID                string           `json:"id"`
	State             State            `json:"state"`
	Category          Category         `json:"category"`
	To                string           `json:"to"`
	Subject           string           `json:"subject"`
	Template          *string          `json:"template"`
	Provider          *string          `json:"provider"`
	ProviderMessageID *string          `json:"providerMessageId"`
	MessageID         string           `json:"messageId"`
	Attempts          int              `json:"attempts"`
	MaxAttempts       int              `json:"maxAttempts"`
	NextAttemptAt     *capability.Time `json:"nextAttemptAt"`
	CreatedAt         capability.Time  `json:"createdAt"`
	SentAt            *capability.Time `json:"sentAt"`
	DeliveredAt       *capability.Time `json:"deliveredAt"`
	IdempotencyKey    *string          `json:"idempotencyKey"`
	UserID            *string          `json:"userId"`
	// LastError is the last failure.
	LastError json.RawMessage `json:"lastError"`

	addressKey string
	pinned     bool
}

// JobDetail is a job with its headers and events.
type JobDetail struct {
	Job
	Headers []Header `json:"headers"`
	Events  []Event  `json:"events"`
}

// Header is a header line of a message, as composed. Unsubscribe links are omitted: anyone who has
// one may use it.
type Header struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// Event is an event of a message after it was queued: attempt (a failed one), retried, delivered,
// bounced, complained, opened, clicked or unsubscribed. Sending is not an event; see SentAt.
type Event struct {
	Type string          `json:"type"`
	At   capability.Time `json:"at"`
	// Machine marks an open or click that was probably made by a program.
	Machine bool   `json:"machine"`
	URL     string `json:"url,omitempty"`
	Detail  string `json:"detail,omitempty"`
}

// Category is the category of a message, which determines the suppressions that apply to it.
type Category string

// The categories. A list message has a one-click unsubscribe link.
const (
	CategoryTransactional Category = "transactional"
	CategoryList          Category = "list"
)

// Message is one mail to one recipient.
type Message struct {
	// To is one address, such as "ada@example.com" or "Ada <ada@example.com>".
	To string
	// Category is Transactional by default.
	Category Category
	// Template is the name of the template that makes subject, text and HTML from Data.
	Template string
	Data     any
	// Subject, Text and HTML are the content if there is no template. If Text is empty, it is made
	// from HTML.
	Subject, Text, HTML string
	ReplyTo             string
	// Headers are additional headers: X- headers, List-Archive, List-Help, List-Owner, List-Post,
	// List-Subscribe, Auto-Submitted, Feedback-ID, Importance, Keywords and Precedence.
	Headers map[string]string
	// InReplyTo, References and MessageID are message IDs in angle brackets. If MessageID is empty,
	// one is generated.
	InReplyTo   string
	References  []string
	MessageID   string
	Attachments []Attachment
	// SendAt delays the message, at most 7 days.
	SendAt time.Time
	// IdempotencyKey makes a repetition within 30 days return the first job; at most 256 bytes.
	IdempotencyKey string
	// UserID is recorded with the job.
	UserID string
	// Quota is the name of the count for Config.PerRecipientPerHour: messages are only limited by
	// those of the same quota. ^[a-z0-9_-]{0,32}$.
	Quota string
	// Unsubscribe is the unsubscribe link of a sender with its own list: it replaces the kit's link
	// in List-Unsubscribe and is the value of {{unsubscribe}} in the template. It is an http or
	// https URL of at most 900 bytes that unsubscribes on a POST of List-Unsubscribe=One-Click (RFC
	// 8058). Without it a list message has the kit's own link, and any other has none.
	Unsubscribe string
}

// Attachment is a file attached to a message.
type Attachment struct {
	Name        string
	ContentType string
	Content     []byte
}

// State is the state of a message.
type State string

// The states. A sent message was accepted by a provider; if its outcome is reported later, it
// becomes delivered, bounced or complained.
const (
	StateQueued     State = "queued"
	StateSending    State = "sending"
	StateSent       State = "sent"
	StateDelivered  State = "delivered"
	StateBounced    State = "bounced"
	StateComplained State = "complained"
	StateSuppressed State = "suppressed"
	StateFailed     State = "failed"
	StateCancelled  State = "cancelled"
)

// JobFilter selects jobs; zero fields select all.
type JobFilter struct {
	State State
	// To is an address in any spelling.
	To       string
	Template string
	Category Category
	// Since and Until bound CreatedAt, inclusive and exclusive.
	Since, Until time.Time
}

// Scope is the set of messages that a suppression applies to.
type Scope string

// The scopes: all messages, or only list messages.
const (
	ScopeAll  Scope = "all"
	ScopeList Scope = "list"
)

// Reason is why an address is suppressed.
type Reason string

// The reasons.
const (
	ReasonHardBounce      Reason = "hard_bounce"
	ReasonSoftBounceLimit Reason = "soft_bounce_limit"
	ReasonComplaint       Reason = "complaint"
	ReasonUnsubscribed    Reason = "unsubscribe"
	ReasonManual          Reason = "manual"
	ReasonInvalidAddress  Reason = "invalid"
)

// Suppression prevents messages to an address from being sent. An address may have several, one for
// each scope and reason; each expires and is removed separately.
type Suppression struct {
	// Address is in canonical form, or "#" and a keyed hash after its owner was erased.
	Address string `json:"address"`
	Scope   Scope  `json:"scope"`
	Reason  Reason `json:"reason"`
	// Source is dsn, provider, link, controlplane or system.
	Source    string           `json:"source"`
	JobID     *string          `json:"jobId"`
	Note      *string          `json:"note"`
	CreatedAt capability.Time  `json:"createdAt"`
	ExpiresAt *capability.Time `json:"expiresAt"`
}

// SuppressionFilter selects suppressions; zero fields select all.
type SuppressionFilter struct {
	// Begins is a prefix of the canonical address.
	Begins string
	Reason Reason
	Scope  Scope
}

// Content is the readable content of a message.
type Content struct {
	Subject string `json:"subject"`
	Text    string `json:"text"`
	HTML    string `json:"html,omitempty"`
}

// Envelope is one message for a transport.
type Envelope struct {
	// JobID is the same in every attempt, so that a provider can use it as an idempotency key.
	JobID string
	// From and To are the addresses of the SMTP envelope.
	From, To string
	// Message is complete and signed (RFC 5322, CRLF lines).
	Message []byte
}

// FailureKind is the consequence of a failure for the message.
type FailureKind string

// The kinds of failure.
const (
	// FailureUnreachable means that nothing was handed over; another provider may be tried.
	FailureUnreachable FailureKind = "unreachable"
	// FailureTemporary means that the message was refused temporarily.
	FailureTemporary FailureKind = "temporary"
	// FailurePermanent means that the message was refused permanently.
	FailurePermanent FailureKind = "permanent"
	// FailureUnclear means that the provider may have the message. Only the same provider is tried
	// again.
	FailureUnclear FailureKind = "unclear"
)

// Failure is why a message was not accepted.
type Failure struct {
	Kind FailureKind
	// Code is the SMTP reply code, 0 if there was none.
	Code int
	// Enhanced is the enhanced status code (RFC 3463), such as "5.1.1", or "".
	Enhanced string
	Message  string
}
