package kit_test

import (
	"encoding/json"
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
	"github.com/kitbackend/kit/kittest"
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

// TestManifestShowsTheDefaultsOfTheSpecification holds what is composed without
// further words to the values that the specification gives.
func TestManifestShowsTheDefaultsOfTheSpecification(t *testing.T) {
	k := kittest.New(t, everything()...)
	var manifest struct {
		Capabilities []struct {
			Name   string
			Config map[string]json.RawMessage
		}
	}
	k.Machine("manifest:read").Get("/control-plane/manifest").Want(200, "").JSON(&manifest)
	shown := make(map[string]string)
	for _, c := range manifest.Capabilities {
		for key, value := range c.Config {
			shown[c.Name+" "+key] = string(value)
		}
	}
	for key, want := range map[string]string{
		"payments basePath": `"/payments"`, "payments graceGrantsAccess": `true`,
		"ledger currencies": `[{"code":"coins","name":"Coins","decimals":0}]`, "ledger adminScope": `"ledger:admin"`,
		"ledger database": `"DB"`, "ledger basePath": `"/ledger"`,
		"storage basePath": `"/storage"`, "storage sharePath": `"/s"`, "storage multipartThresholdBytes": `104857600`,
		"storage partSizeBytes": `67108864`, "storage defaultVisibility": `"private"`, "storage pendingTtlSeconds": `86400`, "storage quota": `0`,
		"vector indexes":           `[{"name":"notes","dimensions":384,"metric":"cosine","scope":"owner","filterable":[],"model":"hashing-v1","maxDocuments":10000}]`,
		"support inboundAddresses": `[]`, "testers basePath": `"/testers"`, "testers forecast.resetPolicy": `"reset"`,
		"leaderboard boards": `[{"key":"arcade","store":"d1","direction":"desc","aggregation":"best","trackActivity":false,"serverAuthoritative":true}]`,
		"leaderboard rank":   `"live"`, "leaderboard basePath": `"/leaderboard"`,
		"rating serverAuthoritative": `true`, "rating recordScope": `"rating:record"`, "rating basePath": `"/rating"`,
		"rating games": `[{"key":"duel","algorithm":"elo","players":2,"pool":"duel","xp":{"win":3,"draw":2,"loss":1},"hideSkill":false,` +
			`"sharedRoomCounts":false,"algoParams":{"initial":1500,"k":32}}]`,
		"multiplayer games": `[{"key":"duel","kind":"race","mode":"match","players":2,"rules":{},"turnTimeoutMs":null,"leaderboard":null}]`,
		"matchmaking games": `[{"key":"duel","players":2,"skillPool":"duel","snapshot":{"key":"duel","kind":"race","mode":"match","players":2,` +
			`"rules":{},"turnTimeoutMs":null,"leaderboard":null},"regions":["default"],"roomCodes":{"ttlSeconds":900,"maxUses":9},` +
			`"queue":{"widenPerSecond":0,"maxWaitSeconds":0,"sweepSeconds":5}}]`,
		"matchmaking friends": `"on"`, "matchmaking basePath": `"/matchmaking"`,
		"control-plane basePath": `"/control-plane"`, "control-plane replayBackend": `"d1"`, "control-plane allowedOrigins": `[]`,
		"control-plane corsMaxAgeSeconds": `600`,
	} {
		if shown[key] != want {
			t.Errorf("%s is %s, want %s", key, shown[key], want)
		}
	}
	for key, value := range shown {
		if value == "null" {
			t.Errorf("%s is null, want what it stands for", key)
		}
	}
}
