package email

import (
	"context"

	"github.com/kitbackend/kit/capability"
)

// SoftBouncing returns those of up to 1,000 addresses that mail bounced off
// temporarily within [SoftBounces.Window], as they were given. More addresses are
// refused with kit/invalid_request. Those that are held back for good are
// [Email.HeldBack].
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
