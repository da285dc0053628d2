package signin

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"strings"

	"github.com/kitbackend/kit/auth"
	"github.com/kitbackend/kit/capability"
)

// Backup codes are ten of ten letters and digits, 50 bits each, none of which
// is taken for another.
const (
	backupCodes    = 10
	backupLength   = 10
	backupAlphabet = "abcdefghijkmnpqrstuvwxyz23456789"
)

func (l *library) generateBackupCodes(c *call) (any, error) {
	var in enableBody
	user, _, err := c.confirmed(&in)
	if err != nil {
		return nil, err
	}
	var codes []string
	var enabled bool
	err = l.host.DB.InTx(c.Context(), func(ctx context.Context) (err error) {
		if err := l.store.lockUser(ctx, user.ID); err != nil {
			return err
		}
		if enabled, err = l.twoFactorEnabled(ctx, user.ID); err != nil || !enabled {
			return err
		}
		if codes, err = l.newBackupCodes(ctx, user.ID); err != nil {
			return err
		}
		return l.auth.Record(ctx, "auth/backup_codes_replaced", user.ID, nil)
	})
	switch {
	case err != nil:
		return nil, err
	case !enabled:
		return nil, errTwoFactorNotEnabled
	}
	return map[string]any{"status": true, "backupCodes": codes}, nil
}

// newBackupCodes replaces the codes of a user. It runs in a transaction.
func (l *library) newBackupCodes(ctx context.Context, userID string) ([]string, error) {
	key := make([]byte, sha256.Size)
	_, _ = rand.Read(key) // never fails: crypto/rand ends the process instead
	codes, hashes := make([]string, backupCodes), make([][]byte, backupCodes)
	for i := range codes {
		codes[i] = newBackupCode()
		hashes[i] = hashBackupCode(key, codes[i])
	}
	return codes, l.store.replaceBackupCodes(ctx, userID, l.sealer.Seal(backupContext(userID), key), hashes)
}

func newBackupCode() string {
	code := make([]byte, backupLength)
	_, _ = rand.Read(code) // never fails: crypto/rand ends the process instead
	for i, c := range code {
		code[i] = backupAlphabet[c%byte(len(backupAlphabet))] // 32 divides 256
	}
	return string(code[:backupLength/2]) + "-" + string(code[backupLength/2:])
}

// hashBackupCode is keyed: a reader of the table cannot try codes out. It takes a
// code in any case, with or without its hyphen.
func hashBackupCode(key []byte, code string) []byte {
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(strings.ToLower(strings.ReplaceAll(strings.TrimSpace(code), "-", ""))))
	return mac.Sum(nil)
}

func backupContext(userID string) string { return "signin/backup/" + userID }

func (l *library) verifyBackupCode(c *call) (any, error) {
	var in struct {
		proof
		DisableSession bool `json:"disableSession"`
	}
	if err := c.decode(&in); err != nil {
		return nil, err
	}
	if err := c.needs("code"); err != nil {
		return nil, err
	}
	p, err := c.prover(in.TwoFactorToken)
	if err != nil {
		return nil, err
	}
	err = l.prove(c, p, func(ctx context.Context, factor twoFactor) (*capability.Error, error) {
		return l.takeBackupCode(ctx, p.user, factor, in.Code)
	})
	if err != nil {
		return nil, err
	}
	if in.DisableSession {
		user, err := l.wire(c.Context(), p.user)
		return map[string]any{"user": user}, err
	}
	return l.proved(c, p, methodBackup, in.TrustDevice)
}

func (l *library) takeBackupCode(ctx context.Context, user auth.User, factor twoFactor, code string) (*capability.Error, error) {
	if len(factor.backupKey) == 0 {
		return errBackupCodesNotEnabled, nil
	}
	key, err := l.sealer.Open(backupContext(user.ID), factor.backupKey)
	if err != nil {
		return nil, err
	}
	taken, err := l.store.takeBackupCode(ctx, user.ID, hashBackupCode(key, code))
	if err != nil || !taken {
		return errInvalidBackupCode, err
	}
	if err := l.auth.Record(ctx, "auth/backup_code_used", user.ID, nil); err != nil {
		return nil, err
	}
	return nil, l.tell(ctx, user, "a backup code was used up")
}
