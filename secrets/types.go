package secrets

import (
	"time"

	"github.com/kitbackend/kit/capability"
)

// Status is the status of a rotation.
type Status string

// The statuses of a rotation.
const (
	StatusStarted   Status = "started"
	StatusSucceeded Status = "succeeded"
	StatusFailed    Status = "failed"
)

// Rotation is one entry of a secret's history. It never contains a value.
type Rotation struct {
	ID   string `json:"id"`
	Name string `json:"name"`
	// StartedBy is operator, schedule or application.
	StartedBy string `json:"startedBy"`
	Status    Status `json:"status"`
	// Code is the refusal code of a failed rotation.
	Code string `json:"code,omitempty"`
	// FromVersion is 0 if there was no version; ToVersion is 0 until the new one is current.
	FromVersion int64            `json:"fromVersion"`
	ToVersion   int64            `json:"toVersion"`
	StartedAt   capability.Time  `json:"startedAt"`
	FinishedAt  *capability.Time `json:"finishedAt"`

	step      string
	steppedAt time.Time
}

// SecretStatus is the status of a secret; it never contains a value.
type SecretStatus struct {
	Name string `json:"name"`
	// Mode is manual or automatic.
	Mode     string `json:"mode"`
	Provider string `json:"provider"`
	// Exists is false if there is no version, or none of its blocks is left.
	Exists  bool  `json:"exists"`
	Version int64 `json:"version"`
	// LastRotatedAt is null if there is no version or the provider does not know.
	LastRotatedAt *capability.Time `json:"lastRotatedAt"`
	NextDueAt     *capability.Time `json:"nextDueAt"`
	Blocks        []BlockStatus    `json:"blocks"`
	LastRotation  *Rotation        `json:"lastRotation"`
	// Problem is set if the provider could not be read; then the rest is unknown.
	Problem string `json:"problem,omitempty"`
}

// BlockStatus reports whether a block is complete, and which fields an incomplete one lacks.
type BlockStatus struct {
	Name    string   `json:"name"`
	Present bool     `json:"present"`
	Missing []string `json:"missing,omitempty"`
}
