package client

import (
	"bytes"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"runtime"

	"github.com/kitbackend/kit/controlplane/internal/wire"
)

// ErrExposed is returned by [Load] for a key file that other users can access.
var ErrExposed = errors.New("client: the key file is open to other users; chmod 600 it, and replace the key")

// maxFile is the maximum size of a key file, in bytes.
const maxFile = 16 << 10

// Identity is one key of one connection, and everything else needed to call a service.
type Identity struct {
	// Address is the address of the control plane, such as https://example.com/control-plane.
	Address string
	// Environment and Issuer are the environment and the issuer of the connection.
	Environment, Issuer string
	// ConnectionID is the id of the connection, which stays the same when keys are replaced.
	ConnectionID string
	PrivateKey   ed25519.PrivateKey `json:"-"`
}

// Generate generates the first key of a connection. If issuer is empty, it is the origin of the
// address.
func Generate(address, environment, issuer string) (Identity, error) {
	if issuer == "" {
		u, err := url.Parse(address)
		if err != nil || u.Host == "" {
			return Identity{}, fmt.Errorf("client: %q is no address", address)
		}
		issuer = u.Scheme + "://" + u.Host
	}
	public, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		return Identity{}, err
	}
	return Identity{
		Address: address, Environment: environment, Issuer: issuer,
		ConnectionID: wire.ConnectionID(environment, public), PrivateKey: private,
	}, nil
}

// Public returns the public key.
func (i Identity) Public() ed25519.PublicKey { return i.PrivateKey.Public().(ed25519.PublicKey) }

// KeyID returns the id of the key.
func (i Identity) KeyID() string { return wire.KeyID(i.Public()) }

// WithKey returns the identity with another key, after [Client.Register].
func (i Identity) WithKey(key ed25519.PrivateKey) Identity {
	i.PrivateKey = key
	return i
}

// Bootstrap returns the value of KIT_CONTROL_PLANE_CONNECTION for a first key.
func (i Identity) Bootstrap() string {
	text, err := json.Marshal(struct {
		Issuer    string   `json:"issuer"`
		PublicKey wire.JWK `json:"publicKey"`
	}{i.Issuer, wire.NewJWK(i.Public())})
	if err != nil {
		panic(err) // strings always encode
	}
	return string(text)
}

// String returns a description without the private key.
func (i Identity) String() string { return "identity " + i.ConnectionID + " of " + i.Address }

// GoString returns a description without the private key.
func (i Identity) GoString() string { return i.String() }

// file is an identity as stored.
type file struct {
	Address      string     `json:"address"`
	Environment  string     `json:"environment"`
	Issuer       string     `json:"issuer"`
	ConnectionID string     `json:"connectionId"`
	KeyID        string     `json:"keyId"`
	PrivateKey   privateJWK `json:"privateKey"`
}

type privateJWK struct {
	wire.JWK
	D string `json:"d"`
}

// Create writes the identity to a new file that only its owner may read. It does not overwrite an
// existing file.
func (i Identity) Create(path string) error {
	text, err := json.MarshalIndent(file{i.Address, i.Environment, i.Issuer, i.ConnectionID, i.KeyID(),
		privateJWK{wire.NewJWK(i.Public()), base64.RawURLEncoding.EncodeToString(i.PrivateKey.Seed())}}, "", "\t")
	if err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(append(text, '\n'))
	return errors.Join(err, f.Sync(), f.Close())
}

// Load reads a file that [Identity.Create] wrote. It returns [ErrExposed] if the group or others
// may read or write the file.
func Load(path string) (Identity, error) {
	f, err := os.Open(path)
	if err != nil {
		return Identity{}, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return Identity{}, err
	}
	if info.Mode().Perm()&0o077 != 0 && runtime.GOOS != "windows" {
		return Identity{}, fmt.Errorf("%w: %s", ErrExposed, path)
	}
	text, err := io.ReadAll(io.LimitReader(f, maxFile))
	if err != nil {
		return Identity{}, err
	}
	return parse(text, path)
}

// parse parses a key file. Its error does not quote the file, which contains a private key.
func parse(text []byte, path string) (Identity, error) {
	broken := fmt.Errorf("client: %s is no key file", path)
	var stored file
	if json.Unmarshal(text, &stored) != nil {
		return Identity{}, broken
	}
	public, err := stored.PrivateKey.Public()
	if err != nil {
		return Identity{}, broken
	}
	seed, err := base64.RawURLEncoding.DecodeString(stored.PrivateKey.D)
	if err != nil || len(seed) != ed25519.SeedSize {
		return Identity{}, broken
	}
	i := Identity{stored.Address, stored.Environment, stored.Issuer, stored.ConnectionID, ed25519.NewKeyFromSeed(seed)}
	if !bytes.Equal(i.Public(), public) {
		return Identity{}, broken
	}
	return i, nil
}
