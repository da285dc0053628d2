package seal

import (
	"context"
	"crypto/cipher"
	"encoding/base64"
	"fmt"
	"io"
	"os"
	"regexp"
	"runtime"
	"strings"

	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/internal/random"
)

// The environment variables of the master keys: their text, or the file that holds it.
const (
	Variable     = "KIT_MASTER_KEYS"
	FileVariable = "KIT_MASTER_KEYS_FILE"
)

// maxKeys bounds the list: older keys should have been rewrapped by then.
const maxKeys = 16

// maxFile bounds the file of the master keys, in bytes.
const maxFile = 4 << 10

// Source returns the text of the master keys, such as one that a KMS has
// unwrapped. It is called once, when the kit is assembled.
type Source func(context.Context) (string, error)

var idPattern = regexp.MustCompile(`^[A-Za-z0-9_-]{1,32}$`)

// Load reads the master keys from KIT_MASTER_KEYS, "id2:base64,id1:base64": the
// first one wraps, all of them unwrap; each has 32 bytes. Without it
// KIT_MASTER_KEYS_FILE names a file of the same text, which only its owner may
// read.
// Without either, Load fails with a [capability.Fault] in production; other environments get a key
// for this run only, see [Keys.Ephemeral]. Faults never quote a key.
func Load(environment string, getenv func(string) string) (*Keys, error) {
	if text := strings.TrimSpace(getenv(Variable)); text != "" {
		return parse(Variable, text)
	}
	if file := getenv(FileVariable); file != "" {
		text, err := readFile(file)
		if err != nil {
			return nil, err
		}
		return parse(FileVariable, text)
	}
	if environment == capability.Production {
		return nil, fault(Variable, "is not set, and production keeps encrypted rows")
	}
	key := random.Bytes(keySize)
	const id = "ephemeral"
	return &Keys{first: id, ciphers: map[string]cipher.AEAD{id: newCipher(key)}, ephemeral: true}, nil
}

// LoadFrom reads the master keys from a source, in the form of [Load].
func LoadFrom(ctx context.Context, source Source) (*Keys, error) {
	text, err := source(ctx)
	if err != nil {
		return nil, fault("masterKeys", "could not be fetched: "+err.Error())
	}
	return parse("masterKeys", strings.TrimSpace(text))
}

func readFile(path string) (string, error) {
	file, err := os.Open(path)
	if err != nil {
		return "", fault(FileVariable, "names a file that cannot be read: "+err.Error())
	}
	defer func() { _ = file.Close() }()
	info, err := file.Stat()
	switch {
	case err != nil:
		return "", fault(FileVariable, "names a file that cannot be read: "+err.Error())
	case !info.Mode().IsRegular():
		return "", fault(FileVariable, "does not name a regular file")
	case runtime.GOOS != "windows" && info.Mode().Perm()&0o077 != 0: // Windows has no such bits
		return "", fault(FileVariable, fmt.Sprintf("names a file that others may read (mode %04o); its owner alone may: chmod 600", info.Mode().Perm()))
	}
	text, err := io.ReadAll(io.LimitReader(file, maxFile+1))
	if err != nil || len(text) > maxFile {
		return "", fault(FileVariable, fmt.Sprintf("names a file that cannot be read or is over %d bytes", maxFile))
	}
	return strings.TrimSpace(string(text)), nil
}

func parse(key, text string) (*Keys, error) {
	faults := capability.Faults{}
	keys := &Keys{ciphers: make(map[string]cipher.AEAD)}
	entries := strings.Split(text, ",")
	if len(entries) > maxKeys {
		return nil, fault(key, fmt.Sprintf("lists %d keys, the limit is %d", len(entries), maxKeys))
	}
	for i, entry := range entries {
		id, encoded, _ := strings.Cut(strings.TrimSpace(entry), ":")
		master, err := base64.StdEncoding.Strict().DecodeString(encoded)
		switch {
		case !idPattern.MatchString(id):
			faults.Join(fault(key, fmt.Sprintf("has an entry %d without an id of 1 to 32 letters, digits, _ or -", i+1)))
		case keys.ciphers[id] != nil:
			faults.Join(fault(key, fmt.Sprintf("names the key %q twice", id)))
		case err != nil || len(master) != keySize:
			faults.Join(fault(key, fmt.Sprintf("holds no base64 of %d bytes under %q", keySize, id)))
		default:
			keys.ciphers[id] = newCipher(master)
			if keys.first == "" {
				keys.first = id
			}
		}
	}
	if err := faults.Err(); err != nil {
		return nil, err
	}
	return keys, nil
}

func fault(key, reason string) *capability.Fault {
	return &capability.Fault{
		Capability: "kit", Key: key, Reason: reason,
		Fix: "set it to id:key pairs separated by commas, the newest first; make a key with: openssl rand -base64 32",
	}
}
