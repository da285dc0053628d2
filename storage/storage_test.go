package storage_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/kitbackend/kit"
	"github.com/kitbackend/kit/auth"
	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/capability/capabilitytest"
	"github.com/kitbackend/kit/database/databasetest"
	"github.com/kitbackend/kit/kittest"
	"github.com/kitbackend/kit/storage"
	"github.com/kitbackend/kit/storage/bucket/file"
)

func TestCapability(t *testing.T) {
	capabilitytest.Run(t, func(h capability.Host, basePath string) (capability.Capability, error) {
		s, err := storage.New(h, storage.Config{BasePath: basePath}, storage.Peers{})
		if err != nil {
			return capability.Capability{}, err
		}
		return s.Capability(), nil
	})
}

// TestEachPrefixMovesItsRoutes moves the two prefixes outside the base path: the old paths are not
// found, and URLs have the new ones.
func TestEachPrefixMovesItsRoutes(t *testing.T) {
	r := newRig(t, databasetest.Memory(t), file.New(""), storage.Config{SharePath: "/files/shared", SignedPath: "/bytes"})
	s := r.start("ada", upload{"path": "a.txt", "size": 1})
	if !strings.Contains(s.Upload.URL, "/bytes/") {
		t.Errorf("an upload goes to %s", s.Upload.URL)
	}
	o := r.put("ada", "b.txt", []byte("1"))
	var made struct{ Share storage.Share }
	r.do("ada", "POST", "/storage/"+o.ID+"/shares", nil).want(201, "").json(&made)
	if !strings.HasSuffix(made.Share.URL, "/files/shared/"+made.Share.Token) {
		t.Errorf("a share is at %s", made.Share.URL)
	}
	r.do("", "GET", "/files/shared/"+made.Share.Token, nil).want(200, "")
	r.do("", "GET", "/s/"+made.Share.Token, nil).want(404, "kit/not_found")
}

// TestPrefixesOfOthersAreRefused uses the prefix of auth, where the route of shares would take
// requests of the sign-in library.
func TestPrefixesOfOthersAreRefused(t *testing.T) {
	for name, cfg := range map[string]storage.Config{"shares": {SharePath: "/auth"}, "signed addresses": {SignedPath: "/auth/bytes"}} {
		_, err := kittest.Compose(t, kit.WithAuth(auth.Config{}), kit.WithStorage(cfg))
		var fault *capability.Fault
		if !errors.As(err, &fault) || fault.Capability != storage.Name || fault.Key != "claims" {
			t.Errorf("%s: %v, want the prefix refused", name, err)
		}
	}
}
