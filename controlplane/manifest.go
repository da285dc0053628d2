package controlplane

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	"github.com/kitbackend/kit/capability"
)

// Bounds of the health aggregates.
const (
	maxHealth     = 2 << 10
	healthTimeout = 2 * time.Second
)

// Manifest says what the service composes and how to call it. No field is ever
// left out.
type Manifest struct {
	Environment  string `json:"environment"`
	ConnectionID string `json:"connectionId"`
	// Version is the deployed version of the service.
	Version      string  `json:"version"`
	Capabilities []Entry `json:"capabilities"`
	// GrantedScopes are those of the credential that asked, in its order.
	GrantedScopes []string `json:"grantedScopes"`
}

// Entry is one composed capability.
type Entry struct {
	Name       string   `json:"name"`
	Version    string   `json:"version"`
	HealthKeys []string `json:"healthKeys"`
	// Health holds a value of at most 2 KB for every health key, null where it
	// could not be read; it is null as a whole where there are no keys.
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
	// Path is fully mounted, the mount path of the base URL included.
	Path string `json:"path"`
	// Scope is empty for ping alone.
	Scope   string `json:"scope"`
	Summary string `json:"summary"`
}

// manifest describes the composition to a verified caller.
func (cp *ControlPlane) manifest(ctx context.Context, caller capability.Caller) (Manifest, error) {
	reg, err := cp.connectionOf(ctx, caller)
	if err != nil {
		return Manifest{}, err
	}
	m := Manifest{
		Environment: reg.environment, ConnectionID: reg.id, Version: cp.peers.Version,
		GrantedScopes: []string{},
	}
	for _, scope := range caller.Scopes {
		if !slices.Contains(m.GrantedScopes, scope) {
			m.GrantedScopes = append(m.GrantedScopes, scope)
		}
	}
	m.Capabilities = Describe(ctx, cp.peers.Composed(), cp.host.BaseURL.Path)
	return m, nil
}

// Describe returns the manifest's entries of capabilities, with the health read
// now; paths of routes begin with the mount path.
func Describe(ctx context.Context, composed []capability.Capability, mountPath string) []Entry {
	entries := []Entry{}
	for _, c := range composed {
		e := describe(c, mountPath)
		e.Health = readHealth(ctx, c.Health)
		entries = append(entries, e)
	}
	return entries
}

func describe(c capability.Capability, mountPath string) Entry {
	e := Entry{
		Name: c.Name, Version: c.Version, HealthKeys: []string{},
		ConfigKeys: []ConfigKey{}, Config: map[string]any{}, AdminRoutes: []AdminRoute{},
	}
	for _, key := range c.Health {
		e.HealthKeys = append(e.HealthKeys, key.Key)
	}
	for _, key := range c.Config {
		e.ConfigKeys = append(e.ConfigKeys, ConfigKey{key.Key, append([]string{}, key.Choices...), key.Summary})
		e.Config[key.Key] = key.Value
	}
	for _, r := range c.Routes {
		if r.Guard.Strategy() == capability.StrategyControlPlane {
			e.AdminRoutes = append(e.AdminRoutes, AdminRoute{r.Method, mountPath + r.Path, r.Guard.Scope(), r.Summary})
		}
	}
	return e
}

// readHealth returns the value of every key, or nil where there are no keys.
// The kit keeps values for 30 seconds, so that asking often costs little.
func readHealth(ctx context.Context, keys []capability.HealthKey) map[string]json.RawMessage {
	if len(keys) == 0 {
		return nil
	}
	values := make(map[string]json.RawMessage, len(keys))
	for _, key := range keys {
		values[key.Key] = healthValue(ctx, key)
	}
	return values
}

var null = json.RawMessage("null")

func healthValue(ctx context.Context, key capability.HealthKey) json.RawMessage {
	ctx, cancel := context.WithTimeout(ctx, healthTimeout)
	defer cancel()
	value, err := key.Read(ctx)
	if err != nil {
		return null
	}
	text, err := json.Marshal(value)
	if err != nil || len(text) > maxHealth {
		return null
	}
	return text
}
