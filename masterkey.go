package kit

import (
	"context"

	"github.com/kitbackend/kit/database"
)

// The text that is sealed as the fingerprint of the master keys, and its context.
const (
	fingerprintText    = "kit master keys"
	fingerprintContext = "kit/master-key/fingerprint"
)

// checkMasterKeys warns where [Kit.MasterKeysFit] does not hold.
func (k *Kit) checkMasterKeys(ctx context.Context) error {
	fit, err := k.MasterKeysFit(ctx)
	if err == nil && !fit {
		k.log.Warn("the master keys are not those that this database was written with: what other nodes have encrypted does " +
			"not open here; give every node the same KIT_MASTER_KEYS, or, if the old ones are lost, delete the row of kit_master_key")
	}
	return err
}

// MasterKeysFit reports whether the master keys open what was written to the database: false when
// another node, or an earlier run, had keys that this one does not have. The first keys leave a
// fingerprint to compare with; keys made for one run leave none.
func (k *Kit) MasterKeysFit(ctx context.Context) (bool, error) {
	if k.sealer == nil {
		return true, nil
	}
	db := k.Database()
	if !k.sealer.Ephemeral() {
		sealed := k.sealer.Seal(fingerprintContext, []byte(fingerprintText))
		if _, err := db.Exec(ctx, `INSERT INTO kit_master_key (name, sealed) VALUES ('fingerprint', $1) ON CONFLICT DO NOTHING`, sealed); err != nil {
			return false, err
		}
	}
	kept, ok, err := database.Get(ctx, db, func(row database.Scanner) (sealed []byte, err error) {
		return sealed, row.Scan(&sealed)
	}, `SELECT sealed FROM kit_master_key WHERE name = 'fingerprint'`)
	if err != nil || !ok {
		return err == nil, err
	}
	if _, err := k.sealer.Open(fingerprintContext, kept); err != nil {
		return false, nil
	}
	rewrapped, changed, err := k.sealer.Rewrap(fingerprintContext, kept)
	if err != nil || !changed || k.sealer.Ephemeral() {
		return err == nil, err
	}
	_, err = db.Exec(ctx, `UPDATE kit_master_key SET sealed = $1 WHERE name = 'fingerprint' AND sealed = $2`, rewrapped, kept)
	return err == nil, err
}
