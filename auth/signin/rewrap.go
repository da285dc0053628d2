package signin

import (
	"context"

	"github.com/kitbackend/kit/internal/seal"
)

var sealedTokenColumn = seal.Column[string]{
	Table: "signin_provider_token", Key: "account_id", Column: "sealed", Context: tokenContext,
}

// rewrap wraps what the library has sealed with the first master key and returns
// how many values it changed.
func (l *library) rewrap(ctx context.Context) (changed int, err error) {
	factors, err := l.factors.Rewrap(ctx)
	if err != nil {
		return factors, err
	}
	tokens, err := sealedTokenColumn.Rewrap(ctx, l.store.db, l.sealer)
	return factors + tokens, err
}
