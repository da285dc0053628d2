package signin_test

import (
	"fmt"
	"net/http"
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

func TestSignInWithTOTP(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		s := open(t, db, signin.Config{})
		home := s.signedUp(ada)
		app, _ := home.enableTOTP()
		if user := home.get("/get-session").ok().field("user").(map[string]any); user["twoFactorEnabled"] != true {
			t.Errorf("the user: %v", user)
		}

		b := s.browser()
		a := b.signIn()
		want := object{"twoFactorRedirect": true, "twoFactorMethods": []any{"totp"}}
		if diff := cmp.Diff(want, decoded[object](a)); diff != "" {
			t.Error(diff)
		}
		if b.user() != nil {
			t.Error("signed in by the password alone")
		}
		b.post("/two-factor/verify-totp", object{"code": "000000"}).want(401, "INVALID_CODE")
		code := app.code()
		a = b.post("/two-factor/verify-totp", object{"code": code}).ok()
		if decoded[object](a)["token"] == nil || decoded[object](a)["user"].(map[string]any)["email"] != ada || b.user() == nil {
			t.Errorf("%v", string(a.Body))
		}
		sessions, err := s.Sessions(t.Context(), s.userID())
		if err != nil || !slices.Equal(sessions[0].Methods, []string{"pwd", "totp"}) {
			t.Errorf("methods %v, %v", sessions[0].Methods, err)
		}

		other := s.browser() // a code that was seen cannot be used again
		other.signIn()
		other.post("/two-factor/verify-totp", object{"code": code}).want(401, "INVALID_CODE")
	})
}

func TestChallengeEnds(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		s := open(t, db, signin.Config{})
		app, _ := s.signedUp(ada).enableTOTP()

		b := s.browser()
		b.post("/two-factor/verify-totp", object{"code": app.code()}).want(401, "INVALID_TWO_FACTOR_COOKIE")
		b.signIn()
		stolen := b.copy()
		b.post("/two-factor/verify-totp", object{"code": app.code()}).ok()
		stolen.post("/two-factor/verify-totp", object{"code": app.code()}).want(401, "INVALID_TWO_FACTOR_COOKIE")

		late := s.browser()
		late.signIn()
		s.clock.advance(10 * time.Minute)
		late.post("/two-factor/verify-totp", object{"code": app.code()}).want(401, "INVALID_TWO_FACTOR_COOKIE")

		guesser := s.browser()
		guesser.signIn()
		for range 5 {
			guesser.post("/two-factor/verify-totp", object{"code": "x"}).want(401, "INVALID_CODE")
		}
		guesser.post("/two-factor/verify-totp", object{"code": app.code()}).want(400, "TOO_MANY_ATTEMPTS_REQUEST_NEW_CODE")
	})
}

// Ten wrong codes lock the second factor, from any address. A trusted
// browser still gets in.
func TestLockout(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		s := open(t, db, signin.Config{})
		app, codes := s.signedUp(ada).enableTOTP()
		victim := s.browser()
		victim.signIn()
		victim.post("/two-factor/verify-totp", object{"code": app.code(), "trustDevice": true}).ok()

		for i := range 10 {
			attacker := s.browser()
			attacker.ip = fmt.Sprintf("198.51.100.%d", i)
			attacker.signIn()
			attacker.post("/two-factor/verify-totp", object{"code": "000000"}).want(401, "INVALID_CODE")
		}
		stranger := s.browser()
		stranger.signIn()
		locked := stranger.post("/two-factor/verify-totp", object{"code": app.code()}).want(429, "ACCOUNT_TEMPORARILY_LOCKED")
		if wait := locked.Header.Get("Retry-After"); wait != "870" { // the authenticator took 30 seconds
			t.Errorf("Retry-After: %s", wait)
		}
		stranger.post("/two-factor/verify-backup-code", object{"code": codes[0]}).want(429, "ACCOUNT_TEMPORARILY_LOCKED")
		if n := s.audited("auth/two_factor_locked"); n != 1 {
			t.Errorf("audited %d times", n)
		}
		victim.post("/sign-out", nil).ok()
		if a := victim.signIn(); decoded[object](a)["twoFactorRedirect"] != nil || victim.user() == nil {
			t.Errorf("the trusted browser is kept out: %v", string(a.Body))
		}
		s.clock.advance(15 * time.Minute)
		stranger.signIn()
		stranger.post("/two-factor/verify-totp", object{"code": app.code()}).ok()
	})
}

