package signin

import (
	"context"

	"github.com/kitbackend/kit/internal/seal"
)

var sealedColumns = []seal.Column[string]{
	{Table: "signin_two_factor", Key: "user_id", Column: "totp", Context: totpContext},
	{Table: "signin_two_factor", Key: "user_id", Column: "totp_pending", Context: totpContext},
	{Table: "signin_two_factor", Key: "user_id", Column: "backup_key", Context: backupContext},
	{Table: "signin_provider_token", Key: "account_id", Column: "sealed", Context: tokenContext},
}

// rewrap wraps what the library has sealed with the first master key and returns
// how many values it changed.
func (l *library) rewrap(ctx context.Context) (changed int, err error) {
	for _, column := range sealedColumns {
		n, err := column.Rewrap(ctx, l.store.db, l.sealer)
		if changed += n; err != nil {
			return changed, err
		}
	}
	return changed, nil
}
