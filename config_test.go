package kit_test

import (
	"strings"
	"testing"

	"github.com/kitbackend/kit/audit"
	"github.com/kitbackend/kit/auth"
	"github.com/kitbackend/kit/auth/signin"
	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/capability/capabilitytest"
	"github.com/kitbackend/kit/controlplane"
	"github.com/kitbackend/kit/email"
	"github.com/kitbackend/kit/events"
	"github.com/kitbackend/kit/leaderboard"
	"github.com/kitbackend/kit/ledger"
	"github.com/kitbackend/kit/matchmaking"
	"github.com/kitbackend/kit/media"
	"github.com/kitbackend/kit/multiplayer"
	"github.com/kitbackend/kit/payments"
	"github.com/kitbackend/kit/rating"
	"github.com/kitbackend/kit/secrets"
	"github.com/kitbackend/kit/storage"
	"github.com/kitbackend/kit/support"
	"github.com/kitbackend/kit/testers"
	"github.com/kitbackend/kit/vector"
)

// TestManifestShowsEveryConfigField compares the configuration of each capability
// with the keys of its manifest, in both directions.
func TestManifestShowsEveryConfigField(t *testing.T) {
	type elsewhere = map[string]string
	configs := map[string]struct {
		config    any
		elsewhere elsewhere
	}{
		audit.Name: {audit.Config{}, nil},
		auth.Name:  {auth.Config{}, elsewhere{"Cookies": "cookie"}},
		controlplane.Name: {controlplane.Config{}, elsewhere{"KV": "replayBackend",
			"Bootstrap": capabilitytest.Hidden}}, // a credential
		email.Name: {email.Config{}, elsewhere{"Failover": "failover", "Retry": "retry maxAttempts giveUpAfter", "Tracking": "track",
			"SoftBounces": "softBounce", "Retention": "retention"}},
		events.Name:      {events.Config{}, nil},
		leaderboard.Name: {leaderboard.Config{}, nil},
		ledger.Name:      {ledger.Config{}, nil},
		matchmaking.Name: {matchmaking.Config{}, elsewhere{"NoFriends": "friends"}},
		media.Name:       {media.Config{}, nil},
		multiplayer.Name: {multiplayer.Config{}, nil},
		payments.Name:    {payments.Config{}, elsewhere{"NoGraceAccess": "graceGrantsAccess", "NoReconcile": "reconcile"}},
		rating.Name:      {rating.Config{}, nil},
		secrets.Name:     {secrets.Config{}, nil},
		storage.Name:     {storage.Config{}, nil},
		support.Name:     {support.Config{}, nil},
		testers.Name:     {testers.Config{}, elsewhere{"ActOnGet": "links.getMode", "NoDispatch": "dispatch"}},
		vector.Name:      {vector.Config{}, nil},
	}
	k := composed(t)
	for _, c := range k.Capabilities() {
		own, library := split(c.Config)
		if c.Name == auth.Name {
			capabilitytest.Config(t, signin.Config{}, library, "library.", elsewhere{"DisablePasswords": "passwords",
				"DisableSignUp": "signUp", "DisableLinks": "links", "DisableCodes": "codes", "DisableDeletion": "deletion"})
		}
		if listed, ok := configs[c.Name]; ok {
			capabilitytest.Config(t, listed.config, own, "", listed.elsewhere)
			delete(configs, c.Name)
		} else {
			t.Errorf("the configuration of %s is not compared", c.Name)
		}
	}
	for name := range configs {
		t.Errorf("%s is not composed", name)
	}
}

// split tells the keys of the sign-in library from those of auth.
func split(keys []capability.ConfigKey) (own, library []capability.ConfigKey) {
	for _, key := range keys {
		if strings.HasPrefix(key.Key, "library.") {
			library = append(library, key)
		} else {
			own = append(own, key)
		}
	}
	return own, library
}
