package email

import (
	"bufio"
	"bytes"
	"encoding/json"
	"net/textproto"
	"slices"
	"strings"
	"time"

	"github.com/kitbackend/kit/capability"
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

	addressKey   string
	pinned       bool
	roundBeganAt time.Time
}

// JobDetail is a job with what happened to it.
type JobDetail struct {
	Job
	Headers []Header `json:"headers"`
	Events  []Event  `json:"events"`
}

// Header is a line of a message's head, as it was composed. The links to
// unsubscribe are left out: who has one may use it.
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

// headersOf reads the head of a message, sorted by name.
func headersOf(message []byte) []Header {
	headers := []Header{}
	parsed, err := textproto.NewReader(bufio.NewReader(bytes.NewReader(message))).ReadMIMEHeader()
	if err != nil {
		return headers
	}
	for name, values := range parsed {
		for _, value := range values {
			if name != "List-Unsubscribe" {
				headers = append(headers, Header{name, value})
			}
		}
	}
	slices.SortStableFunc(headers, func(a, b Header) int { return strings.Compare(a.Name, b.Name) })
	return headers
}

func optionalText(text string) *string {
	if text == "" {
		return nil
	}
	return &text
}

func optionalTime(ms int64) *capability.Time {
	if ms == 0 {
		return nil
	}
	t := capability.Millis(ms)
	return &t
}
