package signin_test

import (
	"encoding/json"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kitbackend/kit/auth"
	"github.com/kitbackend/kit/auth/signin"
	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/database/databasetest"
)

func TestPasskey(t *testing.T) {
	for name, newKey := range map[string]func(testing.TB) *softKey{"ES256": newES256, "Ed25519": newEd25519} {
		t.Run(name, func(t *testing.T) {
			databasetest.Each(t, func(t *testing.T, db *database.DB) {
				s, key := open(t, db, signin.Config{}), newKey(t)
				home := s.signedUp(ada).ownPage()
				home.enableTOTP()
				key.flags |= backupEligible | backedUp
				credential := key.create(home.registerOptions())
				credential["name"] = "  My phone "
				made := decoded[object](home.post("/passkey/verify-registration", credential).ok())
				want := object{
					"id": made["id"], "userId": s.userID(), "name": "My phone", "counter": 0.0, "deviceType": "multiDevice", "backedUp": true,
					"transports": "internal,hybrid", "aaguid": "00000000-0000-0000-0000-000000000000", "createdAt": made["createdAt"],
					"publicKey": made["publicKey"], "credentialID": urlText.EncodeToString(key.id),
				}
				if diff := cmp.Diff(want, made); diff != "" {
					t.Error(diff)
				}
				if diff := cmp.Diff([]object{want}, decoded[[]object](home.get("/passkey/list-user-passkeys").ok())); diff != "" {
					t.Error(diff)
				}

				b := s.browser().ownPage() // signs in without a name, and without a code
				in := decoded[struct {
					Session, User object
					Token         string
				}](b.post("/passkey/verify-authentication", key.get(b.signInOptions())).ok())
				if in.User["email"] != ada || in.Session["userId"] != s.userID() || in.Token == "" || b.user() == nil {
					t.Errorf("%+v", in)
				}
				sessions, err := s.Sessions(ctx, s.userID())
				if err != nil || !slices.ContainsFunc(sessions, func(s auth.Session) bool { return slices.Equal(s.Methods, []string{"passkey"}) }) {
					t.Errorf("%+v, %v", sessions, err)
				}

				id := made["id"].(string)
				renamed := decoded[struct{ Passkey object }](home.post("/passkey/update-passkey", object{"id": id, "name": "Laptop"}).ok())
				if renamed.Passkey["name"] != "Laptop" || renamed.Passkey["id"] != id {
					t.Errorf("%+v", renamed)
				}
				home.post("/passkey/delete-passkey", object{"id": id}).ok()
				other := s.browser().ownPage()
				other.post("/passkey/verify-authentication", key.get(other.signInOptions())).want(401, "PASSKEY_NOT_FOUND")
				for action, want := range map[string]int{"auth/passkey_added": 1, "auth/passkey_removed": 1, "auth/passkey_counter_fell": 0} {
					if n := s.audited(action); n != want {
						t.Errorf("%s: %d times", action, n)
					}
				}
			})
		})
	}
}

