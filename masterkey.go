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

// checkMasterKeys warns when another node has written to the database under
// master keys that this one does not have. Keys of one run leave no fingerprint.
func (k *Kit) checkMasterKeys(ctx context.Context) error {
	if k.sealer == nil {
		return nil
	}
	db := k.Database()
	if !k.sealer.Ephemeral() {
		sealed := k.sealer.Seal(fingerprintContext, []byte(fingerprintText))
		if _, err := db.Exec(ctx, `INSERT INTO kit_master_key (name, sealed) VALUES ('fingerprint', $1) ON CONFLICT DO NOTHING`, sealed); err != nil {
			return err
		}
	}
	kept, ok, err := database.Get(ctx, db, func(row database.Scanner) (sealed []byte, err error) {
		return sealed, row.Scan(&sealed)
	}, `SELECT sealed FROM kit_master_key WHERE name = 'fingerprint'`)
	if err != nil || !ok {
		return err
	}
	if _, err := k.sealer.Open(fingerprintContext, kept); err != nil {
		k.log.Warn("the master keys are not those that this database was written with: what other nodes have encrypted does " +
			"not open here; give every node the same KIT_MASTER_KEYS, or, if the old ones are lost, delete the row of kit_master_key")
		return nil
	}
	rewrapped, changed, err := k.sealer.Rewrap(fingerprintContext, kept)
	if err != nil || !changed || k.sealer.Ephemeral() {
		return err
	}
	_, err = db.Exec(ctx, `UPDATE kit_master_key SET sealed = $1 WHERE name = 'fingerprint' AND sealed = $2`, rewrapped, kept)
	return err
}