// A right code ends a row of wrong ones.
func TestFailuresInARow(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		s := open(t, db, signin.Config{})
		app, _ := s.signedUp(ada).enableTOTP()
		for range 3 {
			b := s.browser()
			b.signIn()
			for range 4 {
				b.post("/two-factor/verify-totp", object{"code": "000000"}).want(401, "INVALID_CODE")
			}
			b.post("/two-factor/verify-totp", object{"code": app.code()}).ok()
		}
	})
}

func TestOneTOTPCodeHasOneWinner(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		s := open(t, db, signin.Config{})
		app, _ := s.signedUp(ada).enableTOTP()
		code := app.code()
		won := race(s, 12, func(b *browser) *response { return b.post("/two-factor/verify-totp", object{"code": code}) })
		if won != 1 {
			t.Errorf("%d signed in", won)
		}
	})
}

func TestOneBackupCodeHasOneWinner(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		s := open(t, db, signin.Config{})
		home := s.signedUp(ada)
		_, codes := home.enableTOTP()
		var won int
		var mu sync.Mutex
		var all sync.WaitGroup
		for range 32 { // signed in, so that no lock stops them
			b := home.copy()
			all.Go(func() {
				if a := b.post("/two-factor/verify-backup-code", object{"code": codes[0]}); a.Status == http.StatusOK {
					mu.Lock()
					won++
					mu.Unlock()
				}
			})
		}
		all.Wait()
		if won != 1 {
			t.Errorf("%d of 32 used it", won)
		}
		if won := race(s, 12, func(b *browser) *response {
			return b.post("/two-factor/verify-backup-code", object{"code": codes[1]})
		}); won != 1 {
			t.Errorf("%d signed in", won)
		}
	})
}

// race has n browsers that wait for a second factor prove it at once, and
// counts those that are signed in.
func race(s *app, n int, prove func(*browser) *response) (won int) {
	s.t.Helper()
	browsers := make([]*browser, n)
	for i := range browsers {
		browsers[i] = s.browser().at(fmt.Sprintf("192.0.2.%d", 100+i))
		browsers[i].signIn()
	}
	var all sync.WaitGroup
	for _, b := range browsers {
		all.Go(func() { prove(b) })
	}
	all.Wait()
	for _, b := range browsers {
		if b.user() != nil {
			won++
		}
	}
	return won
}

func TestBackupCodes(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		s := open(t, db, signin.Config{})
		home := s.signedUp(ada)
		home.post("/two-factor/generate-backup-codes", object{"password": password}).want(400, "TWO_FACTOR_NOT_ENABLED")
		home.post("/two-factor/verify-backup-code", object{"code": "aaaaa-aaaaa"}).want(400, "BACKUP_CODES_NOT_ENABLED")
		_, codes := home.enableTOTP()
		if len(codes) != 10 || len(slices.Compact(slices.Sorted(slices.Values(codes)))) != 10 {
			t.Errorf("%v", codes)
		}
		b := s.browser()
		b.signIn()
		b.post("/two-factor/verify-backup-code", object{"code": "aaaaa-aaaaa"}).want(401, "INVALID_BACKUP_CODE")
		b.post("/two-factor/verify-backup-code", object{"code": " " + strings.ToUpper(strings.ReplaceAll(codes[0], "-", ""))}).ok()
		s.work()
		if b.user() == nil || s.mail.lastOf(auth.MailFactorChanged).To != "" {
			t.Error("not signed in, or told an address that was not proved")
		}

		home.post("/two-factor/generate-backup-codes", object{"password": "wrong password"}).want(400, "INVALID_PASSWORD")
		fresh := home.post("/two-factor/generate-backup-codes", object{"password": password}).ok().field("backupCodes").([]any)
		other := s.browser()
		other.signIn()
		other.post("/two-factor/verify-backup-code", object{"code": codes[1]}).want(401, "INVALID_BACKUP_CODE")
		if a := other.post("/two-factor/verify-backup-code", object{"code": fresh[0], "disableSession": true}).ok(); decoded[object](a)["token"] != nil || other.user() != nil {
			t.Errorf("signed in unasked: %v", string(a.Body))
		}
	})
}