// What the site asks for, in the form that browsers and their libraries read.
func TestPasskeyOptions(t *testing.T) {
	s := open(t, databasetest.Memory(t), signin.Config{})
	home, key := s.signedUp(ada).ownPage(), newES256(t)
	home.register(key)
	type descriptor struct {
		ID, Type   string
		Transports []string
	}
	known := []descriptor{{urlText.EncodeToString(key.id), "public-key", []string{"internal", "hybrid"}}}
	var got struct {
		Challenge        string
		RP               struct{ ID, Name string }
		User             struct{ ID, Name, DisplayName string }
		PubKeyCredParams []struct {
			Type string
			Alg  int
		}
		Attestation            string
		ExcludeCredentials     []descriptor
		AuthenticatorSelection struct {
			AuthenticatorAttachment, ResidentKey, UserVerification string
			RequireResidentKey                                     bool
		}
	}
	raw := home.get("/passkey/generate-register-options?authenticatorAttachment=platform").ok().Body
	must(t, json.Unmarshal(raw, &got))
	want := got
	want.RP.ID, want.RP.Name = "kit.example", "kit.example"
	want.User.ID, want.User.Name, want.User.DisplayName = urlText.EncodeToString([]byte(s.userID())), ada, "Ada"
	want.Attestation, want.ExcludeCredentials = "none", known
	want.AuthenticatorSelection.AuthenticatorAttachment, want.AuthenticatorSelection.ResidentKey = "platform", "required"
	want.AuthenticatorSelection.UserVerification, want.AuthenticatorSelection.RequireResidentKey = "required", true
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if challenge, err := urlText.DecodeString(got.Challenge); err != nil || len(challenge) < 32 || len(got.PubKeyCredParams) != 3 {
		t.Errorf("challenge of %d bytes, %v, algorithms %v", len(challenge), err, got.PubKeyCredParams)
	}
	home.get("/passkey/generate-register-options?authenticatorAttachment=moon").want(400, "VALIDATION_ERROR")

	type request struct {
		Challenge, RPID, UserVerification string
		AllowCredentials                  []descriptor
	}
	strange := decoded[request](s.browser().ownPage().get("/passkey/generate-authenticate-options").ok())
	if diff := cmp.Diff(request{strange.Challenge, "kit.example", "required", nil}, strange); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(known, decoded[request](home.get("/passkey/generate-authenticate-options").ok()).AllowCredentials); diff != "" {
		t.Error(diff)
	}
}

func TestForgedRegistrations(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		s := open(t, db, signin.Config{})
		home := s.signedUp(ada).ownPage()
		for name, alter := range map[string]func(*softKey){
			"another origin":      func(k *softKey) { k.origin = "https://kit.example.evil.test" },
			"another port":        func(k *softKey) { k.origin = "https://kit.example:8443" },
			"plain http":          func(k *softKey) { k.origin = "http://kit.example" },
			"another site":        func(k *softKey) { k.rpID = "evil.test" },
			"no verification":     func(k *softKey) { k.flags = userPresent },
			"no presence":         func(k *softKey) { k.flags = userVerified },
			"a frame":             func(k *softKey) { k.cross = true },
			"backed up, not able": func(k *softKey) { k.flags |= backedUp },
		} {
			t.Run(name, func(t *testing.T) {
				key := newES256(t)
				alter(key)
				home.post("/passkey/verify-registration", key.create(home.registerOptions())).want(400, "FAILED_TO_VERIFY_REGISTRATION")
			})
		}
		home.post("/passkey/verify-registration", object{"response": "x"}).want(400, "FAILED_TO_VERIFY_REGISTRATION")
		home.post("/passkey/verify-registration", nil).want(400, "FAILED_TO_VERIFY_REGISTRATION")

		key := newES256(t)
		options := home.registerOptions()
		home.post("/passkey/verify-registration", key.create(options)).ok()
		home.post("/passkey/verify-registration", newES256(t).create(options)).want(400, "CHALLENGE_NOT_FOUND") // used
		home.post("/passkey/verify-registration", key.create(home.registerOptions())).want(400, "PREVIOUSLY_REGISTERED")

		options = home.registerOptions()
		elsewhere := s.browser().ownPage()
		elsewhere.signIn()
		elsewhere.post("/passkey/verify-registration", newES256(t).create(options)).want(400, "CHALLENGE_NOT_FOUND")
		home.post("/passkey/verify-registration", newES256(t).create(home.signInOptions())).want(400, "CHALLENGE_NOT_FOUND") // of a sign-in

		options = home.registerOptions()
		s.clock.advance(5 * time.Minute)
		home.post("/passkey/verify-registration", newES256(t).create(options)).want(400, "CHALLENGE_NOT_FOUND")

		options = home.registerOptions() // one user's challenge under another's session, in one browser
		home.post("/sign-out", nil).ok()
		home.post("/sign-up/email", object{"name": "Eve", "email": "eve@example.org", "password": password}).ok()
		home.post("/passkey/verify-registration", newES256(t).create(options)).want(401, "YOU_ARE_NOT_ALLOWED_TO_REGISTER_THIS_PASSKEY")
	})
}

