package secrets_test

import (
	"context"
	"errors"
	"testing"

	"github.com/kitbackend/kit"
	"github.com/kitbackend/kit/controlplane"
	"github.com/kitbackend/kit/kittest"
	"github.com/kitbackend/kit/secrets"
)

// raced is a provider with a concurrent writer.
type raced struct{ *secrets.Memory }

func (raced) Write(context.Context, string, int64, secrets.Value) (int64, error) {
	return 0, secrets.ErrVersionConflict
}

// TestRotateRefuses produces the refusals of a manual rotation by the provider and by the
// declaration.
func TestRotateRefuses(t *testing.T) {
	picky := payments
	picky.Check = func(secrets.Blocks) error { return errors.New("apiKey is of another account") }
	clock := kittest.NewClock()
	for code, c := range map[string]struct {
		provider secrets.Provider
		declared secrets.Secret
		status   int
	}{
		"secrets/version_conflict": {raced{secrets.NewMemory(clock.Now)}, payments, 409},
		"secrets/read_only":        {secrets.NewEnvironment(func(string) string { return "" }), payments, 409},
		"secrets/invalid_value":    {nil, picky, 422},
	} {
		k := kittest.New(t, kit.WithControlPlane(controlplane.Config{}), kit.WithSecrets(secrets.Config{Provider: c.provider, Secrets: []secrets.Secret{c.declared}}))
		k.Machine("secrets:rotate").Post("/secrets/admin/status/payments-provider-credentials/rotate", `{"blocks":{"paddle":{"apiKey":"x"}}}`).Want(c.status, code)
	}
}
