package email

import (
	"encoding/json"
	"time"

	"github.com/kitbackend/kit/capability"
)

// Report is what somebody says became of a message.
type Report struct {
	Kind ReportKind
	// Recipient is the address it concerns; "" means that of the job.
	Recipient string
	// MessageID and ProviderID name the message, in angle brackets or as the
	// provider does.
	MessageID, ProviderID string
	// Status is the enhanced status code (RFC 3463), or "".
	Status string
	Detail string
}

// ReportKind says what is reported.
type ReportKind string

// The kinds of report. A hard bounce says that there is no such mailbox; any
// other refusal, such as a full mailbox or a policy, is soft.
const (
	ReportDelivered  ReportKind = "delivered"
	ReportHardBounce ReportKind = "hard_bounce"
	ReportSoftBounce ReportKind = "soft_bounce"
	ReportDelayed    ReportKind = "delayed"
	ReportComplaint  ReportKind = "complaint"
)

// Job is what is known of one message, without its content.
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
	// LastError is that of the last attempt that failed.
	LastError json.RawMessage `json:"lastError"`

	addressKey string
	pinned     bool
}

// JobDetail is a job with what happened to it.
type JobDetail struct {
	Job
	Headers []Header `json:"headers"`
	Events  []Event  `json:"events"`
}

// Header is a line of a message's head, as it was composed. The links to
// unsubscribe are left out: any holder may use them.
type Header struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// Event is what happened to a message after it was queued, but for its being
// sent, which SentAt tells: attempt (a failed one), retried, delivered,
// bounced, complained, opened, clicked or unsubscribed.
type Event struct {
	Type string          `json:"type"`
	At   capability.Time `json:"at"`
	// Machine marks an open or click that no person made, as far as we can tell.
	Machine bool   `json:"machine"`
	URL     string `json:"url,omitempty"`
	Detail  string `json:"detail,omitempty"`
}

// Category says what a message is: it decides which suppressions hold it back.
type Category string

// The categories. A message of a list carries a one-click unsubscribe.
const (
	CategoryTransactional Category = "transactional"
	CategoryList          Category = "list"
)

// Message is one mail to one person.
type Message struct {
	// To is one address, such as "ada@example.com" or "Ada <ada@example.com>".
	To string
	// Category is Transactional by default.
	Category Category
	// Template names the template that makes subject, text and HTML out of Data.
	Template string
	Data     any
	// Subject, Text and HTML are the content where there is no template. Text is
	// made from HTML when it is empty.
	Subject, Text, HTML string
	ReplyTo             string
	// Headers are further ones: X- headers, List-Archive, List-Help, List-Owner,
	// List-Post, List-Subscribe, Auto-Submitted, Feedback-ID, Importance,
	// Keywords and Precedence.
	Headers map[string]string
	// InReplyTo, References and MessageID are message ids in angle brackets. The
	// message gets an id of its own when MessageID is empty.
	InReplyTo   string
	References  []string
	MessageID   string
	Attachments []Attachment
	// SendAt delays the message, at most 7 days.
	SendAt time.Time
	// IdempotencyKey makes a repetition within 30 days return the first job; at
	// most 256 bytes.
	IdempotencyKey string
	// UserID is recorded with the job.
	UserID string
	// Quota names what the message counts against in Config.PerRecipientPerHour:
	// messages of another quota do not hold it back. ^[a-z0-9_-]{0,32}$.
	Quota string
	// Unsubscribe is where the recipient leaves, for mails whose sender keeps
	// its own list: it takes the place of the kit's link in List-Unsubscribe and
	// in the template, where {{unsubscribe}} is the link. It is an http or https
	// address of at most 900 bytes that acts on a POST of
	// List-Unsubscribe=One-Click (RFC 8058). Without it a message of a list has
	// the kit's own link, and any other has none.
	Unsubscribe string
}

// Attachment is a file that goes with a message.
type Attachment struct {
	Name        string
	ContentType string
	Content     []byte
}

// State says how far a message is.
type State string

// The states. A message that is sent was accepted by a provider; what becomes
// of it then, if anybody tells us, is delivered, bounced or complained.
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
	// Since and Until bound CreatedAt, the first included, the last not.
	Since, Until time.Time
}

// Scope says what a suppression holds back.
type Scope string

// The scopes: everything, or lists only.
const (
	ScopeAll  Scope = "all"
	ScopeList Scope = "list"
)

// Reason says why an address is suppressed.
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

// Suppression holds messages to an address back. An address may have several,
// one for each scope and reason; each ends and is lifted by itself.
type Suppression struct {
	// Address is in canonical form, or "#" and a keyed hash once its owner was
	// erased.
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
	// Begins is how the canonical address begins.
	Begins string
	Reason Reason
	Scope  Scope
}

// Content is what a person reads.
type Content struct {
	Subject string `json:"subject"`
	Text    string `json:"text"`
	HTML    string `json:"html,omitempty"`
}

// Envelope is one message on its way out.
type Envelope struct {
	// JobID is the same in every attempt: a provider that knows idempotency keys
	// takes it as one.
	JobID string
	// From and To are the addresses of the envelope.
	From, To string
	// Message is complete and signed (RFC 5322, CRLF lines).
	Message []byte
}

// FailureKind says what a failure means for the message.
type FailureKind string

// The kinds of failure.
const (
	// FailureUnreachable: nothing was handed over, another provider may try.
	FailureUnreachable FailureKind = "unreachable"
	// FailureTemporary: refused for now.
	FailureTemporary FailureKind = "temporary"
	// FailurePermanent: refused for good.
	FailurePermanent FailureKind = "permanent"
	// FailureUnclear: the provider may have the message. Only itself is asked again.
	FailureUnclear FailureKind = "unclear"
)

// Failure is why a message was not accepted.
type Failure struct {
	Kind FailureKind
	// Code is the SMTP reply code, 0 when there was none.
	Code int
	// Enhanced is the enhanced status code (RFC 3463), such as "5.1.1", or "".
	Enhanced string
	Message  string
}
