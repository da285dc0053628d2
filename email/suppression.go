package email

import (
	"context"
	"time"

	"github.com/kitbackend/kit/audit"
	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/hooks"
)

// holdsBack reports whether a suppression of the scope applies to a category; it is false for the
// scope "".
func (s Scope) holdsBack(c Category) bool {
	return s == ScopeAll || (s == ScopeList && c == CategoryList)
}

const (
	maxNote = 1000
	// maxAsked bounds the addresses of one call.
	maxAsked = 1000
)

// Suppress suppresses messages to an address until [Email.Unsuppress], and returns the strongest
// suppression of the address; added is false if it already existed. Refuses with
// email/invalid_address and kit/invalid_request.
func (e *Email) Suppress(ctx context.Context, text string, scope Scope, note string) (suppressed Suppression, added bool, err error) {
	a, err := parseAddress(text)
	switch {
	case err != nil:
		return Suppression{}, false, err
	case scope != ScopeAll && scope != ScopeList:
		return Suppression{}, false, capability.ErrInvalidRequest.Saying("A scope is all or list.")
	case len(note) > maxNote || !storableText(note):
		return Suppression{}, false, capability.ErrInvalidRequest.Saying("A note is at most %d bytes of text.", maxNote)
	}
	row := suppressionRow{scope: scope, reason: ReasonManual, source: "system", note: note}
	if capability.RequestInfoOf(ctx) != nil {
		row.source = "controlplane"
	}
	err = e.host.DB.InTx(ctx, func(ctx context.Context) error {
		if row.key, err = e.subject(ctx, e.keyOf(a)); err != nil {
			return err
		}
		before, err := e.store.suppressionsOf(ctx, row.key, e.host.DB.Now(ctx))
		if err != nil {
			return err
		}
		if _, err := e.suppress(ctx, row, ""); err != nil {
			return err
		}
		after, err := e.store.suppressionsOf(ctx, row.key, e.host.DB.Now(ctx))
		if err != nil {
			return err
		}
		suppressed, added = after[0], len(before) == 0
		return e.record(ctx, "email/suppressed", row.key, map[string]any{"scope": scope, "added": added})
	})
	return suppressed, added, err
}

// Unsuppress removes the suppressions of an address. A complaint or an unsubscription, which are
// the recipient's wish, is removed only with force: without it an unsubscription stays when other
// suppressions are removed. Refuses with email/invalid_address, suppression_not_found and
// suppression_protected.
func (e *Email) Unsuppress(ctx context.Context, text string, force bool) error {
	a, err := parseAddress(text)
	if err != nil {
		return err
	}
	return e.host.DB.InTx(ctx, func(ctx context.Context) error {
		key, err := e.subject(ctx, e.keyOf(a))
		if err != nil {
			return err
		}
		all, err := e.store.suppressionsOf(ctx, key, e.host.DB.Now(ctx))
		if err != nil {
			return err
		}
		if len(all) == 0 {
			return ErrNotSuppressed
		}
		var lifted []Reason
		for _, s := range all {
			switch {
			case s.Reason == ReasonComplaint && !force:
				return ErrProtected
			case s.Reason == ReasonUnsubscribed && !force:
				continue
			}
			if err := e.store.unsuppress(ctx, key, s.Scope, s.Reason); err != nil {
				return err
			}
			lifted = append(lifted, s.Reason)
		}
		if len(lifted) == 0 {
			return ErrProtected
		}
		return e.record(ctx, "email/unsuppressed", key, map[string]any{"reasons": lifted})
	})
}

// record writes an audit event about an address, which it identifies by its keyed hash.
func (e *Email) record(ctx context.Context, action string, key subject, detail any) error {
	return e.peers.Audit.Record(ctx, audit.Event{
		Action: action, Subject: audit.Target{Type: "email_address", ID: key.hash}, Detail: detail,
	})
}

// Suppression returns the strongest suppression of an address; ok is false if there is none.
// Refuses with email/invalid_address.
func (e *Email) Suppression(ctx context.Context, text string) (s Suppression, ok bool, err error) {
	a, err := parseAddress(text)
	if err != nil {
		return Suppression{}, false, err
	}
	key, err := e.subject(ctx, e.keyOf(a))
	if err != nil {
		return Suppression{}, false, err
	}
	all, err := e.store.suppressionsOf(ctx, key, e.host.DB.Now(ctx))
	if err != nil || len(all) == 0 {
		return Suppression{}, false, err
	}
	return all[0], true, nil
}

