package secrets

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
)

// Environment reads secrets from environment variables and cannot write them.
// KIT_SECRET_STORAGE_BUCKET_CREDENTIALS holds the secret
// storage-bucket-credentials as a JSON object of blocks, each an object of
// texts.
type Environment struct{ getenv func(string) string }

// NewEnvironment makes the provider; getenv is os.Getenv.
func NewEnvironment(getenv func(string) string) *Environment { return &Environment{getenv} }

// Name is "environment".
func (e *Environment) Name() string { return "environment" }

// ReadOnly is true.
func (e *Environment) ReadOnly() bool { return true }

// Read returns version 1 of a variable that is set.
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
