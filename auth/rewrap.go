package auth

import (
	"context"

	"github.com/kitbackend/kit/internal/seal"
)

// Rewrap wraps the signing and refresh keys, and what the library has sealed,
// with the first master key, so that older ones can be removed, and returns how
// many it changed. It skips values that open with none of the master keys, which are of no use.
func (a *Auth) Rewrap(ctx context.Context) (changed int, err error) {
	for _, column := range sealedColumns {
		n, err := column.Rewrap(ctx, a.host.DB, a.sealer)
		if changed += n; err != nil {
			return changed, err
		}
	}
	if a.library.Rewrap == nil {
		return changed, nil
	}
	n, err := a.library.Rewrap(ctx)
	return changed + n, err
}

var sealedColumns = []seal.Column[string]{
	{Table: "auth_signing_key", Key: "id", Column: "sealed", Context: sealContext},
	{Table: "auth_session", Key: "id", Column: "refresh_key", Context: refreshContext},
}
