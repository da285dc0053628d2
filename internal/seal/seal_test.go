package seal_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/internal/seal"
)

func load(t testing.TB, environment, masterKeys string) (*seal.Keys, error) {
	t.Helper()
	return seal.Load(environment, func(name string) string {
		switch name {
		case "KIT_MASTER_KEYS":
			return masterKeys
		case "KIT_MASTER_KEYS_FILE":
		default:
			t.Errorf("reads %s", name)
		}
		return ""
	})
}

func must(t testing.TB, environment, masterKeys string) *seal.Keys {
	t.Helper()
	keys, err := load(t, environment, masterKeys)
	if err != nil {
		t.Fatal(err)
	}
	return keys
}

func key(id string, fill byte) string {
	return id + ":" + base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{fill}, 32))
}

func TestOpensInItsContextOnly(t *testing.T) {
	keys := must(t, capability.Production, key("k1", 1))
	for _, plaintext := range [][]byte{{}, []byte("secret"), bytes.Repeat([]byte("x"), 1<<16)} {
		sealed := keys.Seal("auth/signing-key/a", plaintext)
		if got, err := keys.Open("auth/signing-key/a", sealed); err != nil || !bytes.Equal(got, plaintext) {
			t.Errorf("%d bytes: %v", len(plaintext), err)
		}
		if len(plaintext) > 0 && bytes.Contains(sealed, plaintext) {
			t.Error("the plaintext shows")
		}
		for _, context := range []string{"", "auth/signing-key/b", "auth/signing-key/a ", "content/auth/signing-key/a"} {
			if _, err := keys.Open(context, sealed); !errors.Is(err, seal.ErrNotOpened) {
				t.Errorf("context %q: %v", context, err)
			}
		}
	}
}

func TestEveryValueIsSealedAnew(t *testing.T) {
	keys := must(t, capability.Production, key("k1", 1))
	if bytes.Equal(keys.Seal("c", []byte("x")), keys.Seal("c", []byte("x"))) {
		t.Error("two seals are equal")
	}
}

func TestAlteredBytesDoNotOpen(t *testing.T) {
	keys := must(t, capability.Production, key("k1", 1)+","+key("k2", 2))
	sealed := keys.Seal("c", []byte("secret"))
	for i := range sealed {
		altered := bytes.Clone(sealed)
		altered[i] ^= 1
		if _, err := keys.Open("c", altered); !errors.Is(err, seal.ErrNotOpened) {
			t.Errorf("byte %d altered: %v", i, err)
		}
		if _, err := keys.Open("c", sealed[:i]); !errors.Is(err, seal.ErrNotOpened) {
			t.Errorf("cut to %d bytes: %v", i, err)
		}
	}
	if _, err := keys.Open("c", append(sealed, 0)); !errors.Is(err, seal.ErrNotOpened) {
		t.Errorf("a byte more: %v", err)
	}
}

func TestLayersDoNotMixBetweenValues(t *testing.T) {
	keys := must(t, capability.Production, key("k1", 1))
	one, other := keys.Seal("c", []byte("one")), keys.Seal("c", []byte("two"))
	const head = 2 + len("k1") + 12 + 32 + 16
	mixed := append(bytes.Clone(one[:head]), other[head:]...)
	if _, err := keys.Open("c", mixed); !errors.Is(err, seal.ErrNotOpened) {
		t.Errorf("wrapped key of one, content of the other: %v", err)
	}
}

func TestMasterKeyRotation(t *testing.T) {
	old := must(t, capability.Production, key("k1", 1))
	both := must(t, capability.Production, key("k2", 2)+", "+key("k1", 1))
	renewed := must(t, capability.Production, key("k2", 2))

	sealed := old.Seal("c", []byte("secret"))
	if got, err := both.Open("c", sealed); err != nil || string(got) != "secret" {
		t.Errorf("the kept key does not unwrap: %v", err)
	}
	if _, err := renewed.Open("c", sealed); !errors.Is(err, seal.ErrNotOpened) {
		t.Errorf("a removed key unwraps: %v", err)
	}
	if got, err := renewed.Open("c", both.Seal("c", []byte("secret"))); err != nil || string(got) != "secret" {
		t.Errorf("the first key does not wrap: %v", err)
	}
}

func TestWithoutMasterKeys(t *testing.T) {
	for _, environment := range []string{capability.Development, capability.Sandbox, "staging"} {
		one, other := must(t, environment, ""), must(t, environment, " ")
		if !one.Ephemeral() {
			t.Errorf("%s: not ephemeral", environment)
		}
		if _, err := other.Open("c", one.Seal("c", []byte("secret"))); !errors.Is(err, seal.ErrNotOpened) {
			t.Errorf("%s: two runs share a key: %v", environment, err)
		}
	}
	_, err := load(t, capability.Production, "")
	if fault := new(capability.Fault); !errors.As(err, &fault) || fault.Key != "KIT_MASTER_KEYS" {
		t.Errorf("production: %v", err)
	}
	if must(t, capability.Production, key("k1", 1)).Ephemeral() {
		t.Error("a given key is called ephemeral")
	}
}

