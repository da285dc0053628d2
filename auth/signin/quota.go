package signin

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"time"

	"github.com/kitbackend/kit/auth"
)

// wrongCodesADay bounds the wrong guesses at the codes that were mailed to an
// address, by all clients together that its account does not know, and by each
// client that it knows. Links in mails cannot be guessed, so they still sign in.
var wrongCodesADay = auth.RateLimit{Events: 30, Per: 24 * time.Hour}

// A quota is counted over all nodes, in one row a key: until when it is spent.
// An event moves that by Per/Events, and is refused when it would be more than
// Per ahead (GCRA, the leaky bucket as a meter).

// spend takes an event of a quota; if refused, it returns how long to wait. It joins the
// transaction in ctx.
func (l *library) spend(ctx context.Context, limit auth.RateLimit, use, key string) (wait time.Duration, ok bool, err error) {
	hash := quotaHash(use, key)
	err = l.host.DB.InTx(ctx, func(ctx context.Context) error {
		now := l.host.DB.Now(ctx)
		if ok, err = l.store.spend(ctx, hash, now, limit); err != nil || ok {
			return err
		}
		wait, err = l.waitOf(ctx, limit, hash, now)
		return err
	})
	return wait, ok, err
}

// exhausted returns how long to wait for an event of a quota, and takes none.
func (l *library) exhausted(ctx context.Context, limit auth.RateLimit, use, key string) (time.Duration, error) {
	return l.waitOf(ctx, limit, quotaHash(use, key), l.host.DB.Now(ctx))
}

func (l *library) waitOf(ctx context.Context, limit auth.RateLimit, hash []byte, now time.Time) (time.Duration, error) {
	until, err := l.store.spentUntil(ctx, hash)
	ahead := until.Sub(now)
	if err != nil || ahead > limit.Per+limit.Per/time.Duration(limit.Events) { // of a clock that was ahead
		return 0, err
	}
	return max(ahead+limit.Per/time.Duration(limit.Events)-limit.Per, 0), nil
}

// quotaHash keeps addresses out of the rows.
func quotaHash(use, key string) []byte {
	sum := sha256.Sum256([]byte(use + "\x00" + key))
	return sum[:]
}

// mailOnce sends a mail to an address whose quota unknown clients have used up: as soon as the
// quota allows one again, and one of each kind for all requests until then. So strangers can delay
// such a mail, but neither prevent it nor flood a mailbox.
func (l *library) mailOnce(ctx context.Context, what mails, m letter, wait time.Duration) error {
	limit, _ := l.auth.AccountLimit("send")
	return l.host.DB.InTx(ctx, func(ctx context.Context) error {
		key := hex.EncodeToString(quotaHash("later\x00"+string(what)+"\x00"+m.Kind, m.Address))
		added, err := l.sendAt(ctx, "later-"+key, m, l.host.DB.Now(ctx).Add(wait))
		if err != nil || !added {
			return err
		}
		return l.store.overspend(ctx, quotaHash("send", string(what)+"\x00"+m.Address), l.host.DB.Now(ctx), limit)
	})
}