// The rows of the database neither show codes nor let them be computed.
func TestSecretsAreSealed(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		s := open(t, db, signin.Config{})
		app, codes := s.signedUp(ada).enableTOTP()
		var totp, key []byte
		if err := db.QueryRow(t.Context(), `SELECT totp, backup_key FROM signin_two_factor`).Scan(&totp, &key); err != nil {
			t.Fatal(err)
		}
		hashes, err := database.All(t.Context(), db, func(row database.Scanner) (h []byte, err error) { return h, row.Scan(&h) },
			`SELECT hash FROM signin_backup_code`)
		if err != nil || len(hashes) != 10 {
			t.Fatal(len(hashes), err)
		}
		rows := string(totp) + string(key)
		for _, h := range hashes {
			rows += string(h)
		}
		for _, secret := range append(codes, string(app.secret), strings.ReplaceAll(codes[0], "-", "")) {
			if strings.Contains(rows, secret) {
				t.Error("a secret shows")
			}
		}
	})
}

func TestTrustedBrowser(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		s := open(t, db, signin.Config{})
		home := s.signedUp(ada)
		app, _ := home.enableTOTP()
		trusted := func() *browser {
			b := s.browser()
			b.signIn()
			b.post("/two-factor/verify-totp", object{"code": app.code(), "trustDevice": true}).ok()
			b.post("/sign-out", nil).ok()
			return b
		}
		asked := func(b *browser) bool {
			a := b.signIn()
			return decoded[object](a)["twoFactorRedirect"] == true
		}

		b := trusted()
		copied := b.copy()
		if asked(b) || b.user() == nil {
			t.Error("a trusted browser is asked")
		}
		if !asked(copied) {
			t.Error("a used cookie still counts")
		}
		if asked(b) {
			t.Error("the new cookie does not count")
		}
		s.clock.advance(30*24*time.Hour + time.Second)
		if !asked(b) {
			t.Error("trusted after 30 days")
		}

		b = trusted()
		home = s.browser()
		home.signIn()
		home.post("/two-factor/verify-totp", object{"code": app.code()}).ok()
		home.post("/change-password", object{"currentPassword": password, "newPassword": password + "!"}).ok()
		home.post("/change-password", object{"currentPassword": password + "!", "newPassword": password}).ok()
		if !asked(b) {
			t.Error("trusted after a changed password")
		}

		b = trusted()
		home.post("/two-factor/disable", object{"password": password}).ok()
		app, _ = home.enableTOTP()
		if !asked(b) {
			t.Error("trusted after the factor was disabled")
		}
	})
}

func TestEnableAndDisable(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		s := open(t, db, signin.Config{})
		nobody := s.browser()
		for _, path := range []string{"enable", "disable", "get-totp-uri", "generate-backup-codes"} {
			nobody.post("/two-factor/"+path, object{"password": password}).want(401, "UNAUTHORIZED")
		}
		home := s.signedUp(ada)
		verified := true
		if _, err := s.UpdateUser(t.Context(), s.userID(), auth.UserPatch{EmailVerified: &verified}); err != nil {
			t.Fatal(err)
		}
		for _, path := range []string{"enable", "disable", "get-totp-uri"} {
			home.post("/two-factor/"+path, object{"password": "wrong password"}).want(400, "INVALID_PASSWORD")
			home.post("/two-factor/"+path, nil).want(400, "INVALID_PASSWORD")
		}
		home.post("/two-factor/enable", object{"password": password, "method": "sms"}).want(400, "VALIDATION_ERROR")
		home.post("/two-factor/enable", object{"password": password, "issuer": strings.Repeat("x", 129)}).want(400, "VALIDATION_ERROR")
		home.post("/two-factor/get-totp-uri", object{"password": password}).want(400, "TOTP_NOT_ENABLED")
		home.post("/two-factor/verify-totp", object{"code": "000000"}).want(400, "TOTP_NOT_ENABLED")

		a := home.post("/two-factor/enable", object{"password": password}).ok()
		if uri := decoded[object](a)["totpURI"].(string); !strings.HasPrefix(uri, "otpauth://totp/kit.example:ada%40example.org?secret=") {
			t.Error(uri)
		}
		other := s.browser()
		if a := other.signIn(); decoded[object](a)["twoFactorRedirect"] != nil {
			t.Error("asked before the first code was right")
		}
		app := authenticatorOf(home, a)
		home.post("/two-factor/verify-totp", object{"code": "000000"}).want(401, "INVALID_CODE")
		home.post("/two-factor/verify-totp", object{"code": app.code()}).ok()
		if other.user() != nil || home.user() == nil {
			t.Error("a session from before is still good, or the own one is not")
		}
		s.work()
		if told := s.mail.lastOf(auth.MailFactorChanged); told.To != ada || !strings.Contains(told.Detail, "authenticator") {
			t.Errorf("told %+v", told)
		}

		s.clock.advance(time.Hour) // wrong passwords count

		// Another secret counts once a code of it was right; until then the old one does.
		a = home.post("/two-factor/enable", object{"password": password}).ok()
		replacement := authenticatorOf(home, a)
		other.signIn()
		other.post("/two-factor/verify-totp", object{"code": replacement.code()}).want(401, "INVALID_CODE")
		other.post("/two-factor/verify-totp", object{"code": app.code()}).ok()
		home.post("/two-factor/verify-totp", object{"code": replacement.code()}).ok()
		shown := authenticatorOf(home, home.post("/two-factor/get-totp-uri", object{"password": password}).ok())
		if string(shown.secret) != string(replacement.secret) {
			t.Error("another secret is shown than is in force")
		}
		other.signIn()
		other.post("/two-factor/verify-totp", object{"code": app.code()}).want(401, "INVALID_CODE")

		home.post("/two-factor/disable", object{"password": password}).ok()
		other.post("/two-factor/verify-totp", object{"code": replacement.code()}).want(401, "INVALID_TWO_FACTOR_COOKIE")
		if a := other.signIn(); decoded[object](a)["twoFactorRedirect"] != nil {
			t.Error("still asked")
		}
		for action, want := range map[string]int{"auth/two_factor_enabled": 2, "auth/two_factor_disabled": 1} {
			if n := s.audited(action); n != want {
				t.Errorf("%s: %d times", action, n)
			}
		}
	})
}

