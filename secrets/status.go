package secrets

import (
	"context"
	"errors"
	"sort"

	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/internal/seal"
)

// ListSecrets lists the declared secrets by name.
func (s *Secrets) ListSecrets(ctx context.Context, page capability.Page) (items capability.Items[SecretStatus], err error) {
	page = page.Bounded()
	var after string
	if _, err := page.After(&after); err != nil {
		return items, err
	}
	declared := s.declared()
	first := sort.Search(len(declared), func(i int) bool { return declared[i].Name > after })
	var list []SecretStatus
	for _, secret := range declared[first:min(len(declared), first+page.Limit+1)] {
		status, err := s.status(ctx, secret)
		if err != nil {
			return items, err
		}
		list = append(list, status)
	}
	return capability.Paged(page, list, func(s SecretStatus) []any { return []any{s.Name} }), nil
}

func (s *Secrets) status(ctx context.Context, secret Secret) (SecretStatus, error) {
	status := SecretStatus{Name: secret.Name, Mode: secret.mode(), Provider: s.provider.Name()}
	last, err := s.store.rotations(ctx, secret.Name, "", 1)
	if err != nil {
		return status, err
	}
	if len(last) > 0 {
		status.LastRotation = &last[0]
	}
	stored, blocks, err := s.current(ctx, secret.Name)
	if err != nil {
		s.host.Log.WarnContext(ctx, "secrets: the provider cannot be read", "secret", secret.Name, "error", err)
		status.Problem = "The secret cannot be read where it is kept."
		if errors.Is(err, seal.ErrNotOpened) {
			status.Problem = "The stored values do not open with the master keys of " + seal.Variable + "."
		}
	}
	if whole, _ := secret.complete(blocks); len(whole) > 0 && s.provider.ReadOnly() {
		if refused := secret.permit(whole); refused != nil {
			status.Problem = capability.AsError(refused).Message
		}
	}
	status.Exists, status.Version = len(blocks) > 0, stored.Version
	if blocks != nil && !stored.CreatedAt.IsZero() {
		status.LastRotatedAt = &capability.Time{Time: stored.CreatedAt}
	}
	if secret.Every > 0 && err == nil {
		if due := secret.due(stored, last); !due.IsZero() {
			status.NextDueAt = &capability.Time{Time: due}
		}
	}
	for _, b := range secret.Blocks {
		fields, given := blocks[b.Name]
		block := BlockStatus{Name: b.Name}
		if given {
			block.Missing = b.missing(fields)
			block.Present = len(block.Missing) == 0
		}
		status.Blocks = append(status.Blocks, block)
	}
	return status, nil
}

// ListRotations lists the rotations of a secret, newest first. It refuses with secrets/not_found.
func (s *Secrets) ListRotations(ctx context.Context, name string, page capability.Page) (items capability.Items[Rotation], err error) {
	page = page.Bounded()
	if _, err := s.Handle(name); err != nil {
		return items, err
	}
	var before string
	if _, err := page.After(&before); err != nil {
		return items, err
	}
	list, err := s.store.rotations(ctx, name, before, page.Limit+1)
	if err != nil {
		return items, err
	}
	return capability.Paged(page, list, func(r Rotation) []any { return []any{r.ID} }), nil
}
