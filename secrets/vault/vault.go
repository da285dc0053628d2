// Package vault stores secrets in HashiCorp Vault or OpenBao, in the KV version 2 engine, over
// plain net/http.
//
// A secret is an entry of the engine whose data is an object of blocks, so that an operator can
// read and write it with the server's own tools. Writes use check-and-set. The token is renewed
// after two thirds of its TTL. Nothing else that the server returns is passed on, because it may
// quote the token or the secret.
package vault

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/internal/local"
	"github.com/kitbackend/kit/secrets"
)

// Bounds of one call.
const (
	DefaultTimeout = 5 * time.Second
	maxResponse    = 1 << 20
)

// Config configures the location of the entries and the access to them.
type Config struct {
	// Address is the address of the server, such as https://vault.example.com:8200; plain http is
	// allowed for loopback addresses only.
	Address string
	// Token authenticates to the server; it should be periodic and renewable.
	Token secrets.Value
	// Namespace is the server's namespace, if any.
	Namespace string
	// Mount is the engine's mount path, by default "secret"; Path is the prefix of the names of
	// secrets, by default "kit".
	Mount, Path string
	// Timeout bounds one call; 0 means [DefaultTimeout].
	Timeout time.Duration
	// Transport replaces http.DefaultTransport, for example to use private certificates.
	Transport http.RoundTripper
	// Log logs failed renewals of the token; nil means slog.Default().
	Log *slog.Logger
}

// Vault is a [secrets.Provider]. It is safe for concurrent use.
type Vault struct {
	cfg    Config
	base   *url.URL
	client *http.Client
	token  *renewer
}

// New checks the configuration; it does no I/O. Its error is a [capability.Fault].
func New(cfg Config) (*Vault, error) {
	cfg.Mount, cfg.Path = cmp.Or(cfg.Mount, "secret"), cmp.Or(cfg.Path, "kit")
	cfg.Timeout = cmp.Or(cfg.Timeout, DefaultTimeout)
	if cfg.Log == nil {
		cfg.Log = slog.Default()
	}
	faults := capability.Faults{Capability: secrets.Name}
	base, err := url.Parse(cfg.Address)
	switch {
	case err != nil || base.Host == "" || base.RawQuery != "" || base.Fragment != "" || base.User != nil:
		faults.Add("vault.address", nil, "is not an address without user and query", "write it like https://vault.example.com:8200")
	case base.Scheme != "https" && !(base.Scheme == "http" && local.Host(base.Hostname())):
		faults.Add("vault.address", cfg.Address, "is not https", "use https; plain http is for loopback addresses")
	}
	if cfg.Token.Empty() {
		faults.Add("vault.token", nil, "is missing", "give a token that may read and write under the path")
	}
	if err := faults.Err(); err != nil {
		return nil, err
	}
	v := &Vault{cfg: cfg, base: base, client: &http.Client{
		Transport: cfg.Transport, Timeout: cfg.Timeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }, // do not send the token elsewhere
	}}
	v.token = &renewer{vault: v}
	return v, nil
}

// Close stops the renewal of the token.
func (v *Vault) Close() { v.token.close() }

// Name returns "vault".
func (v *Vault) Name() string { return "vault" }

// ReadOnly returns false.
func (v *Vault) ReadOnly() bool { return false }

// entry is the response to a read.
type entry struct {
	Data struct {
		Data     json.RawMessage `json:"data"`
		Metadata struct {
			CreatedTime time.Time `json:"created_time"`
			Version     int64     `json:"version"`
		} `json:"metadata"`
	} `json:"data"`
}

// Read returns a version; deleted and destroyed versions are missing.
func (v *Vault) Read(ctx context.Context, name string, version int64) (secrets.Stored, error) {
	v.token.start()
	query := url.Values{}
	if version != 0 {
		query.Set("version", strconv.FormatInt(version, 10))
	}
	var response entry
	err := v.call(ctx, http.MethodGet, v.path("data", name), query, nil, &response)
	if err != nil && !errors.Is(err, errAbsent) {
		return secrets.Stored{}, err
	}
	stored := secrets.Stored{Version: cmp.Or(response.Data.Metadata.Version, version), CreatedAt: response.Data.Metadata.CreatedTime.UTC()}
	if data := response.Data.Data; err == nil && len(data) > 0 && string(data) != "null" {
		stored.Payload = secrets.NewValue(string(data))
	}
	return stored, nil
}

