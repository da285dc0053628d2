package factor

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"strings"

	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/internal/random"
)

// A user has ten backup codes of ten letters and digits, 50 bits each, from an alphabet without
// similar characters.
const (
	backupCodes    = 10
	backupLength   = 10
	backupAlphabet = "abcdefghijkmnpqrstuvwxyz23456789"
)

// ReplaceBackupCodes gives a user new backup codes in place of those before. Refuses
// with TWO_FACTOR_NOT_ENABLED.
func (f *Factors) ReplaceBackupCodes(ctx context.Context, userID string) ([]string, error) {
	s, _, err := f.store.state(ctx, userID)
	switch {
	case err != nil:
		return nil, err
	case !s.Enabled:
		return nil, ErrNotEnabled
	default:
		return f.newBackupCodes(ctx, userID)
	}
}

func (f *Factors) newBackupCodes(ctx context.Context, userID string) ([]string, error) {
	key := random.Bytes(sha256.Size)
	codes, hashes := make([]string, backupCodes), make([][]byte, backupCodes)
	for i := range codes {
		codes[i] = newBackupCode()
		hashes[i] = hashBackupCode(key, codes[i])
	}
	return codes, f.store.replaceBackupCodes(ctx, userID, f.sealer.Seal(backupContext(userID), key), hashes)
}

func newBackupCode() string {
	code := random.Bytes(backupLength)
	for i, c := range code {
		code[i] = backupAlphabet[c%byte(len(backupAlphabet))] // 32 divides 256
	}
	return string(code[:backupLength/2]) + "-" + string(code[backupLength/2:])
}

// hashBackupCode returns a keyed hash of a code, so that a reader of the table cannot try codes. It
// takes a code in any case, with or without its hyphen.
func hashBackupCode(key []byte, code string) []byte {
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(strings.ToLower(strings.ReplaceAll(strings.TrimSpace(code), "-", ""))))
	return mac.Sum(nil)
}

func backupContext(userID string) string { return "signin/backup/" + userID }

// TakeBackupCode uses up a backup code. Refuses with BACKUP_CODES_NOT_ENABLED and
// INVALID_BACKUP_CODE.
func (f *Factors) TakeBackupCode(ctx context.Context, s State, code string) (*capability.Error, error) {
	if !s.HasBackupCodes() {
		return ErrBackupCodesNotEnabled, nil
	}
	key, err := f.sealer.Open(backupContext(s.userID), s.backupKey)
	if err != nil {
		return nil, err
	}
	taken, err := f.store.takeBackupCode(ctx, s.userID, hashBackupCode(key, code))
	if err != nil || !taken {
		return ErrInvalidBackupCode, err
	}
	return nil, nil
}
