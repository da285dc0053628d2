package email

import (
	"context"

	"github.com/kitbackend/kit/capability"
)

// SoftBouncing returns which of up to 1,000 addresses, as given, have soft-bounced within
// [SoftBounces.Window]. More addresses are refused with kit/invalid_request. For suppressed
// addresses see [Email.HeldBack].
func (e *Email) SoftBouncing(ctx context.Context, addresses ...string) (map[string]bool, error) {
	if len(addresses) > maxAsked {
		return nil, capability.ErrInvalidRequest.Saying("Ask for at most %d addresses.", maxAsked)
	}
	spellings := make(map[string][]string, len(addresses))
	keys := make([]string, 0, len(addresses))
	for _, text := range addresses {
		if a, err := parseAddress(text); err == nil {
			key := e.keyOf(a)
			keys = append(keys, key)
			spellings[key] = append(spellings[key], text)
		}
	}
	bouncing := make(map[string]bool)
	if len(keys) == 0 {
		return bouncing, nil
	}
	found, err := e.store.softBouncing(ctx, keys, e.host.DB.Now(ctx).Add(-e.cfg.SoftBounces.Window))
	for _, key := range found {
		for _, text := range spellings[key] {
			bouncing[text] = true
		}
	}
	return bouncing, err
}
