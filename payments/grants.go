package payments

import (
	"context"
	"slices"
	"time"

	"github.com/kitbackend/kit/audit"
	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/internal/id"
	"github.com/kitbackend/kit/internal/optional"
)

// mask is an entitlement of a purchase that was revoked by hand.
type mask struct{ purchaseID, entitlement string }

// grantRow is an entitlement that was granted by hand.
type grantRow struct {
	id                   string
	subject              Subject
	entitlement, reason  string
	grantedAt, expiresAt Instant
}

// Grant is an entitlement that was granted by hand.
type Grant struct {
	ID          string           `json:"id"`
	Subject     Subject          `json:"subject"`
	Entitlement string           `json:"entitlement"`
	Reason      string           `json:"reason"`
	GrantedAt   capability.Time  `json:"grantedAt"`
	ExpiresAt   *capability.Time `json:"expiresAt"`
}

func (g grantRow) wire() Grant {
	return Grant{g.id, g.subject, g.entitlement, g.reason, capability.Millis(int64(g.grantedAt)), optional.Time(g.expiresAt)}
}

// GrantRequest is the request of [Payments.Grant].
type GrantRequest struct {
	Subject     Subject
	Entitlement string
	// ExpiresAt is in the future; the zero time means never.
	ExpiresAt time.Time
	// Reason is 1 to 500 bytes. It is kept with the grant until the user is erased, and is not in the
	// audit trail.
	Reason string
}

// Grant grants an entitlement by hand: one of Config.ManualEntitlements. It changes no purchase.
// Refuses with payments/entitlement_not_declared and payments/subject_kind_mismatch.
func (p *Payments) Grant(ctx context.Context, g GrantRequest) (Grant, error) {
	if err := p.checkSubject(g.Subject); err != nil {
		return Grant{}, err
	}
	if !slices.Contains(p.cfg.ManualEntitlements, g.Entitlement) {
		return Grant{}, ErrEntitlementUnknown
	}
	if err := capability.CheckText("reason", g.Reason, 1, maxReason); err != nil {
		return Grant{}, err
	}
	if !g.ExpiresAt.IsZero() && !g.ExpiresAt.After(p.host.Now()) {
		return Grant{}, capability.ErrInvalidRequest.Saying("expiresAt is not in the future.")
	}
	row := grantRow{subject: g.Subject, entitlement: g.Entitlement, reason: g.Reason, expiresAt: At(g.ExpiresAt)}
	err := p.host.DB.InTx(ctx, func(ctx context.Context) error {
		now := p.host.DB.Now(ctx)
		row.id, row.grantedAt = id.New(now), At(now)
		if err := p.touch(ctx, g.Subject); err != nil {
			return err
		}
		rest, err := p.resolve(ctx, g.Subject, nil)
		if err != nil {
			return err
		}
		if err := p.store.insertGrant(ctx, row); err != nil {
			return err
		}
		if err := p.audit.Record(ctx, audit.Event{Action: "payments/entitlement_granted", Subject: target(g.Subject),
			Detail: map[string]any{"entitlement": g.Entitlement, "grantId": row.id}}); err != nil {
			return err
		}
		return p.fire(ctx, g.Subject, nil, map[string]bool{g.Entitlement: true}, rest.active(At(now)))
	})
	return row.wire(), err
}

const maxReason = 500

// RevokeRequest is the request of [Payments.Revoke]. Exactly one of Entitlement, GrantID and
// PurchaseID is set: an entitlement from any source, one grant, or all entitlements of one
// purchase.
type RevokeRequest struct {
	Subject     Subject
	Entitlement string
	GrantID     string
	PurchaseID  string
	Reason      string
}

// Revoke revokes entitlements by hand: grants end, and entitlements of purchases are masked until
// [Payments.Repair], also those of purchases on hold, paused or ended, which may become active
// again. Later purchases are not affected. Refuses with payments/entitlement_not_found,
// payments/purchase_not_found and payments/subject_kind_mismatch.
func (p *Payments) Revoke(ctx context.Context, r RevokeRequest) (e Entitlements, err error) {
	if err := p.checkSubject(r.Subject); err != nil {
		return e, err
	}
	given := 0
	for _, text := range []string{r.Entitlement, r.GrantID, r.PurchaseID} {
		if text != "" {
			given++
		}
	}
	if given != 1 {
		return e, capability.ErrInvalidRequest.Saying("Give one of entitlement, grantId and purchaseId.")
	}
	if err := capability.CheckText("reason", r.Reason, 1, maxReason); err != nil {
		return e, err
	}
	err = p.host.DB.InTx(ctx, func(ctx context.Context) error { return p.revoke(ctx, r) })
	if err != nil {
		return e, err
	}
	return p.Entitlements(ctx, r.Subject)
}

func (p *Payments) revoke(ctx context.Context, r RevokeRequest) error {
	now := At(p.host.DB.Now(ctx))
	if err := p.touch(ctx, r.Subject); err != nil {
		return err
	}
	found, err := p.resolve(ctx, r.Subject, nil)
	if err != nil {
		return err
	}
	was := found.active(now)
	hit, err := p.maskPurchases(ctx, r)
	if err != nil {
		return err
	}
	for _, key := range sorted(found) {
		for _, s := range found[key] {
			if s.Type != "grant" || r.Entitlement != key && r.GrantID != s.ID || s.until != 0 && now >= s.until {
				continue
			}
			hit = true
			if _, err := p.store.endGrant(ctx, s.ID); err != nil {
				return err
			}
		}
	}
	switch {
	case !hit && r.PurchaseID != "":
		return ErrPurchaseNotFound
	case !hit:
		return ErrEntitlementNotFound
	}
	left, err := p.resolve(ctx, r.Subject, nil)
	if err != nil {
		return err
	}
	if err := p.audit.Record(ctx, audit.Event{Action: "payments/entitlement_revoked", Subject: target(r.Subject),
		Detail: map[string]any{"entitlement": r.Entitlement, "grantId": r.GrantID, "purchaseId": r.PurchaseID}}); err != nil {
		return err
	}
	return p.fire(ctx, r.Subject, was, left.active(now), nil)
}

// maskPurchases masks entitlements of purchases, whether they grant them now or may again; hit is
// false if no purchase has them.
func (p *Payments) maskPurchases(ctx context.Context, r RevokeRequest) (hit bool, err error) {
	rows, err := p.store.revocable(ctx, r.Subject, p.catalog.entitling)
	if err != nil {
		return false, err
	}
	for _, purchase := range rows {
		for _, key := range p.catalog.byKey[purchase.productKey].Entitlements {
			if r.Entitlement != key && r.PurchaseID != purchase.id {
				continue
			}
			hit = true
			if err := p.store.addMask(ctx, mask{purchase.id, key}, r.Subject, r.Reason); err != nil {
				return false, err
			}
		}
	}
	return hit, nil
}
