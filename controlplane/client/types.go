package client

import (
	"encoding/json"
	"time"
)

// Ping is the response of [Client.Ping].
type Ping struct {
	Environment  string `json:"environment"`
	ConnectionID string `json:"connectionId"`
	KeyID        string `json:"keyId"`
	Version      string `json:"version"`
}

// Manifest describes the composition of a service and its routes.
type Manifest struct {
	Environment   string       `json:"environment"`
	ConnectionID  string       `json:"connectionId"`
	Version       string       `json:"version"`
	Capabilities  []Capability `json:"capabilities"`
	GrantedScopes []string     `json:"grantedScopes"`
}

// Capability is a composed capability of a service.
type Capability struct {
	Name       string   `json:"name"`
	Version    string   `json:"version"`
	HealthKeys []string `json:"healthKeys"`
	// Health is nil if there are no keys; a value that could not be read is null.
	Health      map[string]json.RawMessage `json:"health"`
	ConfigKeys  []ConfigKey                `json:"configKeys"`
	Config      map[string]json.RawMessage `json:"config"`
	AdminRoutes []Route                    `json:"adminRoutes"`
}

// ConfigKey describes one configuration value.
type ConfigKey struct {
	Key     string   `json:"key"`
	Choices []string `json:"choices"`
	Summary string   `json:"summary"`
}

// Route is a control-plane route; Path can be passed to [Client.Call].
type Route struct {
	Method  string `json:"method"`
	Path    string `json:"path"`
	Scope   string `json:"scope"`
	Summary string `json:"summary"`
}

// Key is a public key of the connection.
type Key struct {
	ID                string     `json:"id"`
	Status            string     `json:"status"`
	PublicKey         JWK        `json:"publicKey"`
	Replaces          *string    `json:"replaces"`
	CreatedAt         time.Time  `json:"createdAt"`
	AgeSeconds        int64      `json:"ageSeconds"`
	SupersededAt      *time.Time `json:"supersededAt"`
	SupersededSeconds *int64     `json:"supersededSeconds"`
	ExpiredAt         *time.Time `json:"expiredAt"`
	Overdue           bool       `json:"overdue"`
}

// JWK is an Ed25519 public key (RFC 8037).
type JWK struct {
	KeyType string `json:"kty"`
	Curve   string `json:"crv"`
	X       string `json:"x"`
}