func TestForgedPasskeySignIns(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		s := open(t, db, signin.Config{})
		home := s.signedUp(ada).ownPage()
		key, eves := newES256(t), newEd25519(t)
		home.register(key)
		eve := s.signedUp("eve@example.org").ownPage()
		eve.register(eves)

		for name, forge := range map[string]func(softKey) softKey{
			"another origin":       func(k softKey) softKey { k.origin = "https://evil.test"; return k },
			"another site":         func(k softKey) softKey { k.rpID = "evil.test"; return k },
			"no verification":      func(k softKey) softKey { k.flags = userPresent; return k },
			"no presence":          func(k softKey) softKey { k.flags = userVerified; return k },
			"a frame":              func(k softKey) softKey { k.cross = true; return k },
			"another key":          func(k softKey) softKey { k.key = newES256(t).key; return k },
			"another's user":       func(k softKey) softKey { k.user = eves.user; return k },
			"no user":              func(k softKey) softKey { k.user = nil; return k },
			"another's credential": func(k softKey) softKey { k.id = eves.id; return k },
			"backed up all along":  func(k softKey) softKey { k.flags |= backupEligible; return k },
		} {
			t.Run(name, func(t *testing.T) {
				b, forged := s.browser().ownPage(), forge(*key)
				b.post("/passkey/verify-authentication", forged.get(b.signInOptions())).want(401, "AUTHENTICATION_FAILED")
				if b.user() != nil {
					t.Error("signed in")
				}
			})
		}
		b := s.browser().ownPage()
		b.post("/passkey/verify-authentication", object{"response": object{}}).want(401, "AUTHENTICATION_FAILED")

		options := b.signInOptions()
		elsewhere := s.browser().ownPage() // a challenge is good in the browser that asked for it
		elsewhere.post("/passkey/verify-authentication", key.get(options)).want(400, "CHALLENGE_NOT_FOUND")
		forged := *key
		forged.key = eves.key
		b.post("/passkey/verify-authentication", forged.get(options)).want(401, "AUTHENTICATION_FAILED")
		b.post("/passkey/verify-authentication", key.get(options)).want(400, "CHALLENGE_NOT_FOUND") // spent by the forgery

		options = b.signInOptions()
		s.clock.advance(5 * time.Minute)
		b.post("/passkey/verify-authentication", key.get(options)).want(400, "CHALLENGE_NOT_FOUND")

		b.post("/passkey/verify-authentication", key.get(options)).want(400, "CHALLENGE_NOT_FOUND")
		home.post("/passkey/verify-authentication", key.get(home.registerOptions())).want(400, "CHALLENGE_NOT_FOUND")  // of a registration
		home.post("/passkey/verify-authentication", eves.get(home.signInOptions())).want(401, "AUTHENTICATION_FAILED") // asked for Ada's
		nameless := *key
		nameless.user = nil // which one of few it was is known without the user's handle
		home.post("/passkey/verify-authentication", nameless.get(home.signInOptions())).ok()
	})
}

// One signed challenge signs in once, however often it is sent at once.
func TestOnePasskeyResponseHasOneWinner(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		s, key := open(t, db, signin.Config{}), newES256(t)
		s.signedUp(ada).ownPage().register(key)
		b := s.browser().ownPage()
		credential := key.get(b.signInOptions())
		var mu sync.Mutex
		var all sync.WaitGroup
		won := 0
		for range 32 {
			b := b.copy()
			all.Go(func() {
				if b.post("/passkey/verify-authentication", credential).Status == 200 {
					mu.Lock()
					won++
					mu.Unlock()
				}
			})
		}
		all.Wait()
		if won != 1 {
			t.Errorf("%d signed in", won)
		}
	})
}