func TestMailedSecondFactor(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		s := open(t, db, signin.Config{})
		home := s.signedUp(ada)
		enable := object{"password": password, "method": "otp"}
		home.post("/two-factor/enable", enable).want(403, "EMAIL_NOT_VERIFIED")
		home.post("/two-factor/send-otp", nil).want(400, "OTP_NOT_CONFIGURED")
		verified := true
		if _, err := s.UpdateUser(t.Context(), s.userID(), auth.UserPatch{EmailVerified: &verified}); err != nil {
			t.Fatal(err)
		}
		home.post("/two-factor/enable", enable).ok()

		b := s.browser()
		if a := b.signIn(); !cmp.Equal(decoded[object](a)["twoFactorMethods"], []any{"otp"}) {
			t.Errorf("%v", string(a.Body))
		}
		b.post("/two-factor/verify-otp", object{"code": "000000"}).want(400, "OTP_HAS_EXPIRED")
		b.post("/two-factor/send-otp", nil).ok()
		s.work()
		first := s.mail.lastOf(auth.MailSecondFactor)
		b.post("/two-factor/verify-otp", object{"code": wrong(first.Code)}).want(401, "INVALID_CODE")
		other := s.browser() // a code is good for the sign-in it was sent for
		other.signIn()
		other.post("/two-factor/verify-otp", object{"code": first.Code}).want(400, "OTP_HAS_EXPIRED")
		b.post("/two-factor/send-otp", nil).ok()
		s.work()
		mail := s.mail.lastOf(auth.MailSecondFactor)
		if mail.To != ada || mail.UserID != s.userID() {
			t.Errorf("%+v", mail)
		}
		b.post("/two-factor/verify-otp", object{"code": mail.Code}).ok()
		if b.user() == nil {
			t.Error("not signed in")
		}

		late := s.browser()
		late.signIn()
		late.post("/two-factor/send-otp", nil).ok()
		s.work()
		s.clock.advance(5 * time.Minute)
		late.post("/two-factor/verify-otp", object{"code": s.mail.lastOf(auth.MailSecondFactor).Code}).want(400, "OTP_HAS_EXPIRED")
	})
}

func wrong(code string) string {
	if code[0] == '0' {
		return "1" + code[1:]
	}
	return "0" + code[1:]
}

// A client without cookies carries the challenge itself.
func TestSecondFactorWithoutCookies(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		s := open(t, db, signin.Config{})
		app, _ := s.signedUp(ada).enableTOTP()
		phone := s.native()
		a := phone.signIn()
		token, _ := decoded[object](a)["twoFactorToken"].(string)
		if token == "" || len(phone.cookies) != 0 {
			t.Fatalf("%v, cookies %v", decoded[object](a), phone.cookies)
		}
		phone.post("/two-factor/verify-totp", object{"code": app.code()}).want(401, "INVALID_TWO_FACTOR_COOKIE")
		a = phone.post("/two-factor/verify-totp", object{"code": app.code(), "twoFactorToken": token, "trustDevice": true}).ok()
		if decoded[object](a)["token"] == nil || decoded[object](a)["refreshToken"] == nil {
			t.Errorf("%v", string(a.Body))
		}
	})
}