func TestFaultyMasterKeys(t *testing.T) {
	secret := base64.StdEncoding.EncodeToString(bytes.Repeat([]byte("s"), 32))
	tests := map[string]string{
		"no id":           secret,
		"empty id":        ":" + secret,
		"bad id":          "a/b:" + secret,
		"long id":         strings.Repeat("i", 33) + ":" + secret,
		"short key":       "k1:" + base64.StdEncoding.EncodeToString(bytes.Repeat([]byte("s"), 31)),
		"no base64":       "k1:" + strings.Repeat("s", 43) + "!",
		"no padding":      "k1:" + strings.TrimRight(secret, "="),
		"twice":           "k1:" + secret + ",k1:" + secret,
		"trailing comma":  "k1:" + secret + ",",
		"one good of two": "k1:" + secret + ",k2:short",
		"too many":        strings.Repeat("k:s,", 20),
	}
	for name, text := range tests {
		for _, environment := range []string{capability.Production, capability.Development} {
			_, err := load(t, environment, text)
			if fault := new(capability.Fault); !errors.As(err, &fault) {
				t.Errorf("%s in %s: %v", name, environment, err)
			} else if strings.Contains(err.Error(), "ssss") || strings.Contains(err.Error(), secret[:12]) {
				t.Errorf("%s: the fault quotes the key: %v", name, err)
			}
		}
	}
	_, err := load(t, capability.Production, "a/b:"+secret+",k2:short")
	if err == nil || !strings.Contains(err.Error(), "entry 1") || !strings.Contains(err.Error(), `"k2"`) {
		t.Errorf("not all faults at once: %v", err)
	}
}

func TestRewrap(t *testing.T) {
	old := must(t, capability.Production, key("k1", 1))
	both := must(t, capability.Production, key("k2", 2)+","+key("k1", 1))
	renewed := must(t, capability.Production, key("k2", 2))

	sealed := old.Seal("c", []byte("secret"))
	rewrapped, changed, err := both.Rewrap("c", sealed)
	if err != nil || !changed || seal.KeyID(rewrapped) != "k2" || seal.KeyID(sealed) != "k1" {
		t.Fatalf("%v %v, wrapped by %q", changed, err, seal.KeyID(rewrapped))
	}
	if got, err := renewed.Open("c", rewrapped); err != nil || string(got) != "secret" {
		t.Errorf("the new key alone does not open: %v", err)
	}
	if again, changed, err := both.Rewrap("c", rewrapped); err != nil || changed || !bytes.Equal(again, rewrapped) {
		t.Errorf("rewrapped twice: %v %v", changed, err)
	}
	for name, attempt := range map[string]func() ([]byte, bool, error){
		"other context": func() ([]byte, bool, error) { return both.Rewrap("d", sealed) },
		"unknown key":   func() ([]byte, bool, error) { return renewed.Rewrap("c", sealed) },
		"nothing":       func() ([]byte, bool, error) { return both.Rewrap("c", nil) },
	} {
		if _, _, err := attempt(); !errors.Is(err, seal.ErrNotOpened) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestMasterKeysFromFile(t *testing.T) {
	write := func(text string, mode os.FileMode) string {
		path := filepath.Join(t.TempDir(), "keys")
		if err := os.WriteFile(path, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, mode); err != nil { // whatever the umask
			t.Fatal(err)
		}
		return path
	}
	from := func(path string) (*seal.Keys, error) {
		return seal.Load(capability.Production, func(name string) string {
			return map[string]string{"KIT_MASTER_KEYS_FILE": path}[name]
		})
	}
	keys, err := from(write(key("k1", 's')+"\n", 0o600))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := must(t, capability.Production, key("k1", 's')).Open("c", keys.Seal("c", nil)); err != nil {
		t.Errorf("the file holds another key: %v", err)
	}
	for name, attempt := range map[string]func() (*seal.Keys, error){
		"group may read": func() (*seal.Keys, error) { return from(write(key("k1", 's'), 0o640)) },
		"world may read": func() (*seal.Keys, error) { return from(write(key("k1", 's'), 0o604)) },
		"no file":        func() (*seal.Keys, error) { return from(filepath.Join(t.TempDir(), "none")) },
		"a folder":       func() (*seal.Keys, error) { return from(t.TempDir()) },
		"empty":          func() (*seal.Keys, error) { return from(write("", 0o600)) },
		"too large":      func() (*seal.Keys, error) { return from(write(strings.Repeat(" ", 1<<13), 0o600)) },
		"faulty key":     func() (*seal.Keys, error) { return from(write("k1:c3Nz", 0o600)) },
	} {
		_, err := attempt()
		if fault := new(capability.Fault); !errors.As(err, &fault) {
			t.Errorf("%s: %v", name, err)
		} else if strings.Contains(err.Error(), "c3Nz") { // base64 of "sss"
			t.Errorf("%s: the fault quotes the key: %v", name, err)
		}
	}
}

func TestMasterKeysFromASource(t *testing.T) {
	ctx := context.Background()
	keys, err := seal.LoadFrom(ctx, func(context.Context) (string, error) { return key("k1", 1), nil })
	if err != nil || keys.Ephemeral() {
		t.Fatal(err)
	}
	if _, err := must(t, capability.Production, key("k1", 1)).Open("c", keys.Seal("c", nil)); err != nil {
		t.Error(err)
	}
	for name, source := range map[string]seal.Source{
		"failure": func(context.Context) (string, error) { return "", errors.New("the KMS is away") },
		"nothing": func(context.Context) (string, error) { return "", nil },
	} {
		if _, err := seal.LoadFrom(ctx, source); !errors.As(err, new(*capability.Fault)) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