// A counter that does not grow may mean a copy: it is recorded, and signs in.
func TestPasskeyCounter(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		s, key := open(t, db, signin.Config{}), newES256(t)
		home := s.signedUp(ada).ownPage()
		key.counter = 7
		home.register(key)
		for _, step := range []struct {
			counter uint32
			kept    float64
			fell    int
		}{{8, 8, 0}, {8, 8, 1}, {5, 8, 2}, {0, 8, 3}, {9, 9, 3}} {
			key.counter = step.counter
			b := s.browser().ownPage()
			b.post("/passkey/verify-authentication", key.get(b.signInOptions())).ok()
			kept := decoded[[]object](home.get("/passkey/list-user-passkeys").ok())[0]["counter"]
			if n := s.audited("auth/passkey_counter_fell"); n != step.fell || kept != step.kept {
				t.Errorf("signed %d: recorded %d times, kept %v", step.counter, n, kept)
			}
		}
	})
}

func TestPasskeysAreTheOwners(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		s, key := open(t, db, signin.Config{}), newES256(t)
		home := s.signedUp(ada).ownPage()
		id := home.register(key)
		eve := s.signedUp("eve@example.org").ownPage()
		eve.post("/passkey/update-passkey", object{"id": id, "name": "mine"}).want(404, "PASSKEY_NOT_FOUND")
		eve.post("/passkey/delete-passkey", object{"id": id}).want(404, "PASSKEY_NOT_FOUND")
		if list := decoded[[]object](eve.get("/passkey/list-user-passkeys").ok()); len(list) != 0 {
			t.Errorf("sees %v", list)
		}
		home.post("/passkey/update-passkey", object{"id": id, "name": " "}).want(400, "VALIDATION_ERROR")
		home.post("/passkey/update-passkey", object{"id": id, "name": strings.Repeat("x", 65)}).want(400, "VALIDATION_ERROR")
		nobody := s.browser().ownPage()
		for _, path := range []string{"generate-register-options", "list-user-passkeys"} {
			nobody.get("/passkey/"+path).want(401, "UNAUTHORIZED")
		}
		for _, path := range []string{"verify-registration", "update-passkey", "delete-passkey"} {
			nobody.post("/passkey/"+path, object{"id": id}).want(401, "UNAUTHORIZED")
		}
		must(t, s.DeleteUser(ctx, s.userID()))
		b := s.browser().ownPage()
		b.post("/passkey/verify-authentication", key.get(b.signInOptions())).want(401, "PASSKEY_NOT_FOUND")
	})
}

func TestPasskeyNeedsAFreshSessionAndRoom(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		s := open(t, db, signin.Config{})
		home := s.signedUp(ada).ownPage()
		for range signin.MaxPasskeys {
			home.register(newEd25519(t))
		}
		home.post("/passkey/verify-registration", newEd25519(t).create(home.registerOptions())).want(400, "TOO_MANY_PASSKEYS")
		options := home.registerOptions()
		s.clock.advance(24 * time.Hour)
		home.get("/passkey/generate-register-options").want(403, "SESSION_NOT_FRESH")
		home.post("/passkey/verify-registration", newEd25519(t).create(options)).want(403, "SESSION_NOT_FRESH")
	})
}

// A page of a trusted origin may use the passkeys too, and a client without
// cookies names the challenge by what it signed.
func TestPasskeyElsewhere(t *testing.T) {
	s, key := open(t, databasetest.Memory(t), signin.Config{}), newES256(t)
	key.origin = pages
	home := s.signedUp(ada)
	home.register(key)
	b := s.browser()
	b.post("/passkey/verify-authentication", key.get(b.signInOptions())).ok()

	phone := s.native()
	key.origin = baseURL
	in := phone.post("/passkey/verify-authentication", key.get(phone.signInOptions())).ok()
	if in.field("refreshToken") == nil || len(phone.cookies) != 0 {
		t.Errorf("%s, cookies %v", in.Body, phone.cookies)
	}
}

func TestNoPasskeysAtAnAddress(t *testing.T) {
	clock := &clock{now: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)}
	s := openAt(t, databasetest.Memory(t), auth.Config{Library: signin.Quick(signin.Config{})}, "http://127.0.0.1:8080", clock)
	s.browser().get("/passkey/generate-authenticate-options").want(400, "PASSKEYS_NOT_AVAILABLE")
}
