package support

import (
	"slices"

	"github.com/kitbackend/kit/capability"
)

// Priority is how soon a thread needs a reply.
type Priority string

// The priorities: today, this week, when there is time.
const (
	PriorityUrgent Priority = "urgent"
	PriorityNormal Priority = "normal"
	PriorityLow    Priority = "low"
)

// Sentiment is the mood of the person who wrote.
type Sentiment string

// The sentiments.
const (
	SentimentAngry      Sentiment = "angry"
	SentimentFrustrated Sentiment = "frustrated"
	SentimentNeutral    Sentiment = "neutral"
	SentimentPositive   Sentiment = "positive"
)

// Direction is whether a message is from the customer or a reply.
type Direction string

// The directions: from the customer, and a reply to the customer.
const (
	DirectionInbound  Direction = "inbound"
	DirectionOutbound Direction = "outbound"
)

// Channel is how a message was sent.
type Channel string

// The channels.
const (
	ChannelEmail Channel = "email"
	ChannelApp   Channel = "app"
)

// LinkSource is how the user of a thread was identified.
type LinkSource string

// The sources: the session of a user, and a verified address of a user, which counts only if the
// mail is proved to be from its domain.
const (
	LinkSession      LinkSource = "session"
	LinkEmailAddress LinkSource = "email_address"
)

// State is the state of a thread.
type State string

// The states. A new message of the customer reopens an archived thread.
const (
	StateOpen     State = "open"
	StateArchived State = "archived"
)

// Classifier is what classified a thread last.
type Classifier string

// The classifiers: none yet, the model, the rules of this package, and a person who set the
// category.
const (
	ClassifierNone     Classifier = "none"
	ClassifierModel    Classifier = "model"
	ClassifierFallback Classifier = "fallback"
	ClassifierStaff    Classifier = "staff"
)

// The built-in categories.
const (
	CategoryBilling        = "billing"
	CategoryAccountAccess  = "account_access"
	CategoryBugReport      = "bug_report"
	CategoryFeatureRequest = "feature_request"
	CategoryAbuseReport    = "abuse_report"
	CategoryPrivacyRequest = "privacy_request"
	CategorySpam           = "spam"
	CategoryUncategorized  = "uncategorized"
)

// Category is a kind of request.
type Category struct {
	// Key matches ^[a-z][a-z0-9_]{1,39}$.
	Key string `json:"key"`
	// Description tells people and the model what belongs to the category; at most 300 bytes.
	Description string `json:"description"`
}

var builtin = []Category{
	{CategoryBilling, "Payments, invoices, refunds, prices, subscriptions."},
	{CategoryAccountAccess, "Signing in, passwords, locked or stolen accounts."},
	{CategoryBugReport, "Something does not work, crashes, or shows an error."},
	{CategoryFeatureRequest, "A wish for something that does not exist yet."},
	{CategoryAbuseReport, "Harassment, cheating, fraud or illegal content by somebody."},
	{CategoryPrivacyRequest, "Access to, correction or deletion of personal data."},
	{CategorySpam, "Unwanted advertising or deception."},
	{CategoryUncategorized, "Anything else."},
}

// merged returns the built-in categories followed by own ones. An own one with a built-in key
// replaces its description.
func merged(own []Category) []Category {
	all := slices.Clone(builtin)
	for _, category := range own {
		at := slices.IndexFunc(all, func(c Category) bool { return c.Key == category.Key })
		if at < 0 {
			all = append(all, category)
		} else if category.Description != "" {
			all[at].Description = category.Description
		}
	}
	return all
}

// Flags are the marks that staff and the inbox put on a thread.
type Flags struct {
	Starred bool `json:"starred"`
	// NeedsReply is set by a message of a person and cleared by a reply.
	NeedsReply bool `json:"needsReply"`
	Spam       bool `json:"spam"`
	// Suspicious is set if a mail looks like a deception; the warnings of its messages say why.
	Suspicious bool `json:"suspicious"`
	// Assignee is who handles the thread, as an identifier of the application.
	Assignee *string `json:"assignee"`
	// SnoozedUntil is the time until which the thread is snoozed. A new message ends it.
	SnoozedUntil *capability.Time `json:"snoozedUntil"`
}

