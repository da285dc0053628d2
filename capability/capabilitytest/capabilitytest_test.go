package capabilitytest_test

import (
	"testing"
	"testing/fstest"

	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/capability/capabilitytest"
)

// TestNamesWithDigitsAndHyphensPass: the kit composes a capability of such a name.
func TestNamesWithDigitsAndHyphensPass(t *testing.T) {
	capabilitytest.Run(t, func(h capability.Host, _ string) (capability.Capability, error) {
		return capability.Capability{
			Name: "web-3", Version: "1.0.0", Database: h.DB, NoUserData: "a test",
			Migrations: fstest.MapFS{"0001_item.sql": {Data: []byte("CREATE TABLE web3_item (id TEXT PRIMARY KEY);")}},
			Refusals:   []*capability.Error{capability.NewError(404, "web3/item_not_found", "There is no such item.")},
		}, nil
	})
}
