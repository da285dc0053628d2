package support

import (
	"slices"

	"github.com/kitbackend/kit/capability"
)

// Priority says how soon a thread wants a reply.
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

// Direction says who wrote a message.
type Direction string

// The directions: from the customer, and a reply of ours.
const (
	DirectionInbound  Direction = "inbound"
	DirectionOutbound Direction = "outbound"
)

// Channel is how a message came or went.
type Channel string

// The channels.
const (
	ChannelEmail Channel = "email"
	ChannelApp   Channel = "app"
)

// LinkSource says how we know which user wrote.
type LinkSource string

// The sources. A mail's address counts only when the mail proved to be of its
// domain and the address is one that a user has verified.
const (
	LinkSession      LinkSource = "session"
	LinkEmailAddress LinkSource = "email_address"
)

// State is the state of a thread.
type State string

// The states. A new message of the customer opens an archived thread.
const (
	StateOpen     State = "open"
	StateArchived State = "archived"
)

// Classifier says who judged a thread last.
type Classifier string

// The classifiers: nobody yet, the model, the rules of this package, and a
// person who set the category.
const (
	ClassifierNone     Classifier = "none"
	ClassifierModel    Classifier = "model"
	ClassifierFallback Classifier = "fallback"
	ClassifierStaff    Classifier = "staff"
)

// The categories that are always there.
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

// Category is one kind of request.
type Category struct {
	// Key is ^[a-z][a-z0-9_]{1,39}$.
	Key string `json:"key"`
	// Description tells people and the model what belongs there; at most 300 bytes.
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

// merged returns the built-in categories and own ones after them. An own one
// under a built-in key changes its description.
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
	// NeedsReply is set by a message of a person and taken off by a reply.
	NeedsReply bool `json:"needsReply"`
	Spam       bool `json:"spam"`
	// Suspicious is set where a mail looks like a deception; its messages say why.
	Suspicious bool `json:"suspicious"`
	// Assignee names who takes care, in the application's own terms.
	Assignee *string `json:"assignee"`
	// SnoozedUntil is when the thread is to be looked at again. A new message
	// ends it.
	SnoozedUntil *capability.Time `json:"snoozedUntil"`
}

// Thread is a conversation with one person as staff sees it.
type Thread struct {
	ID      string  `json:"id"`
	Subject string  `json:"subject"`
	Channel Channel `json:"channel"`
	State   State   `json:"state"`
	// DeclaredCategory is the submitter's claim; it never changes.
	DeclaredCategory *string `json:"declaredCategory"`
	// Category is the judgment of the last classification.
	Category   string     `json:"category"`
	Priority   Priority   `json:"priority"`
	Sentiment  Sentiment  `json:"sentiment"`
	Summary    string     `json:"summary"`
	Confidence float64    `json:"confidence"`
	By         Classifier `json:"classifiedBy"`
	// ClassifiedAt is when By judged, nil before.
	ClassifiedAt *capability.Time `json:"classifiedAt"`
	UserID       *string          `json:"userId"`
	FromAddress  *string          `json:"fromAddress"`
	// AccountLinkSource says how UserID is known; nil without one.
	AccountLinkSource *LinkSource      `json:"accountLinkSource"`
	Flags             Flags            `json:"flags"`
	MessageCount      int64            `json:"messageCount"`
	FirstRepliedAt    *capability.Time `json:"firstRepliedAt"`
	LastInboundAt     *capability.Time `json:"lastInboundAt"`
	LastOutboundAt    *capability.Time `json:"lastOutboundAt"`
	CreatedAt         capability.Time  `json:"createdAt"`
	ArchivedAt        *capability.Time `json:"archivedAt"`
	// RelatedThreadID is the thread that a mail referred to without belonging to it.
	RelatedThreadID *string `json:"relatedThreadId"`

	fromKey, inbox            string
	verified, authFailed      bool
	lastAt, classifiedOfCount int64
}

// ThreadDetail is a thread with its newest messages, oldest first.
type ThreadDetail struct {
	Thread
	// Messages are at most [MaxShown].
	Messages []Message `json:"messages"`
}

// Message is one message as staff sees it.
type Message struct {
	ID        string    `json:"id"`
	ThreadID  string    `json:"threadId"`
	Direction Direction `json:"direction"`
	Channel   Channel   `json:"channel"`
	// From is the address of a mail's author, nil for the app and for staff.
	From *string `json:"from"`
	Text string  `json:"text"`
	// HTML is what a reply was given; that of inbound mail is not kept.
	HTML *string `json:"html"`
	// StrippedText is Text without quotations and signature.
	StrippedText string  `json:"strippedText"`
	MessageID    *string `json:"messageId"`
	InReplyTo    *string `json:"inReplyTo"`
	// Automated marks what a program sent.
	Automated bool `json:"automated"`
	// Warnings name what was odd about a mail, such as "html_hidden_text".
	Warnings    []string          `json:"warnings"`
	Metadata    map[string]string `json:"metadata"`
	Attachments []Attachment      `json:"attachments"`
	// EmailJobID names the mail of a reply: set exactly when Direction is outbound
	// and Channel is email, whichever the thread's is.
	EmailJobID *string `json:"emailJobId"`
	// Delivery is the state of that mail, nil when it is no longer known.
	Delivery *string `json:"delivery"`
	// Actor is the control-plane connection that replied, nil in process.
	Actor     *string         `json:"actor"`
	CreatedAt capability.Time `json:"createdAt"`
}

// Attachment is a file that came with a message.
type Attachment struct {
	ID   string `json:"id"`
	Name string `json:"name"`
	Type string `json:"type"`
	Size int64  `json:"size"`
	// URL reads the file for five minutes; nil where only its name was kept, as
	// of one that storage refuses.
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
	// UserID is the writer.
	UserID string
	// ThreadID appends to a thread of the user; empty opens one.
	ThreadID string
	// Subject is at most 200 bytes; empty takes the first line of the message.
	Subject string
	// Message is 1 to 10,000 bytes.
	Message string
	// DeclaredCategory is the key of a category, or empty.
	DeclaredCategory string
	// Metadata is at most 20 entries of 64 and 500 bytes.
	Metadata map[string]string
	// Attachments are at most 5 objects of the user in storage.
	Attachments []string
}

// Filter selects threads; zero fields select all.
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
	// Query is looked for in subject, address and summary, in any case; at most
	// 100 bytes. A page looks at 1,000 threads at most, so it may hold fewer than
	// its limit before the last page.
	Query string
}

// FlagChange says which flags change; nil fields stay.
type FlagChange struct {
	Starred    *bool `json:"starred,omitempty"`
	NeedsReply *bool `json:"needsReply,omitempty"`
	Spam       *bool `json:"spam,omitempty"`
	Suspicious *bool `json:"suspicious,omitempty"`
	// Assignee is at most 128 bytes; empty for nobody.
	Assignee *string `json:"assignee,omitempty"`
	// SnoozedUntil is an instant of RFC 3339; empty for none.
	SnoozedUntil *string `json:"snoozedUntil,omitempty"`
}

// Reply is one of staff or of the application.
type Reply struct {
	ThreadID string
	// Message is 1 to 20,000 bytes of plain text.
	Message string
	// HTML is sent along with it; at most 100,000 bytes.
	HTML string
	// Automatic marks a reply that no person wrote. It is refused in reply to
	// a program, and for a day after another one to the same thread.
	Automatic bool
	// IdempotencyKey makes a repetition in the same thread return the first reply;
	// at most 256 bytes. Another message under it is kit/idempotency_conflict.
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