// Deleting or disabling a user in the middle of a sign-in keeps the user out.
func TestUserGoesDuringASignIn(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		s := open(t, db, signin.Config{})
		app, _ := s.signedUp(ada).enableTOTP()
		b, other := s.browser(), s.browser()
		b.signIn()
		other.signIn()
		if err := s.DisableUser(t.Context(), s.userID()); err != nil {
			t.Fatal(err)
		}
		b.post("/two-factor/verify-totp", object{"code": app.code()}).want(403, "BANNED_USER")
		if err := s.DeleteUser(t.Context(), s.userID()); err != nil {
			t.Fatal(err)
		}
		other.post("/two-factor/verify-totp", object{"code": app.code()}).want(401, "INVALID_TWO_FACTOR_COOKIE")
	})
}

// A user without a password must have signed in lately; the mailbox, which is the
// first factor, cannot be the second.
func TestSecondFactorWithoutAPassword(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		s := open(t, db, signin.Config{})
		byLink := func() *browser {
			b := s.browser()
			b.post("/sign-in/magic-link", object{"email": ada}).ok()
			b.pressing().do(http.MethodPost, s.deliver(ada).Link, nil)
			return b
		}
		home := byLink()
		home.post("/two-factor/enable", object{"method": "otp"}).want(400, "OTP_NOT_CONFIGURED")
		app := authenticatorOf(home, home.post("/two-factor/enable", nil).ok())
		home.post("/two-factor/verify-totp", object{"code": app.code()}).ok()

		b := byLink()
		if b.user() != nil {
			t.Error("signed in by the link alone")
		}
		b.post("/two-factor/send-otp", nil).want(400, "OTP_NOT_CONFIGURED")
		b.post("/two-factor/verify-totp", object{"code": app.code()}).ok()
		s.clock.advance(24 * time.Hour)
		b.post("/two-factor/disable", nil).want(403, "SESSION_NOT_FRESH")
		b.post("/two-factor/generate-backup-codes", nil).want(403, "SESSION_NOT_FRESH")
	})
}

// A code by mail is no second factor to a link by mail.
func TestMailIsOneFactor(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		s := open(t, db, signin.Config{})
		home := s.signedUp(ada)
		s.verify(ada)
		home.signIn()
		home.post("/two-factor/enable", object{"password": password, "method": "otp"}).ok()
		b := s.browser()
		b.post("/sign-in/magic-link", object{"email": ada}).ok()
		b.pressing().do(http.MethodPost, s.deliver(ada).Link, nil)
		b.post("/two-factor/send-otp", nil).want(400, "OTP_NOT_CONFIGURED")
		b.post("/two-factor/verify-otp", object{"code": "000000"}).want(400, "OTP_NOT_CONFIGURED")
		if b.user() != nil {
			t.Error("signed in by the mailbox alone")
		}
	})
}

// Of a session and a waiting sign-in in one browser the later one counts.
func TestSignInBesideASession(t *testing.T) {
	s := open(t, databasetest.Memory(t), signin.Config{})
	app, _ := s.signedUp(ada).enableTOTP()
	b := s.signedUp("eve@example.org")
	b.signIn()
	b.post("/two-factor/verify-totp", object{"code": app.code()}).ok()
	if user := b.user(); user["email"] != ada {
		t.Errorf("signed in as %v", user["email"])
	}

	abandoned := s.browser()
	abandoned.signIn()
	s.clock.advance(time.Second)
	abandoned.post("/sign-in/email", object{"email": "eve@example.org", "password": password}).ok()
	abandoned.enableTOTP() // the waiting sign-in does not get in the way
	if user := abandoned.user(); user["email"] != "eve@example.org" || user["twoFactorEnabled"] != true {
		t.Errorf("%v", user)
	}
}

// Challenges that nobody met go with the hourly sweep.
func TestSweepOfChallenges(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		s := open(t, db, signin.Config{})
		s.signedUp(ada).enableTOTP()
		s.work()
		b := s.browser()
		b.signIn()
		b.signInOptions()
		s.clock.advance(time.Hour)
		s.work()
		for _, table := range []string{"signin_challenge", "signin_ceremony"} {
			n := -1
			must(t, db.QueryRow(ctx, `SELECT COUNT(*) FROM `+table).Scan(&n))
			if n != 0 {
				t.Errorf("%s has %d rows", table, n)
			}
		}
	})
}
