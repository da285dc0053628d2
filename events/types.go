package events

import (
	"encoding/json"

	"github.com/kitbackend/kit/capability"
)

// State is the state of a delivery.
type State string

// The states of a delivery.
const (
	StatePending   State = "pending"
	StateDelivered State = "delivered"
	// StateFailed is a delivery that has failed for good, or whose event occurred while the
	// endpoint was disabled; [Events.Replay] sends it again.
	StateFailed State = "failed"
)

// Delivery is the delivery of one message to one endpoint.
type Delivery struct {
	MessageID string          `json:"messageId"`
	Endpoint  string          `json:"endpoint"`
	Type      string          `json:"type"`
	State     State           `json:"state"`
	Attempts  int64           `json:"attempts"`
	CreatedAt capability.Time `json:"createdAt"`
	UpdatedAt capability.Time `json:"updatedAt"`
	// LastStatus is the HTTP status of the last response, 0 without one.
	LastStatus int64  `json:"lastStatus,omitempty"`
	LastError  string `json:"lastError,omitempty"`
}

// EndpointStatus is the status of a configured endpoint.
type EndpointStatus struct {
	Name string `json:"name"`
	URL  string `json:"url"`
	// FailingSince is the time of the first failure since the last success; zero if the last
	// delivery succeeded.
	FailingSince capability.Time `json:"failingSince,omitzero"`
	// DisabledAt is zero unless the endpoint is disabled.
	DisabledAt capability.Time `json:"disabledAt,omitzero"`
	Reason     string          `json:"reason,omitempty"`
	// Pending and Failed are numbers of deliveries, at most 10,000.
	Pending int64 `json:"pending"`
	Failed  int64 `json:"failed"`
}

// Message is the body of the request to an endpoint.
type Message struct {
	// Type is one of [Types].
	Type string `json:"type"`
	// Timestamp is when the change was made.
	Timestamp capability.Time `json:"timestamp"`
	// Data is the event of package hooks.
	Data json.RawMessage `json:"data"`
}

// message is a stored message.
type message struct {
	Message
	id string
}