// Write adds the version after the given one by check-and-set.
func (v *Vault) Write(ctx context.Context, name string, after int64, payload secrets.Value) (int64, error) {
	v.token.start()
	type options struct {
		CAS int64 `json:"cas"`
	}
	body, err := json.Marshal(struct {
		Options options         `json:"options"`
		Data    json.RawMessage `json:"data"`
	}{options{after}, json.RawMessage(payload.Reveal())})
	if err != nil {
		return 0, errors.New("vault: the payload is not JSON")
	}
	var response struct {
		Data struct {
			Version int64 `json:"version"`
		} `json:"data"`
	}
	if err := v.call(ctx, http.MethodPost, v.path("data", name), nil, body, &response); err != nil {
		return 0, err
	}
	if response.Data.Version <= after {
		return 0, errForm
	}
	return response.Data.Version, nil
}

// Delete removes the entry with all its versions.
func (v *Vault) Delete(ctx context.Context, name string) error {
	v.token.start()
	err := v.call(ctx, http.MethodDelete, v.path("metadata", name), nil, nil, nil)
	if errors.Is(err, errAbsent) {
		return nil
	}
	return err
}

func (v *Vault) path(kind, name string) string {
	return strings.Trim(v.cfg.Mount, "/") + "/" + kind + "/" + strings.Trim(v.cfg.Path, "/") + "/" + name
}

var (
	errAbsent = errors.New("vault: no such entry")
	errForm   = errors.New("vault: the response is not of the form of KV version 2")
)

// call sends one request. The error contains only the status of a refusal, and only the kind of a
// connection failure.
func (v *Vault) call(ctx context.Context, method, path string, query url.Values, body []byte, into any) error {
	target := v.base.JoinPath("v1", path)
	target.RawQuery = query.Encode()
	r, err := http.NewRequestWithContext(ctx, method, target.String(), bytes.NewReader(body))
	if err != nil {
		return errors.New("vault: the request cannot be made")
	}
	r.Header.Set("X-Vault-Token", v.cfg.Token.Reveal())
	r.Header.Set("X-Vault-Request", "true")
	if v.cfg.Namespace != "" {
		r.Header.Set("X-Vault-Namespace", v.cfg.Namespace)
	}
	if body != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	response, err := v.client.Do(r)
	if err != nil {
		return connection(err)
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(response.Body, maxResponse+1))
	if err != nil {
		return connection(err)
	}
	if len(text) > maxResponse {
		return fmt.Errorf("vault: the response has over %d bytes", maxResponse)
	}
	if err := refusal(response.StatusCode, text); err != nil {
		if errors.Is(err, errAbsent) && into != nil {
			_ = json.Unmarshal(text, into) // the metadata of a deleted version
		}
		return err
	}
	if into != nil && json.Unmarshal(text, into) != nil {
		return errForm
	}
	return nil
}

// refusal converts an unsuccessful response to an error.
func refusal(status int, text []byte) error {
	switch {
	case status == http.StatusOK || status == http.StatusNoContent:
		return nil
	case status == http.StatusNotFound:
		return errAbsent
	case status == http.StatusBadRequest && bytes.Contains(text, []byte("check-and-set parameter did not match")):
		return secrets.ErrVersionConflict
	case status == http.StatusForbidden:
		return errors.New("vault: permission denied (403): the token is not valid or may not do this")
	case status == http.StatusServiceUnavailable:
		return errors.New("vault: sealed or down for maintenance (503)")
	case status >= 300 && status < 400:
		return fmt.Errorf("vault: sends elsewhere (%d): give the address of the active node", status)
	default:
		return fmt.Errorf("vault: refused (%d)", status)
	}
}

// connection returns the kind of a network failure.
func connection(err error) error {
	var network net.Error
	switch {
	case errors.Is(err, context.Canceled):
		return fmt.Errorf("vault: %w", context.Canceled)
	case errors.As(err, &network) && network.Timeout():
		return fmt.Errorf("vault: no response in time: %w", context.DeadlineExceeded)
	default:
		return errors.New("vault: cannot be reached")
	}
}
