package controlplane

import (
	"crypto/ed25519"
	"encoding/json"

	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/controlplane/internal/wire"
)

// Status is the status of a key.
type Status string

// The active key is the newest: it verifies and registers its successor. A superseded key still
// verifies, until its successor expires it.
const (
	StatusActive     Status = "active"
	StatusSuperseded Status = "superseded"
	StatusExpired    Status = "expired"
)

// Key is a public key of the connection.
type Key struct {
	ID        string `json:"id"`
	Status    Status `json:"status"`
	PublicKey JWK    `json:"publicKey"`
	// Replaces is the id of the key that registered this one, nil for the first.
	Replaces   *string         `json:"replaces"`
	CreatedAt  capability.Time `json:"createdAt"`
	AgeSeconds int64           `json:"ageSeconds"`
	// SupersededAt and SupersededSeconds describe the period in which this key and its successor
	// both verify.
	SupersededAt      *capability.Time `json:"supersededAt"`
	SupersededSeconds *int64           `json:"supersededSeconds"`
	ExpiredAt         *capability.Time `json:"expiredAt"`
	// Overdue is set if the key was superseded more than 30 days ago.
	Overdue bool `json:"overdue"`

	public ed25519.PublicKey
}

// Registration is the request to register a new key.
type Registration struct {
	PublicKey JWK `json:"publicKey"`
	// Proof is a token of typ kit-cp-proof+jwt signed by the new key. Its kid is the id of the new
	// key, its claims are sub (the connection), replaces (the key that signs the request), jti
	// (that of the request), iat and exp.
	Proof string `json:"proof"`
}

// Connection is the first connection of an environment.
type Connection struct {
	// Issuer is the origin that the customer signs as and calls from, scheme://host[:port]; empty
	// means the origin of the service.
	Issuer string `json:"issuer"`
	// PublicKey is the first key.
	PublicKey JWK `json:"publicKey"`
}

// JWK is an Ed25519 public key (RFC 8037): kty "OKP", crv "Ed25519" and x.
type JWK = wire.JWK

// Manifest describes the composition of the service and its routes. No field is ever omitted.
type Manifest struct {
	Environment  string `json:"environment"`
	ConnectionID string `json:"connectionId"`
	// Version is the deployed version of the service.
	Version      string  `json:"version"`
	Capabilities []Entry `json:"capabilities"`
	// GrantedScopes are the scopes of the caller's credential, in its order.
	GrantedScopes []string `json:"grantedScopes"`
}

// Entry is a composed capability.
type Entry struct {
	Name       string   `json:"name"`
	Version    string   `json:"version"`
	HealthKeys []string `json:"healthKeys"`
	// Health has a value of at most 2 KB for every health key, null if it could not be read; Health
	// itself is null if there are no keys.
	Health      map[string]json.RawMessage `json:"health"`
	ConfigKeys  []ConfigKey                `json:"configKeys"`
	Config      map[string]any             `json:"config"`
	AdminRoutes []AdminRoute               `json:"adminRoutes"`
}

// ConfigKey describes one configuration value.
type ConfigKey struct {
	Key string `json:"key"`
	// Choices is empty for a key that is not enumerated.
	Choices []string `json:"choices"`
	Summary string   `json:"summary"`
}

// AdminRoute is one control-plane route.
type AdminRoute struct {
	Method string `json:"method"`
	// Path is the full path, including the mount path of the base URL.
	Path string `json:"path"`
	// Scope is empty only for ping.
	Scope   string `json:"scope"`
	Summary string `json:"summary"`
}

// Ping is the response to ping.
type Ping struct {
	Environment  string `json:"environment"`
	ConnectionID string `json:"connectionId"`
	// KeyID is the key that signed the call.
	KeyID   string `json:"keyId"`
	Version string `json:"version"`
}
