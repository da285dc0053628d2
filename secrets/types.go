package secrets

import (
	"time"

	"github.com/kitbackend/kit/capability"
)

// Status says how a rotation stands.
type Status string

// The statuses of a rotation.
const (
	StatusStarted   Status = "started"
	StatusSucceeded Status = "succeeded"
	StatusFailed    Status = "failed"
)

// Rotation is one entry of a secret's history. It never holds a value.
type Rotation struct {
	ID   string `json:"id"`
	Name string `json:"name"`
	// StartedBy is operator, schedule or application.
	StartedBy string `json:"startedBy"`
	Status    Status `json:"status"`
	// Code is why a rotation failed.
	Code string `json:"code,omitempty"`
	// FromVersion is 0 when there was none; ToVersion while there is none.
	FromVersion int64            `json:"fromVersion"`
	ToVersion   int64            `json:"toVersion"`
	StartedAt   capability.Time  `json:"startedAt"`
	FinishedAt  *capability.Time `json:"finishedAt"`

	step      string
	steppedAt time.Time
}

// SecretStatus is what is known of a secret; never a value.
type SecretStatus struct {
	Name string `json:"name"`
	// Mode is manual or automatic.
	Mode     string `json:"mode"`
	Provider string `json:"provider"`
	Exists   bool   `json:"exists"`
	Version  int64  `json:"version"`
	// LastRotatedAt is null where there is no version or the provider does not know.
	LastRotatedAt *capability.Time `json:"lastRotatedAt"`
	NextDueAt     *capability.Time `json:"nextDueAt"`
	Blocks        []BlockStatus    `json:"blocks"`
	LastRotation  *Rotation        `json:"lastRotation"`
	// Problem says that the provider could not be read; then nothing is known.
	Problem string `json:"problem,omitempty"`
}

// BlockStatus says whether a block is present in full, and which fields a half
// one lacks.
type BlockStatus struct {
	Name    string   `json:"name"`
	Present bool     `json:"present"`
	Missing []string `json:"missing,omitempty"`
}