// HeldBack returns, for up to 1,000 addresses, the strongest suppression that applies to messages
// of the category. Keys are the addresses as given; it omits addresses that are invalid or not
// suppressed. More addresses are refused with kit/invalid_request.
func (e *Email) HeldBack(ctx context.Context, category Category, addresses ...string) (map[string]Suppression, error) {
	if len(addresses) > maxAsked {
		return nil, capability.ErrInvalidRequest.Saying("Ask for at most %d addresses.", maxAsked)
	}
	spellings := make(map[string][]string, 2*len(addresses))
	var keys []string
	for _, text := range addresses {
		a, err := parseAddress(text)
		if err != nil {
			continue
		}
		key, err := e.subject(ctx, e.keyOf(a))
		if err != nil {
			return nil, err
		}
		for _, name := range []string{key.address, key.hash} {
			spellings[name] = append(spellings[name], text)
			keys = append(keys, name)
		}
	}
	rows, err := e.store.suppressionsAmong(ctx, keys, e.host.DB.Now(ctx))
	held := make(map[string]Suppression, len(rows))
	for _, s := range rows {
		for _, text := range spellings[s.Address] {
			if _, known := held[text]; !known && s.Scope.holdsBack(category) {
				held[text] = s
			}
		}
	}
	return held, err
}

// ListSuppressions lists suppressions by address, scope and reason. A cursor of another list is
// refused with kit/invalid_request.
func (e *Email) ListSuppressions(ctx context.Context, f SuppressionFilter, page capability.Page) (capability.Items[Suppression], error) {
	page = page.Bounded()
	var after Suppression
	if _, err := page.After(&after.Address, (*string)(&after.Scope), (*string)(&after.Reason)); err != nil {
		return capability.Items[Suppression]{}, err
	}
	rows, err := e.store.suppressions(ctx, f, after, e.host.DB.Now(ctx), page.Limit+1)
	if err != nil {
		return capability.Items[Suppression]{}, err
	}
	return capability.Paged(page, rows, func(s Suppression) []any { return []any{s.Address, s.Scope, s.Reason} }), nil
}

// suppressAfter suppresses an address because of the outcome of a message; a zero until means
// forever. A report about no message of the kit may be one about a user who was erased: unless a
// message to its address is kept, only the keyed hash of the address is stored.
func (e *Email) suppressAfter(ctx context.Context, address string, reason Reason, source string, job Job, until time.Time) error {
	key, err := e.subject(ctx, address)
	if err != nil {
		return err
	}
	if job.ID == "" {
		kept, err := e.store.lockJobTo(ctx, address)
		if err != nil {
			return err
		}
		if !kept {
			key.address = key.hash
		}
	}
	row := suppressionRow{key: key, scope: ScopeAll, reason: reason, source: source, jobID: job.ID}
	if !until.IsZero() {
		row.expiresAt = until.UnixMilli()
	}
	userID := ""
	if job.UserID != nil {
		userID = *job.UserID
	}
	_, err = e.suppress(ctx, row, userID)
	return err
}

// suppress adds a suppression, or extends the existing one, and fires the hook for a new one that
// has the address. It runs inside a transaction.
func (e *Email) suppress(ctx context.Context, row suppressionRow, userID string) (added bool, err error) {
	if added, err = e.store.suppress(ctx, row, e.host.DB.Now(ctx)); err != nil || !added || row.key.address == row.key.hash {
		return added, err
	}
	event := hooks.MailSuppressed{Address: row.key.address, Scope: string(row.scope), Reason: string(row.reason), UserID: userID}
	if row.reason == ReasonUnsubscribed {
		return added, e.host.Hooks.MailUnsubscribed.Fire(ctx, event)
	}
	return added, e.host.Hooks.MailSuppressed.Fire(ctx, event)
}

// subject is an address in both forms that rows may have.
type subject struct {
	// address is in canonical form; hash replaces it after an erasure.
	address, hash string
}

func (e *Email) subject(ctx context.Context, addressKey string) (subject, error) {
	hash, err := e.pseudonym(ctx, addressKey)
	return subject{addressKey, hash}, err
}

// Choices lists the values, for API documents.
func (Scope) Choices() []string { return []string{string(ScopeAll), string(ScopeList)} }

// Choices lists the values, for API documents.
func (Reason) Choices() []string {
	return []string{string(ReasonHardBounce), string(ReasonSoftBounceLimit), string(ReasonComplaint), string(ReasonUnsubscribed), string(ReasonManual), string(ReasonInvalidAddress)}
}
