package controlplane

import (
	"context"
	"encoding/json"
	"reflect"
	"slices"
	"time"

	"github.com/kitbackend/kit/capability"
)

// The bounds of the health aggregates.
const (
	maxHealth     = 2 << 10
	healthTimeout = 2 * time.Second
)

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

// Describe returns the manifest entries of capabilities with their current health; the paths of
// routes include the mount path.
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
		e.Config[key.Key] = resolved(key.Value)
	}
	for _, r := range c.Routes {
		if r.Guard.Strategy() == capability.StrategyControlPlane {
			e.AdminRoutes = append(e.AdminRoutes, AdminRoute{r.Method, mountPath + r.Path, r.Guard.Scope(), r.Summary})
		}
	}
	return e
}

// resolved returns a configuration value for clients: a nil list or map is empty, not null.
func resolved(value any) any {
	if _, ok := value.(json.Marshaler); ok {
		return value
	}
	switch v := reflect.ValueOf(value); {
	case v.Kind() == reflect.Slice && v.IsNil():
		return reflect.MakeSlice(v.Type(), 0, 0).Interface()
	case v.Kind() == reflect.Map && v.IsNil():
		return reflect.MakeMap(v.Type()).Interface()
	}
	return value
}

// readHealth returns the value of every key, or nil if there are no keys. The kit caches values for
// 30 seconds, so that frequent calls are cheap.
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
