package storage

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"strings"
	"time"

	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/internal/id"
)

// tokenLength is the length of a share's token: 26 letters and digits, 130 random bits.
const tokenLength = 26

func tokenHash(token string) []byte {
	sum := sha256.Sum256([]byte(token))
	return sum[:]
}

// Share creates a link that reads an object without a session, for ttl, which is a minute to a year
// and by default seven days. The token is shown only once. Refuses with storage/not_found,
// storage/forbidden, storage/upload_incomplete, kit/invalid_request and, above [MaxShares],
// kit/rate_limited.
func (p Space) Share(ctx context.Context, ref Ref, ttl time.Duration) (Share, error) {
	if ttl == 0 {
		ttl = DefaultShareTTL
	}
	if ttl < MinShareTTL || ttl > MaxShareTTL {
		return Share{}, capability.ErrInvalidRequest.Saying("A share lasts %d to %d seconds.", MinShareTTL/time.Second, MaxShareTTL/time.Second)
	}
	s := p.s
	share := Share{ID: id.New(s.host.Now()), ObjectID: ref.id, Token: strings.ToLower(rand.Text())}
	share.URL = s.base + s.cfg.SharePath + "/" + share.Token
	err := s.db.InTx(ctx, func(ctx context.Context) error {
		o, err := p.lockOwned(ctx, ref)
		if err == nil && o.State != StateReady {
			err = ErrUploadIncomplete
		}
		if err != nil {
			return err
		}
		now := s.db.Now(ctx)
		n, err := s.store.countShares(ctx, o.ID, now.UnixMilli())
		if err != nil {
			return err
		}
		if n >= MaxShares {
			return capability.ErrRateLimited.Saying("An object has at most %d shares; revoke some.", MaxShares)
		}
		share.CreatedAt, share.ExpiresAt = capability.Millis(now.UnixMilli()), capability.Millis(now.Add(ttl).UnixMilli())
		if err := s.store.insertShare(ctx, share); err != nil {
			return err
		}
		return s.record(ctx, "storage/shared", o, map[string]string{"share": share.ID})
	})
	if err != nil {
		return Share{}, err
	}
	return share, nil
}

// Shares lists the unexpired shares of an object, without their tokens. Refuses with
// storage/not_found and storage/forbidden.
func (p Space) Shares(ctx context.Context, ref Ref) ([]Share, error) {
	o, err := p.owned(ctx, ref)
	if err != nil {
		return nil, err
	}
	return p.s.store.shares(ctx, o.ID, p.s.host.Now().UnixMilli())
}

// Revoke ends a share by its token or its ID. If ref is not zero, the share must be one of that
// object. Refuses with storage/not_found, and with storage/forbidden if the object is public and
// belongs to another user.
func (p Space) Revoke(ctx context.Context, ref Ref, token string) error {
	s := p.s
	return s.db.InTx(ctx, func(ctx context.Context) error {
		share, found, err := s.store.shareBy(ctx, tokenHash(token), token)
		if err != nil {
			return err
		}
		if ref.id == "" {
			ref.id = share.ObjectID
		}
		o, err := p.lockOwned(ctx, ref)
		if err != nil {
			return err
		}
		if !found || share.ObjectID != o.ID {
			return ErrNotFound.Saying("There is no such share.")
		}
		if err := s.store.removeShare(ctx, share.ID); err != nil {
			return err
		}
		return s.record(ctx, "storage/share_revoked", o, map[string]string{"share": share.ID})
	})
}

// shared returns the object of a share's token.
func (p Space) shared(ctx context.Context, token string) (Object, error) {
	var none Object
	if len(token) != tokenLength {
		return none, ErrNotFound
	}
	share, found, err := p.s.store.shareBy(ctx, tokenHash(token), "")
	if err != nil {
		return none, err
	}
	if !found {
		return none, ErrNotFound
	}
	if p.s.host.Now().UnixMilli() >= share.ExpiresAt.UnixMilli() {
		return none, ErrShareExpired
	}
	return p.readable(ctx, ByID(share.ObjectID))
}

// OpenShare opens the object of a share's token. Refuses with storage/not_found
// and storage/share_expired.
func (p Space) OpenShare(ctx context.Context, token string) (Content, error) {
	o, err := p.shared(ctx, token)
	if err != nil {
		return Content{}, err
	}
	return p.Open(ctx, ByID(o.ID))
}
