package signin

import (
	"context"
	"database/sql"
	"time"

	"github.com/kitbackend/kit/database"
)

// Bounds of the browsers on their way to a provider: those of one browser, all
// of them, and what one insertion sweeps. The oldest give way.
const (
	statesPerBrowser = 16
	statesAtMost     = 100_000
	statesSwept      = 100
)

// state is a row of signin_state.
type state struct {
	hash, browser          []byte
	provider, userID, data string
	createdAt, expiresAt   time.Time
}

func (s store) insertState(ctx context.Context, st state) error {
	if _, err := s.db.Exec(ctx, `DELETE FROM signin_state WHERE state_hash IN (
		SELECT state_hash FROM signin_state WHERE expires_at <= $1 ORDER BY expires_at, state_hash LIMIT $2)`,
		st.createdAt.UnixMilli(), statesSwept); err != nil {
		return err
	}
	if _, err := s.db.Exec(ctx, `DELETE FROM signin_state WHERE state_hash IN (
		SELECT state_hash FROM signin_state WHERE browser_hash = $1
		ORDER BY created_at DESC, state_hash LIMIT 1000 OFFSET $2)`, st.browser, statesPerBrowser-1); err != nil {
		return err
	}
	_, err := s.db.Exec(ctx, `INSERT INTO signin_state (state_hash, browser_hash, provider, user_id, data, created_at, expires_at)
		VALUES ($1, $2, $3, $4, $5, $6, $7)`, st.hash, st.browser, st.provider,
		sql.NullString{String: st.userID, Valid: st.userID != ""}, st.data, st.createdAt.UnixMilli(), st.expiresAt.UnixMilli())
	return err
}

// trimStates keeps the youngest of too many.
func (s store) trimStates(ctx context.Context, keep int) error {
	_, err := s.db.Exec(ctx, `DELETE FROM signin_state WHERE expires_at <= (
		SELECT expires_at FROM signin_state ORDER BY expires_at DESC LIMIT 1 OFFSET $1)`, keep)
	return err
}

// takeState uses a state up: of any number of callers from the one browser that
// began, one gets it.
func (s store) takeState(ctx context.Context, hash, browser []byte) (state, bool, error) {
	return database.Get(ctx, s.db, func(row database.Scanner) (st state, err error) {
		var user sql.NullString
		var expires int64
		err = row.Scan(&st.provider, &user, &st.data, &expires)
		st.userID, st.expiresAt = user.String, time.UnixMilli(expires)
		return st, err
	}, `DELETE FROM signin_state WHERE state_hash = $1 AND browser_hash = $2
		RETURNING provider, user_id, data, expires_at`, hash, browser)
}

// accountOf finds the account a provider knows by a subject.
func (s store) accountOf(ctx context.Context, provider, issuer, subject string) (account, bool, error) {
	return database.Get(ctx, s.db, scanAccount, `SELECT `+accountColumns+` FROM signin_account
		WHERE provider = $1 AND issuer = $2 AND account_id = $3`, provider, issuer, subject)
}

// ownAccount finds an account of a user by its id.
func (s store) ownAccount(ctx context.Context, userID, id string) (account, bool, error) {
	return database.Get(ctx, s.db, scanAccount, `SELECT `+accountColumns+` FROM signin_account
		WHERE user_id = $1 AND id = $2`, userID, id)
}

// spendToken returns false for a token that was spent before.
func (s store) spendToken(ctx context.Context, hash []byte, until time.Time) (spent bool, err error) {
	n, err := s.db.Exec(ctx, `INSERT INTO signin_spent_token (hash, expires_at) VALUES ($1, $2) ON CONFLICT DO NOTHING`,
		hash, until.UnixMilli())
	return n == 1, err
}

// setScopes keeps what a user has granted at the provider.
func (s store) setScopes(ctx context.Context, id, scopes string, now time.Time) error {
	_, err := s.db.Exec(ctx, `UPDATE signin_account SET scopes = $2, updated_at = $3 WHERE id = $1`, id, scopes, now.UnixMilli())
	return err
}

// sealedTokens is a row of signin_provider_token.
type sealedTokens struct {
	sealed  []byte
	version int64
}

func (s store) providerTokens(ctx context.Context, accountID string) (sealedTokens, bool, error) {
	return database.Get(ctx, s.db, func(row database.Scanner) (t sealedTokens, err error) {
		return t, row.Scan(&t.sealed, &t.version)
	}, `SELECT sealed, version FROM signin_provider_token WHERE account_id = $1`, accountID)
}

func (s store) putProviderTokens(ctx context.Context, accountID string, sealed []byte, now time.Time) error {
	_, err := s.db.Exec(ctx, `INSERT INTO signin_provider_token (account_id, sealed, version, updated_at) VALUES ($1, $2, 1, $3)
		ON CONFLICT (account_id) DO UPDATE SET sealed = excluded.sealed, version = signin_provider_token.version + 1,
			updated_at = excluded.updated_at`, accountID, sealed, now.UnixMilli())
	return err
}

// replaceProviderTokens returns false when they have changed since version.
func (s store) replaceProviderTokens(ctx context.Context, accountID string, t sealedTokens, now time.Time) (replaced bool, err error) {
	n, err := s.db.Exec(ctx, `UPDATE signin_provider_token SET sealed = $3, version = version + 1, updated_at = $4
		WHERE account_id = $1 AND version = $2`, accountID, t.version, t.sealed, now.UnixMilli())
	return n == 1, err
}
