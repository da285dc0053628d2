package signin

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/kitbackend/kit/auth"
	"github.com/kitbackend/kit/capability"
)

// export emits how a user signs in, without secrets and hashes of passwords.
func (l *library) export(ctx context.Context, person capability.Person, emit capability.Emit) error {
	for _, part := range []func(context.Context, string, capability.Emit) error{
		l.exportAccounts, l.exportFactors, l.exportClients, l.exportLinks,
	} {
		if err := part(ctx, person.ID, emit); err != nil {
			return err
		}
	}
	return nil
}

func (l *library) exportAccounts(ctx context.Context, userID string, emit capability.Emit) error {
	accounts, err := l.store.accounts(ctx, userID)
	if err != nil {
		return err
	}
	for _, a := range accounts {
		record := exportedAccount{a.provider, a.issuer, a.accountID, strings.Fields(a.scopes), a.createdAt}
		if err := emit("account", record); err != nil {
			return err
		}
	}
	return nil
}

func (l *library) exportFactors(ctx context.Context, userID string, emit capability.Emit) error {
	state, found, err := l.factors.State(ctx, userID)
	if err != nil {
		return err
	}
	if found {
		record := exportedFactor{
			Enabled: state.Enabled, TOTP: state.HasTOTP(), CodesByMail: state.Mails, BackupCodes: state.HasBackupCodes(),
			FailedProofs: state.Failures(),
		}
		if err := emit("second_factor", record); err != nil {
			return err
		}
	}
	passkeys, err := l.passkeys.List(ctx, userID)
	if err != nil {
		return err
	}
	for _, p := range passkeys {
		if err := emit("passkey", showPasskey(p)); err != nil {
			return err
		}
	}
	return nil
}

func (l *library) exportClients(ctx context.Context, userID string, emit capability.Emit) error {
	clients, err := l.store.knownClients(ctx, userID)
	if err != nil {
		return err
	}
	for _, seen := range clients {
		if err := emit("known_client", exportedClient{seen}); err != nil {
			return err
		}
	}
	trusted, err := l.factors.TrustedUntil(ctx, userID)
	if err != nil {
		return err
	}
	for _, until := range trusted {
		if err := emit("trusted_browser", exportedTrust{until}); err != nil {
			return err
		}
	}
	return nil
}

func (l *library) exportLinks(ctx context.Context, userID string, emit capability.Emit) error {
	links, err := l.store.linksOf(ctx, userID)
	if err != nil {
		return err
	}
	for _, k := range links {
		if err := emit("link", exportedLink{k.kind, k.subject, capability.Time{Time: k.expiresAt}}); err != nil {
			return err
		}
	}
	return nil
}

// erase removes the rows that are not deleted with the user by a reference to auth_user.
func (l *library) erase(ctx context.Context, person capability.Person) (erased capability.Erasure, err error) {
	err = l.host.DB.InTx(ctx, func(ctx context.Context) error {
		removed, err := l.store.eraseUser(ctx, person.ID)
		if err != nil {
			return err
		}
		ceremonies, err := l.passkeys.Erase(ctx, person.ID)
		if removed += ceremonies; err != nil {
			return err
		}
		addresses, err := l.addresses(ctx, person)
		if err != nil {
			return err
		}
		for _, address := range addresses {
			n, err := l.store.eraseAddress(ctx, address)
			if removed += n; err != nil {
				return err
			}
		}
		erased.Removed = removed
		return nil
	})
	return erased, err
}

// addresses lists the addresses whose links and codes belong to the user, also one that was not
// proved, unless somebody has signed up with it since the account ended.
func (l *library) addresses(ctx context.Context, person capability.Person) (own []string, err error) {
	user, err := l.auth.User(ctx, person.ID)
	if err != nil && !errors.Is(err, auth.ErrUserNotFound) {
		return nil, err
	}
	all := person.Emails
	if user.Email != "" && !slices.Contains(all, user.Email) {
		all = append(slices.Clip(all), user.Email)
	}
	for _, address := range all {
		owner, found, err := l.auth.UserByEmail(ctx, address)
		if err != nil {
			return nil, err
		}
		if !found || owner.ID == person.ID {
			own = append(own, address)
		}
	}
	return own, nil
}
