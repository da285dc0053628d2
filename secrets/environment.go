package secrets

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
)

// Environment is a read-only provider of secrets in environment variables.
// KIT_SECRET_STORAGE_BUCKET_CREDENTIALS contains the secret storage-bucket-credentials as a JSON
// object of blocks, each an object of strings.
type Environment struct{ getenv func(string) string }

// NewEnvironment returns a provider that reads variables by getenv, usually os.Getenv.
func NewEnvironment(getenv func(string) string) *Environment { return &Environment{getenv} }

// Name returns "environment".
func (e *Environment) Name() string { return "environment" }

// ReadOnly returns true.
func (e *Environment) ReadOnly() bool { return true }

// Read returns version 1 if the variable is set.
func (e *Environment) Read(ctx context.Context, name string, version int64) (Stored, error) {
	variable := "KIT_SECRET_" + strings.ToUpper(strings.NewReplacer("-", "_", ".", "_").Replace(name))
	text := e.getenv(variable)
	switch {
	case ctx.Err() != nil:
		return Stored{}, ctx.Err()
	case text == "" || version > 1:
		return Stored{Version: version}, nil
	case len(text) > MaxPayload || !json.Valid([]byte(text)):
		return Stored{}, errors.New("secrets: " + variable + " does not hold JSON of at most 64 KiB")
	}
	return Stored{Version: 1, Payload: NewValue(text)}, nil
}

// Write refuses with secrets/read_only.
func (e *Environment) Write(context.Context, string, int64, Value) (int64, error) {
	return 0, ErrReadOnly
}

// Delete refuses with secrets/read_only.
func (e *Environment) Delete(context.Context, string) error { return ErrReadOnly }