// Thread is a conversation with one person as staff sees it.
type Thread struct {
	ID      string  `json:"id"`
	Subject string  `json:"subject"`
	Channel Channel `json:"channel"`
	State   State   `json:"state"`
	// DeclaredCategory is the category that the submitter chose; it never changes.
	DeclaredCategory *string `json:"declaredCategory"`
	// Category is the result of the last classification.
	Category   string     `json:"category"`
	Priority   Priority   `json:"priority"`
	Sentiment  Sentiment  `json:"sentiment"`
	Summary    string     `json:"summary"`
	Confidence float64    `json:"confidence"`
	By         Classifier `json:"classifiedBy"`
	// ClassifiedAt is the time of the last classification, nil before the first.
	ClassifiedAt *capability.Time `json:"classifiedAt"`
	UserID       *string          `json:"userId"`
	FromAddress  *string          `json:"fromAddress"`
	// AccountLinkSource is how UserID was identified; nil without one.
	AccountLinkSource *LinkSource      `json:"accountLinkSource"`
	Flags             Flags            `json:"flags"`
	MessageCount      int64            `json:"messageCount"`
	FirstRepliedAt    *capability.Time `json:"firstRepliedAt"`
	LastInboundAt     *capability.Time `json:"lastInboundAt"`
	LastOutboundAt    *capability.Time `json:"lastOutboundAt"`
	CreatedAt         capability.Time  `json:"createdAt"`
	ArchivedAt        *capability.Time `json:"archivedAt"`
	// RelatedThreadID is the thread that a mail refers to without belonging to it.
	RelatedThreadID *string `json:"relatedThreadId"`

	fromKey, inbox            string
	verified, authFailed      bool
	lastAt, classifiedOfCount int64
}

// ThreadDetail is a thread with its newest messages, oldest first.
type ThreadDetail struct {
	Thread
	// Messages has at most [MaxShown] messages.
	Messages []Message `json:"messages"`
}

// Message is one message as staff sees it.
type Message struct {
	ID        string    `json:"id"`
	ThreadID  string    `json:"threadId"`
	Direction Direction `json:"direction"`
	Channel   Channel   `json:"channel"`
	// From is the address of a mail's author, nil for messages of the app and of staff.
	From *string `json:"from"`
	Text string  `json:"text"`
	// HTML is the HTML of a reply; that of inbound mail is not stored.
	HTML *string `json:"html"`
	// StrippedText is Text without quotations and signature.
	StrippedText string  `json:"strippedText"`
	MessageID    *string `json:"messageId"`
	InReplyTo    *string `json:"inReplyTo"`
	// Automated reports whether a program sent the message.
	Automated bool `json:"automated"`
	// Warnings are the irregularities of a mail, such as "html_hidden_text".
	Warnings    []string          `json:"warnings"`
	Metadata    map[string]string `json:"metadata"`
	Attachments []Attachment      `json:"attachments"`
	// EmailJobID identifies the mail of a reply. It is set if and only if Direction is outbound and
	// Channel is email, whatever the thread's channel is.
	EmailJobID *string `json:"emailJobId"`
	// Delivery is the state of that mail, nil if it is no longer known.
	Delivery *string `json:"delivery"`
	// Actor is the control-plane connection that replied, nil in process.
	Actor     *string         `json:"actor"`
	CreatedAt capability.Time `json:"createdAt"`
}

// Attachment is a file of a message.
type Attachment struct {
	ID   string `json:"id"`
	Name string `json:"name"`
	Type string `json:"type"`
	Size int64  `json:"size"`
	// URL is a link to the file that is valid for five minutes; nil if only the name is recorded,
	// for example because storage refused the file.
	URL *string `json:"url"`

	objectID string
}

