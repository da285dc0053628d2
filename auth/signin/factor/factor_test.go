package factor

import (
	"bytes"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// A code in a mail proves nothing that a link or code in a mail has not proved before.
func TestMailIsNoSecondFactorAfterMail(t *testing.T) {
	both := State{Mails: true, totp: []byte("sealed")}
	for first, want := range map[string][]Method{
		"pwd": {MethodTOTP, MethodMailed}, "oauth:google": {MethodTOTP, MethodMailed}, "": {MethodTOTP, MethodMailed},
		"otp": {MethodTOTP}, "magic": {MethodTOTP},
	} {
		if diff := cmp.Diff(want, both.Methods(first)); diff != "" {
			t.Errorf("after %q: %s", first, diff)
		}
	}
	if got := (State{}).Methods("pwd"); got == nil || len(got) != 0 {
		t.Errorf("without a factor: %#v, want an empty list", got)
	}
}

// The later of two locks counts.
func TestLockedUntil(t *testing.T) {
	for _, s := range []State{{lockedUntil: 2000, sessionLocked: 1000}, {lockedUntil: 1000, sessionLocked: 2000}} {
		if got := s.LockedUntil(); !got.Equal(time.UnixMilli(2000)) {
			t.Errorf("got %s, want the later one", got)
		}
	}
}

func TestBackupCodeForms(t *testing.T) {
	key, code := []byte("key"), newBackupCode()
	if len(code) != backupLength+1 || code[backupLength/2] != '-' {
		t.Fatalf("a code is %q, want two halves", code)
	}
	kept := hashBackupCode(key, code)
	for name, form := range map[string]string{
		"without its hyphen": code[:5] + code[6:], "in capitals": string(bytes.ToUpper([]byte(code))), "with spaces around": " " + code + "\n",
	} {
		if !bytes.Equal(hashBackupCode(key, form), kept) {
			t.Errorf("%s it is another code", name)
		}
	}
	if bytes.Equal(hashBackupCode([]byte("another"), code), kept) || bytes.Equal(hashBackupCode(key, newBackupCode()), kept) {
		t.Error("another key or code has the same hash")
	}
}
