package kit

import (
	"context"

	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/internal/seal"
)

// The text that is sealed as the fingerprint of the master keys, and its context.
const (
	fingerprintText    = "kit master keys"
	fingerprintContext = "kit/master-key/fingerprint"
)

// checkMasterKeys refuses in production, and warns elsewhere, if [Kit.MasterKeysFit] does not hold: a
// node with other keys gives up mails, refuses the sessions of users, and signs with a key that no
// other node has.
func (k *Kit) checkMasterKeys(ctx context.Context) error {
	fit, err := k.MasterKeysFit(ctx)
	if err != nil || fit {
		return err
	}
	fault := &capability.Fault{Capability: ownName, Key: seal.Variable,
		Reason: "has other keys than this database was written with: what other nodes have encrypted does not open here",
		Fix: "give every node the same ones, and remove an old one only after rewrap; " +
			"if the old ones are lost, delete the row of kit_master_key"}
	if k.environment == capability.Production {
		return fault
	}
	k.log.Warn(fault.Error())
	return nil
}

// MasterKeysFit reports whether the master keys open what was written to the database: false when
// another node, or an earlier run, had keys that this one does not have. The first keys leave a
// fingerprint to compare with, which [Kit.Rewrap] seals anew; keys made for one run leave none.
func (k *Kit) MasterKeysFit(ctx context.Context) (bool, error) {
	if k.sealer == nil {
		return true, nil
	}
	if !k.sealer.Ephemeral() {
		sealed := k.sealer.Seal(fingerprintContext, []byte(fingerprintText))
		if _, err := k.Database().Exec(ctx, `INSERT INTO kit_master_key (name, sealed) VALUES ('fingerprint', $1) ON CONFLICT DO NOTHING`, sealed); err != nil {
			return false, err
		}
	}
	kept, ok, err := k.fingerprint(ctx)
	if err != nil || !ok {
		return err == nil, err
	}
	_, err = k.sealer.Open(fingerprintContext, kept)
	return err == nil, nil
}

// fingerprint returns the sealed text; ok is false if nobody has left one.
func (k *Kit) fingerprint(ctx context.Context) (sealed []byte, ok bool, err error) {
	return database.Get(ctx, k.Database(), func(row database.Scanner) (sealed []byte, err error) {
		return sealed, row.Scan(&sealed)
	}, `SELECT sealed FROM kit_master_key WHERE name = 'fingerprint'`)
}

// rewrapFingerprint wraps the fingerprint with the first master key, after everything else: from
// then on nodes need no older one.
func (k *Kit) rewrapFingerprint(ctx context.Context) error {
	if k.sealer == nil || k.sealer.Ephemeral() {
		return nil
	}
	kept, ok, err := k.fingerprint(ctx)
	if err != nil || !ok {
		return err
	}
	rewrapped, changed, err := k.sealer.Rewrap(fingerprintContext, kept)
	if err != nil || !changed {
		return err
	}
	_, err = k.Database().Exec(ctx, `UPDATE kit_master_key SET sealed = $1 WHERE name = 'fingerprint' AND sealed = $2`, rewrapped, kept)
	return err
}