// Ticket is a thread as its user sees it.
type Ticket struct {
	ID               string          `json:"id"`
	Subject          string          `json:"subject"`
	Channel          Channel         `json:"channel"`
	State            State           `json:"state"`
	DeclaredCategory *string         `json:"declaredCategory"`
	MessageCount     int64           `json:"messageCount"`
	CreatedAt        capability.Time `json:"createdAt"`
	UpdatedAt        capability.Time `json:"updatedAt"`
}

// TicketDetail is a ticket with its newest messages, oldest first.
type TicketDetail struct {
	Ticket
	Messages []TicketMessage `json:"messages"`
}

// TicketMessage is a message as the thread's user sees it.
type TicketMessage struct {
	ID          string          `json:"id"`
	Direction   Direction       `json:"direction"`
	Text        string          `json:"text"`
	Attachments []Attachment    `json:"attachments"`
	CreatedAt   capability.Time `json:"createdAt"`
}

// Feedback is what a user sends from the app.
type Feedback struct {
	// UserID is the author.
	UserID string
	// ThreadID is the user's thread to append to; empty opens a new one.
	ThreadID string
	// Subject is at most 200 bytes; if empty, the first line of the message is used.
	Subject string
	// Message is 1 to 10,000 bytes.
	Message string
	// DeclaredCategory is the key of a category, or empty.
	DeclaredCategory string
	// Metadata has at most 20 entries with keys of at most 64 and values of at most 500 bytes.
	Metadata map[string]string
	// Attachments are the ids of at most 5 storage objects of the user.
	Attachments []string
}

// Filter selects threads; zero fields match all.
type Filter struct {
	State     State
	Category  string
	Priority  Priority
	Sentiment Sentiment
	Channel   Channel
	// Flag is starred, needsReply, spam, suspicious or snoozed.
	Flag     string
	Assignee string
	UserID   string
	// Query is searched for in subject, address and summary, ignoring case; at most 100 bytes. A
	// page examines at most 1,000 threads, so it may have fewer than its limit although more pages
	// follow.
	Query string
}

// FlagChange is a change of flags; flags with nil fields are unchanged.
type FlagChange struct {
	Starred    *bool `json:"starred,omitempty"`
	NeedsReply *bool `json:"needsReply,omitempty"`
	Spam       *bool `json:"spam,omitempty"`
	Suspicious *bool `json:"suspicious,omitempty"`
	// Assignee is at most 128 bytes; empty means nobody.
	Assignee *string `json:"assignee,omitempty"`
	// SnoozedUntil is a time in RFC 3339 format; empty means none.
	SnoozedUntil *string `json:"snoozedUntil,omitempty"`
}

// Reply is a reply of staff or of the application to be sent.
type Reply struct {
	ThreadID string
	// Message is 1 to 20,000 bytes of plain text.
	Message string
	// HTML is the optional HTML alternative; at most 100,000 bytes.
	HTML string
	// Automatic marks a reply that no person wrote. It is refused if a program wrote last, and for
	// 24 hours after another automatic reply to the same thread.
	Automatic bool
	// IdempotencyKey makes a repeated call for the same thread return the first reply; at most 256
	// bytes. Another message with the same key is refused with kit/idempotency_conflict.
	IdempotencyKey string
	// Actor is who replied, by default the caller of the request in the context.
	Actor string
}

// Choices lists the values, for documents.
func (Priority) Choices() []string {
	return []string{string(PriorityUrgent), string(PriorityNormal), string(PriorityLow)}
}

// Choices lists the values, for documents.
func (Sentiment) Choices() []string {
	return []string{string(SentimentAngry), string(SentimentFrustrated), string(SentimentNeutral), string(SentimentPositive)}
}

// Choices lists the values, for documents.
func (Direction) Choices() []string {
	return []string{string(DirectionInbound), string(DirectionOutbound)}
}

// Choices lists the values, for documents.
func (Channel) Choices() []string { return []string{string(ChannelEmail), string(ChannelApp)} }

// Choices lists the values, for documents.
func (State) Choices() []string { return []string{string(StateOpen), string(StateArchived)} }

// Choices lists the values, for documents.
func (Classifier) Choices() []string {
	return []string{string(ClassifierNone), string(ClassifierModel), string(ClassifierFallback), string(ClassifierStaff)}
}
